"""The journal's form of all state except messages: queues in the catalogue, leases and writers in the rows after it.

Both are at the beginning of every segment, so that the journal can be read from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from penstock.core.leases import Lease, LeaseEntry
from penstock.core.policy import Policy
from penstock.core.queue import QueueCounters
from penstock.core.writers import WriterEntry

#: Approximate bytes of a ``HELD`` row. Far less than a block, so that any number of them can begin a segment.
ROW_BYTES = 4 * 2**20


class QueueEntry(msgspec.Struct):
    """A queue in the journal."""

    namespace: str
    name: str
    policy: Policy
    created_at: int
    counters: dict[str, int] = msgspec.field(default_factory=lambda: QueueCounters().as_dict())


class ListedQueue(QueueEntry, kw_only=True):
    """A queue in a catalogue, with its number."""

    id: int

    def plain(self) -> QueueEntry:
        """Without the number."""
        return QueueEntry(self.namespace, self.name, self.policy, self.created_at, self.counters)


class CatalogueDetail(msgspec.Struct):
    """The detail of a ``CATALOGUE`` row. ``lost`` is present after a repair: the positions that it could not save."""

    namespaces: list[str]
    next_queue_id: int
    queues: list[ListedQueue]
    lost: tuple[int, int] | None = None
    #: The end of the lost events; numbering may continue at a higher position.
    seen: int = 0
    #: The number of rows about leases and writers that follow.
    held: int = 0


class HeldDetail(msgspec.Struct, omit_defaults=True):
    """The detail of a ``HELD`` row: some of the leases and writers."""

    #: Replaces all earlier ones.
    first: bool = False
    leases: dict[int, LeaseEntry] = msgspec.field(default_factory=dict)
    writers: dict[str, WriterEntry] = msgspec.field(default_factory=dict)


def held_rows(leases: Mapping[int, Lease], writers: Mapping[str, WriterEntry]) -> list[bytes]:
    """The details of the ``HELD`` rows for these leases and writers."""
    rows = list(_parts(leases, writers))
    if rows:
        rows[0].first = True
    return [msgspec.json.encode(row) for row in rows]


def _parts(leases: Mapping[int, Lease], writers: Mapping[str, WriterEntry]) -> Iterator[HeldDetail]:
    part, size = HeldDetail(), 0
    for position, lease in leases.items():
        part.leases[position] = entry = lease.describe()
        size += 1_000 + 24 * len(entry.runs)
        if size > ROW_BYTES:
            yield part
            part, size = HeldDetail(), 0
    for name, writer in writers.items():
        part.writers[name] = writer
        size += 1_000 + 56 * len(writer.chunks)
        if size > ROW_BYTES:
            yield part
            part, size = HeldDetail(), 0
    if size:
        yield part
