"""Commands that remove messages for good: purge a queue or its dead letters, delete one, drop damaged ones."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.core.commands.lease import take_leased
from penstock.core.queue import Connection, Queue
from penstock.core.state import BROKER_SOURCE, BrokerState
from penstock.core.structures.item import POSITION, Item
from penstock.schema import Kind, Reason


def purge(state: BrokerState, connection: Connection, queue: Queue, now: int) -> int:
    """Remove all ready and delayed messages, including damaged ones; those that are out stay out. Returns how many."""
    damaged = [position for position, aside in queue.damaged.items() if aside.state != "dead"]
    count = queue.depth + len(damaged)
    if not count:
        return 0
    kept = sorted(position for position, out in queue.out.items() if not out.dead)
    detail = msgspec.json.encode(kept) if kept else b""
    state.log.other(Kind.PURGED, now, queue.id, connection.source, count=count, detail=detail)
    queue.counters.purged += count
    queue.clear_waiting()
    for position in damaged:
        del queue.damaged[position]
    dead = set(queue.dead.columns()[POSITION].tolist())
    _forget_all_but(state, queue, dead | queue.out.keys() | queue.damaged.keys())
    return count


def purge_dead(state: BrokerState, connection: Connection, queue: Queue, now: int) -> int:
    """Remove all dead letters, including damaged ones; those that are out stay out. Returns how many."""
    items = queue.dead.take(len(queue.dead))
    damaged = [aside.item for aside in queue.damaged.values() if aside.state == "dead"]
    for item in damaged:
        del queue.damaged[item.position]
    items += damaged
    if not items:
        return 0
    kept = sorted(position for position, out in queue.out.items() if out.dead)
    detail = msgspec.json.encode(kept) if kept else b""
    state.log.other(Kind.DEAD_PURGED, now, queue.id, connection.source, count=len(items), detail=detail)
    queue.counters.purged += len(items)
    for item in items:
        state.forget_message(queue, item.position)
    return len(items)


def delete_message(state: BrokerState, connection: Connection, queue: Queue, position: int, now: int) -> bool:
    """Remove one message that waits, is delayed, dead or damaged. False: it does not exist, or it is out."""
    return _drop_one(state, queue, position, now, Reason.DELETED, connection.source)


def drop_damaged(state: BrokerState, queue: Queue, positions: Iterable[int], now: int) -> int:
    """Drop messages whose payloads are lost, leased or not. Returns how many there were."""
    return sum(_drop_one(state, queue, position, now, Reason.DAMAGED, BROKER_SOURCE) for position in positions)


def _drop_one(state: BrokerState, queue: Queue, position: int, now: int, reason: Reason, source: bytes) -> bool:
    item = _take_one(queue, position)
    if item is None and reason is Reason.DAMAGED:
        item = take_leased(state, queue, position)
    if item is None:
        return False
    state.log.other(
        Kind.DROPPED,
        now,
        queue.id,
        source,
        message=position,
        deliveries=queue.deliveries.get(position, 0),
        reason=reason,
        retries_left=item.retries,
    )
    queue.counters.dropped += 1
    state.forget_message(queue, position)
    return True


def _take_one(queue: Queue, position: int) -> Item | None:
    aside = queue.damaged.pop(position, None)
    if aside is not None:
        return aside.item
    item = queue.find_ready(position)
    if item is not None:
        return queue.ready.remove(item)
    for lane in (queue.delayed, queue.dead):
        if (found := lane.find(position)) is not None:
            return lane.remove(found.rank, position)
    return None


def _forget_all_but(state: BrokerState, queue: Queue, kept: set[int]) -> None:
    noted = queue.deliveries.keys() | queue.published_retries.keys() | queue.moved.keys() | queue.asked.keys()
    for position in noted - kept:
        state.forget_message(queue, position)
