"""Commands of readers that outlive the broker: lease messages, settle them, return them.

All rows that end a lease are in one block, so that a crash keeps all of them or none: no lease continues after its
messages are settled, and none has ended before they are.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import msgspec

from penstock.core.commands.dispatch import dispatch, hand_out, take_ready
from penstock.core.commands.settle import end_deliveries, log_acknowledged, return_messages
from penstock.core.events import ROW_BYTES
from penstock.core.leases import LEASE, LEASE_MESSAGES, MOST_LEASED, MOST_LEASES, Lease, LeaseEnd, LeaseEntry, runs_of
from penstock.core.queue import Out, Queue
from penstock.core.state import BrokerState
from penstock.core.structures.item import Item
from penstock.schema import Kind, Reason

#: Messages that are taken before bytes are counted; the surplus goes back.
PIECE = 1_000
#: Stale entries among the noted ends of leases that are not worth clearing away.
END_SLACK = 1_000


def lease(
    state: BrokerState,
    reader: str,
    queue: Queue,
    now: int,
    timeout: int,
    *,
    instance: str = "",
    max_rows: int = LEASE_MESSAGES,
    max_bytes: int = 0,
    one_anyway: bool = True,
) -> Lease | None:
    """Lease the next messages of a queue to a reader, for ``timeout`` microseconds. None: there are none for it.

    One lease has ``LEASE_MESSAGES`` at most, and no more bytes than ``max_bytes`` (0 = no limit), except that
    ``one_anyway`` allows a first message that is larger by itself. They must not be shown before the log is durable up
    to ``log.next_position``.
    """
    room = min(max_rows, LEASE_MESSAGES, MOST_LEASED - state.leased)
    if state.draining or room <= 0 or len(state.leases) >= MOST_LEASES:
        return None
    items = _take_bytes(state, queue, room, max_bytes, now, one_anyway=one_anyway)
    if not items:
        return None
    runs = runs_of(item.position for item in items)
    entry = LeaseEntry(reader, instance, now, now + timeout, runs, queue.id)
    lease = Lease(state.log.next_position, entry, queue)
    source, detail = lease.connection.source, msgspec.json.encode(entry)
    state.log.other(Kind.LEASED, now, queue.id, source, count=len(items), detail=detail)
    _enter_lease(state, lease, items)
    queue.check()
    return lease


def leases_of(state: BrokerState, reader: str, start: int = 0, stop: int | None = None) -> list[Lease]:
    """The outstanding leases of a reader at positions from ``start`` to ``stop``, in order."""
    outstanding = (lease for lease in state.leases.values() if lease.entry.reader == reader)
    return [lease for lease in outstanding if start <= lease.position and (stop is None or lease.position < stop)]


def settle_lease(state: BrokerState, lease: Lease, now: int) -> int:
    """Settle the messages of a lease. Returns how many there were."""
    outs = _end_lease(state, lease, now)
    if outs:
        log_acknowledged(state, lease.queue, outs, now, lease.connection.source)
    _log_end(state, lease, len(outs), Reason.NONE, now)
    dispatch(state, lease.queue, now)
    return len(outs)


def return_lease(state: BrokerState, lease: Lease, reason: Reason, now: int) -> int:
    """Return the messages of a lease to their old places. Returns how many there were."""
    outs = _end_lease(state, lease, now)
    return_messages(state, lease.queue, outs, reason, now, lease.connection.source)
    _log_end(state, lease, len(outs), reason, now)
    dispatch(state, lease.queue, now)
    return len(outs)


def settle_leases(state: BrokerState, reader: str, before: int, now: int) -> int:
    """Settle everything that a reader has leased before a position. Returns the number of messages."""
    return sum(settle_lease(state, lease, now) for lease in leases_of(state, reader, stop=before))


def forget_reader(state: BrokerState, reader: str, now: int) -> int:
    """Return everything that a reader has leased. Returns the number of messages."""
    return sum(return_lease(state, lease, Reason.RELEASED, now) for lease in leases_of(state, reader))


def restore_lease(state: BrokerState, position: int, entry: LeaseEntry, items: list[Item]) -> None:
    """Restore a lease from the journal. ``items`` are its messages that still exist; they are in no lane."""
    _enter_lease(state, Lease(position, entry, state.queues[entry.queue]), items)


def end_empty_leases(state: BrokerState, queue: Queue, now: int) -> None:
    """End the empty leases of a queue that is deleted: their messages were all dropped as damaged."""
    for lease in [lease for lease in state.leases.values() if lease.queue is queue]:
        del state.leases[lease.position]
        _log_end(state, lease, 0, Reason.NONE, now)


def end_late_leases(state: BrokerState, now: int, left: int) -> int:
    """Return up to ``left`` messages that were not settled in time. Returns the rest of ``left``."""
    while left > 0 and (ends := next_lease_end(state)) is not None and ends <= now:
        _, position = heappop(state.lease_ends)
        left -= return_lease(state, state.leases[position], Reason.LOCK_EXPIRED, now) + 1
    return left


def next_lease_end(state: BrokerState) -> int | None:
    """When the next lease ends."""
    while state.lease_ends and state.lease_ends[0][1] not in state.leases:
        heappop(state.lease_ends)
    return state.lease_ends[0][0] if state.lease_ends else None


def take_leased(state: BrokerState, queue: Queue, position: int) -> Item | None:
    """Remove one message from a lease, without returning it to its queue."""
    out = queue.out.get(position)
    if out is None or out.connection.id != LEASE:
        return None
    end_deliveries(state, out.connection, queue, (position,))
    state.leased -= 1
    return out.item


def _take_bytes(
    state: BrokerState, queue: Queue, count: int, max_bytes: int, now: int, *, one_anyway: bool
) -> list[Item]:
    """Remove the next ready messages, within limits of number and bytes."""
    if not max_bytes:
        return take_ready(state, queue, count, now)
    taken: list[Item] = []
    size = 0
    while len(taken) < count and (part := take_ready(state, queue, min(PIECE, count - len(taken)), now)):
        for at, item in enumerate(part):
            size += item.size
            if size > max_bytes and (taken or not one_anyway):
                queue.ready.insert_many(part[at:])
                state.schedule_for(queue, part[at:])
                return taken
            taken.append(item)
    return taken


def _enter_lease(state: BrokerState, lease: Lease, items: list[Item]) -> None:
    for item in items:
        hand_out(state, lease.queue, item, lease.connection, lease.entry.since)
    state.leases[lease.position] = lease
    state.leased += len(items)
    heappush(state.lease_ends, (lease.entry.until, lease.position))
    if len(state.lease_ends) > 2 * len(state.leases) + END_SLACK:
        state.lease_ends = [(each.entry.until, position) for position, each in state.leases.items()]
        heapify(state.lease_ends)


def _end_lease(state: BrokerState, lease: Lease, now: int) -> list[Out]:
    """Take the messages from the reader, and make room for all of their rows in one block."""
    outs = end_deliveries(state, lease.connection, lease.queue, lease.messages)
    del state.leases[lease.position]
    state.leased -= len(outs)
    state.log.make_room(now, (len(outs) + 2) * ROW_BYTES)
    return outs


def _log_end(state: BrokerState, lease: Lease, count: int, reason: Reason, now: int) -> None:
    detail = msgspec.json.encode(LeaseEnd(lease.position))
    source = lease.connection.source
    state.log.other(Kind.LEASE_ENDED, now, lease.queue.id, source, count=count, reason=reason, detail=detail)
