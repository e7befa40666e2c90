"""Commands of readers that outlive the broker: lease messages, settle them, give them back.

All rows that end a lease are in one block, so that a crash keeps all of them or none: there is never a lease that goes
on though its messages are settled, nor one that has ended though they are not.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import msgspec

from penstock.core.events import ROW_BYTES
from penstock.core.held import LEASE, LEASE_MESSAGES, MOST_LEASED, MOST_LEASES, Lease, LeaseEnd, LeaseEntry, runs_of
from penstock.core.lane import Item
from penstock.core.queue import Out, Queue
from penstock.core.settling import Settling
from penstock.schema import Kind, Reason

#: Messages that are looked at before bytes are counted: what is too much goes back.
PIECE = 1_000
#: Noted ends of leases that have ended since, which are not worth clearing away.
END_SLACK = 1_000


class Leasing(Settling):
    """Leases. See the module's description."""

    def lease(
        self,
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
        """Give the next messages of a queue to a reader, for ``timeout`` microseconds. None: there are none for it.

        One lease has ``LEASE_MESSAGES`` at most, and no more bytes than ``max_bytes`` (0 = no limit), unless its first
        message alone has and is wanted ``one_anyway``. They must not be shown before the log is durable up to
        ``log.next_position``.
        """
        room = min(max_rows, LEASE_MESSAGES, MOST_LEASED - self.leased)
        if self.draining or room <= 0 or len(self.leases) >= MOST_LEASES:
            return None
        items = self._take_bytes(queue, room, max_bytes, now, one_anyway=one_anyway)
        if not items:
            return None
        runs = runs_of(item.position for item in items)
        entry = LeaseEntry(reader, instance, now, now + timeout, runs, queue.id)
        lease = Lease(self.log.next_position, entry, queue)
        source, detail = lease.connection.source, msgspec.json.encode(entry)
        self.log.other(Kind.LEASED, now, queue.id, source, count=len(items), detail=detail)
        self._enter_lease(lease, items)
        queue.check()
        return lease

    def leases_of(self, reader: str, start: int = 0, stop: int | None = None) -> list[Lease]:
        """The outstanding leases of a reader at positions from ``start`` to ``stop``, in order."""
        found = (lease for lease in self.leases.values() if lease.entry.reader == reader)
        return [lease for lease in found if start <= lease.position and (stop is None or lease.position < stop)]

    def settle_lease(self, lease: Lease, now: int) -> int:
        """The messages of a lease are done with. Returns how many that were."""
        outs = self._end_lease(lease, now)
        if outs:
            self._acknowledge(lease.queue, outs, now, lease.connection.source)
        self._note_end(lease, len(outs), Reason.NONE, now)
        self._dispatch(lease.queue, now)
        return len(outs)

    def return_lease(self, lease: Lease, reason: Reason, now: int) -> int:
        """The messages of a lease go back to their old places. Returns how many that were."""
        outs = self._end_lease(lease, now)
        self._give_back(lease.queue, outs, reason, now, lease.connection.source)
        self._note_end(lease, len(outs), reason, now)
        self._dispatch(lease.queue, now)
        return len(outs)

    def settle_leases(self, reader: str, before: int, now: int) -> int:
        """Settle everything that a reader has leased before a position. Returns how many messages that were."""
        return sum(self.settle_lease(lease, now) for lease in self.leases_of(reader, stop=before))

    def forget_reader(self, reader: str, now: int) -> int:
        """Give back everything that a reader has leased. Returns how many messages that were."""
        return sum(self.return_lease(lease, Reason.RELEASED, now) for lease in self.leases_of(reader))

    def restore_lease(self, position: int, entry: LeaseEntry, items: list[Item]) -> None:
        """A lease from the journal. ``items`` are those of its messages that are there; they are in no lane."""
        self._enter_lease(Lease(position, entry, self.queues[entry.queue]), items)

    def _take_bytes(self, queue: Queue, count: int, max_bytes: int, now: int, *, one_anyway: bool) -> list[Item]:
        """Remove the next ready messages: so many, and so many bytes."""
        if not max_bytes:
            return self._take(queue, count, now)
        taken: list[Item] = []
        size = 0
        while len(taken) < count and (part := self._take(queue, min(PIECE, count - len(taken)), now)):
            for at, item in enumerate(part):
                size += item.size
                if size > max_bytes and (taken or not one_anyway):
                    queue.put_many(part[at:])
                    self._schedule_for(queue, part[at:])
                    return taken
                taken.append(item)
        return taken

    def _enter_lease(self, lease: Lease, items: list[Item]) -> None:
        for item in items:
            self._hand_out(lease.queue, item, lease.connection, lease.entry.since)
        self.leases[lease.position] = lease
        self.leased += len(items)
        heappush(self._lease_ends, (lease.entry.until, lease.position))
        if len(self._lease_ends) > 2 * len(self.leases) + END_SLACK:
            self._lease_ends = [(each.entry.until, position) for position, each in self.leases.items()]
            heapify(self._lease_ends)

    def _end_lease(self, lease: Lease, now: int) -> list[Out]:
        """Take the messages from the reader, and make room for all that is to be said about them in one block."""
        outs = self._settle(lease.connection, lease.queue, lease.messages)
        del self.leases[lease.position]
        self.leased -= len(outs)
        self.log.make_room(now, (len(outs) + 2) * ROW_BYTES)
        return outs

    def _note_end(self, lease: Lease, count: int, reason: Reason, now: int) -> None:
        detail = msgspec.json.encode(LeaseEnd(lease.position))
        source = lease.connection.source
        self.log.other(Kind.LEASE_ENDED, now, lease.queue.id, source, count=count, reason=reason, detail=detail)

    def _end_empty_leases(self, queue: Queue, now: int) -> None:
        """A queue goes, and nothing is in it: leases whose messages were all given up as damaged go with it."""
        for lease in [lease for lease in self.leases.values() if lease.queue is queue]:
            del self.leases[lease.position]
            self._note_end(lease, 0, Reason.NONE, now)

    def _end_late_leases(self, now: int, budget: int) -> int:
        """Give back what was not settled in time. Returns what is left of the budget."""
        while budget > 0 and (ends := self._next_lease_end()) is not None and ends <= now:
            _, position = heappop(self._lease_ends)
            budget -= self.return_lease(self.leases[position], Reason.LOCK_EXPIRED, now) + 1
        return budget

    def _next_lease_end(self) -> int | None:
        while self._lease_ends and self._lease_ends[0][1] not in self.leases:
            heappop(self._lease_ends)
        return self._lease_ends[0][0] if self._lease_ends else None

    def _take_leased(self, queue: Queue, position: int) -> Item | None:
        """Take one message out of a lease: nobody can have it any more."""
        out = queue.out.get(position)
        if out is None or out.connection.id != LEASE:
            return None
        self._settle(out.connection, queue, (position,))
        self.leased -= 1
        return out.item
