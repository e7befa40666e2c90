"""Leases and writers: what Spark holds in the broker, as the broker knows it and as the journal describes it.

A *lease* is some ready messages of one queue that a reader has, until it settles them or its time is up. Unlike a
delivery it is written down when it begins, because it has to outlive the broker: a reader that asks again must get the
same messages. A *writer* sends numbered chunks; what is kept of it is which it has sent, so that none counts twice.

Neither says anything of a message: a leased one is in the state of its own last event, and who takes leases away
finds every message ready. So they are state of their own, applied event by event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from penstock.core.queue import Connection, Queue

#: Messages of one lease. Taking or settling so many takes some 10 ms, giving back 40: nobody else is served meanwhile.
LEASE_MESSAGES = 5_000
#: Messages that all leases may have: each costs about 500 bytes of memory while it is out.
MOST_LEASED = 1_000_000
#: Leases that may be outstanding.
MOST_LEASES = 10_000
#: Writers that are remembered, and partitions of all of them together. They are kept without a limit of time, and each
#: partition costs some 200 bytes of memory.
MOST_WRITERS = 10_000
MOST_PARTITIONS = 1_000_000
#: Bytes of a ``HELD`` row, roughly: far below a block's, so that a segment can begin however much is held.
ROW_BYTES = 4 * 2**20

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


class WriterEntry(msgspec.Struct):
    """How far a writer is: its newest epoch, and how many chunks of each partition were taken."""

    epoch: int
    chunks: dict[int, int]
    #: What the writer said of the rows of these chunks, for each partition of which it said something.
    digests: dict[int, int] = msgspec.field(default_factory=dict)
    #: The identity that it belongs to; empty for one of a broker without access rules, or of an older journal.
    owner: str = ""
    #: When its last chunk was taken.
    at: int = 0

    def note(self, key: ChunkKey) -> None:
        """One more chunk of this epoch was taken."""
        self.chunks[key.partition] = key.chunk + 1
        self.digests[key.partition] = key.digest
        if not key.digest:
            del self.digests[key.partition]
        self.owner, self.at = key.owner, key.at


class ChunkKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which chunk: the detail of a ``WRITTEN`` row. Of a ``WRITER_ENDED`` row it is the writer alone."""

    writer: str
    epoch: int = 0
    partition: int = 0
    chunk: int = 0
    #: Of the rows of all chunks of the partition up to this one. 0: nothing is said of them.
    digest: int = 0
    #: Whose the writer is from now on, and when that was.
    owner: str = ""
    at: int = 0


class Held(msgspec.Struct, omit_defaults=True):
    """The detail of a ``HELD`` row: some of the leases and writers."""

    #: What was known before is replaced.
    first: bool = False
    leases: dict[int, LeaseEntry] = msgspec.field(default_factory=dict)
    writers: dict[str, WriterEntry] = msgspec.field(default_factory=dict)


class Lease:
    """Messages that a reader has. ``connection`` holds them, in order; those that are gone meanwhile are not there."""

    __slots__ = ("connection", "entry", "position", "queue")

    def __init__(self, position: int, entry: LeaseEntry, queue: Queue) -> None:
        self.position = position
        self.entry = entry
        self.queue = queue
        self.connection = Connection(LEASE, b"spark " + entry.reader.encode())

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


def held_rows(leases: Mapping[int, Lease], writers: Mapping[str, WriterEntry]) -> list[bytes]:
    """The details of the ``HELD`` rows that say all this."""
    rows = list(_parts(leases, writers))
    if rows:
        rows[0].first = True
    return [msgspec.json.encode(row) for row in rows]


def _parts(leases: Mapping[int, Lease], writers: Mapping[str, WriterEntry]) -> Iterator[Held]:
    part, size = Held(), 0
    for position, lease in leases.items():
        part.leases[position] = entry = lease.describe()
        size += 1_000 + 24 * len(entry.runs)
        if size > ROW_BYTES:
            yield part
            part, size = Held(), 0
    for name, writer in writers.items():
        part.writers[name] = writer
        size += 1_000 + 56 * len(writer.chunks)
        if size > ROW_BYTES:
            yield part
            part, size = Held(), 0
    if size:
        yield part
