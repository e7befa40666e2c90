"""Commands that send messages to the end of a queue: re-drive dead letters, and move ready ones to another queue."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from penstock.core.budget import REDRIVE
from penstock.core.commands.dispatch import dispatch
from penstock.core.queue import Connection, Queue
from penstock.core.state import BrokerState
from penstock.core.structures.item import Item
from penstock.schema import Kind


def redrive(
    state: BrokerState,
    connection: Connection,
    queue: Queue,
    now: int,
    *,
    positions: Sequence[int] | None = None,
    limit: int = REDRIVE,
    to: Queue | None = None,
) -> int:
    """Send dead letters back to the end of their queue, or of another. Returns how many.

    Without ``positions`` the oldest ``limit`` are sent. They keep their ID and priority, lose their time to live, get
    back their retry counter as published, and start at zero deliveries.
    """
    return _send(state, connection, queue, _take_dead(queue, positions, limit), to or queue, now)


def move(
    state: BrokerState, connection: Connection, queue: Queue, now: int, *, positions: Sequence[int], to: Queue
) -> int:
    """Send ready or delayed messages to the end of another queue. Returns how many.

    They become like re-driven dead letters: ready, with their ID and priority, and without a time to live.
    """
    if to is queue:
        return 0
    items = [item for position in positions if (item := _take_waiting(queue, position)) is not None]
    return _send(state, connection, queue, items, to, now)


def _send(
    state: BrokerState, connection: Connection, queue: Queue, items: Sequence[Item], target: Queue, now: int
) -> int:
    """Put messages that are in no lane any more at the end of a queue."""
    if not items:
        return 0
    restored = [item._replace(retries=queue.retries_as_published(item), reason=0, expires=0) for item in items]
    columns = {
        "message": array("Q", [item.position for item in items]),
        "retries_left": array("B", [item.retries for item in restored]),
    }
    if target is not queue:
        columns["from_queue"] = array("I", (queue.id,)) * len(items)
    first = state.log.others(Kind.REDRIVEN, now, target.id, connection.source, len(items), dict(columns))
    moved = [item._replace(rank=first + offset) for offset, item in enumerate(restored)]
    target.ready.insert_many(moved)
    for item in moved:
        _move(state, queue, target, item.position)
        target.note(item, 0)
    dispatch(state, target, now)
    return len(items)


def _take_waiting(queue: Queue, position: int) -> Item | None:
    item = queue.find_ready(position)
    if item is not None:
        return queue.ready.remove(item)
    delayed = queue.delayed.find(position)
    return None if delayed is None else queue.delayed.remove(delayed.rank, position)


def _take_dead(queue: Queue, positions: Sequence[int] | None, limit: int) -> list[Item]:
    if positions is None:
        return queue.dead.take(limit)
    found = [item for position in positions if (item := queue.dead.find(position)) is not None]
    return queue.dead.remove_many([item.rank for item in found])


def _move(state: BrokerState, queue: Queue, target: Queue, position: int) -> None:
    """Move a message's notes from one queue to another."""
    if queue is target:
        queue.published_retries.pop(position, None)
        return
    queue.counters.moved_out += 1
    target.counters.moved_in += 1
    state.moved_to[position] = target.id
    queue.forget(position)
    asked = queue.asked.pop(position, None)
    if asked is not None:
        target.asked[position] = asked
        state.asked[asked] = (target, position)
