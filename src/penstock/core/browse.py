"""Inspect messages in place, a few at a time. Nothing changes, and no more is read than requested."""

from __future__ import annotations

from penstock.core.queue import Out, Queue
from penstock.core.structures.item import Item
from penstock.core.structures.lane import Lane

#: Before all other places.
FIRST = (-1, -1)
#: Messages out that are searched for the last one seen.
LOOK_BACK = 5000


def ready_after(queue: Queue, after: tuple[int, ...], limit: int) -> list[Item]:
    """Ready messages in the order of delivery, after (priority, rank, position)."""
    found: list[Item] = []
    highest = after[0] if after else None
    for priority in queue.ready.priorities.down_from(highest):
        place = (after[1], after[2]) if after and priority == highest else FIRST
        found += queue.ready.lanes[priority].after(place, limit - len(found))
        if len(found) >= limit:
            break
    return found


def lane_after(lane: Lane, after: tuple[int, ...], limit: int) -> list[Item]:
    """Delayed messages, or dead letters, after (priority, rank, position); the priority is ignored."""
    return lane.after((after[1], after[2]) if after else FIRST, limit)


def out_after(queue: Queue, after: tuple[int, ...], limit: int) -> tuple[list[Out], int]:
    """Messages that are out, in the order of delivery, and how many precede the next one.

    ``after`` has the number of messages seen, and the last one's position. If that message has come back meanwhile,
    those delivered before it may have, too, so the next ones are searched for at its place.
    """
    positions = list(queue.out)
    seen = 0
    if after:
        low, last = min(after[1], len(positions)), after[2]
        seen = next(
            (index + 1 for index in range(low - 1, max(low - LOOK_BACK, 0) - 1, -1) if positions[index] == last), low
        )
    chosen = positions[seen : seen + limit]
    return [queue.out[position] for position in chosen], seen + len(chosen)
