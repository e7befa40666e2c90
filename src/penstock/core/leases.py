"""Leases in the broker and in the journal.

A *lease* is a set of ready messages of one queue that a reader holds until it settles them or the lease times out.
Unlike a delivery it is recorded when it begins, because it has to outlive the broker: a reader that asks again must get
the same messages.

A lease does not change the state of its messages: each is in the state of its own last event, as if there were no
lease. So leases are separate state, applied event by event.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.core.queue import Connection, Queue

#: Messages of one lease. Taking or settling them takes about 10 ms, returning them 40; all peers wait meanwhile.
LEASE_MESSAGES = 5_000
#: Messages in all leases: each costs about 500 bytes of memory while it is out.
MOST_LEASED = 1_000_000
#: Outstanding leases.
MOST_LEASES = 10_000

#: The number of all connections that stand for a lease. Peers have numbers from 0.
LEASE = -1


class LeaseEntry(msgspec.Struct):
    """A lease in the journal: the detail of a ``LEASED`` row, which has the queue in its own column."""

    reader: str
    #: The reader's query that took it.
    instance: str
    since: int
    until: int
    #: Positions of the messages in order, as runs: first and count.
    runs: list[tuple[int, int]]
    queue: int = 0


class LeaseEnd(msgspec.Struct):
    """The detail of a ``LEASE_ENDED`` row."""

    lease: int


class Lease:
    """A reader's leased messages. ``connection`` holds them in order, without those that have left since."""

    __slots__ = ("connection", "entry", "position", "queue")

    def __init__(self, position: int, entry: LeaseEntry, queue: Queue) -> None:
        self.position = position
        self.entry = entry
        self.queue = queue
        self.connection = Connection(LEASE, b"flight " + entry.reader.encode())

    @property
    def messages(self) -> list[int]:
        """Positions of the messages, in order."""
        return list(self.connection.out)

    @property
    def size(self) -> int:
        """Bytes of the payloads."""
        return sum(out.item.size for out in self.connection.out.values())

    def describe(self) -> LeaseEntry:
        """The lease's current journal entry."""
        return msgspec.structs.replace(self.entry, runs=runs_of(self.connection.out), queue=self.queue.id)


def runs_of(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Ordered positions as runs of consecutive ones."""
    runs: list[tuple[int, int]] = []
    first = count = 0
    for position in positions:
        if count and position == first + count:
            count += 1
            continue
        if count:
            runs.append((first, count))
        first, count = position, 1
    if count:
        runs.append((first, count))
    return runs
