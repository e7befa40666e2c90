"""Looking at messages where they are, some at a time. Nothing changes, and no more is looked at than is asked for."""

from __future__ import annotations

from penstock.core.queue import Out, Queue
from penstock.core.structures.lane import Item, Lane

#: Before all others.
FIRST = (-1, -1)
#: Messages out among which the last one seen is looked for.
LOOK_BACK = 5000


def ready_after(queue: Queue, after: tuple[int, ...], limit: int) -> list[Item]:
    """Ready messages in the order in which they would be given out, behind (priority, rank, position)."""
    found: list[Item] = []
    highest = after[0] if after else None
    for priority in queue.priorities.down_from(highest):
        place = (after[1], after[2]) if after and priority == highest else FIRST
        found += queue.lanes[priority].after(place, limit - len(found))
        if len(found) >= limit:
            break
    return found


def lane_after(lane: Lane, after: tuple[int, ...], limit: int) -> list[Item]:
    """Delayed messages, or dead letters, behind (priority, rank, position), of which the priority does not count."""
    return lane.after((after[1], after[2]) if after else FIRST, limit)


def out_after(queue: Queue, after: tuple[int, ...], limit: int) -> tuple[list[Out], int]:
    """Messages that are out, in the order in which they were given out, and how many lie before the next.

    ``after`` has how many were seen, and the last one's position. If that has come back meanwhile, those that were
    given out before it may have, too: so the next ones are looked for at its place.
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
