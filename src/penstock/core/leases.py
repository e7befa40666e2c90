"""Leases, as the broker knows them and as the journal describes them.

A *lease* is some ready messages of one queue that a reader has, until it settles them or its time is up. Unlike a
delivery it is written down when it begins, because it has to outlive the broker: a reader that asks again must get the
same messages.

It says nothing of a message: a leased one is in the state of its own last event, and who takes leases away finds every
message ready. So leases are state of their own, applied event by event.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.core.queue import Connection, Queue

#: Messages of one lease. Taking or settling so many takes some 10 ms, giving back 40: nobody else is served meanwhile.
LEASE_MESSAGES = 5_000
#: Messages that all leases may have: each costs about 500 bytes of memory while it is out.
MOST_LEASED = 1_000_000
#: Leases that may be outstanding.
MOST_LEASES = 10_000

#: The number of all connections that stand for a lease. Peers have numbers from 0.
LEASE = -1


class LeaseEntry(msgspec.Struct):
    """A lease as the journal describes it: the detail of a ``LEASED`` row, which has the queue in its own column."""

    reader: str
    #: Which query of that name took it.
    instance: str
    since: int
    until: int
    #: Positions of the messages in order: first and how many.
    runs: list[tuple[int, int]]
    queue: int = 0


class LeaseEnd(msgspec.Struct):
    """The detail of a ``LEASE_ENDED`` row."""

    lease: int


class Lease:
    """Messages that a reader has. ``connection`` holds them, in order; those that are gone meanwhile are not there."""

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
        """As it is now."""
        return msgspec.structs.replace(self.entry, runs=runs_of(self.connection.out), queue=self.queue.id)


def runs_of(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Positions in order, as runs of consecutive ones."""
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
