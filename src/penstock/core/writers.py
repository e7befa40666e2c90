"""Writers in the broker and in the journal.

A *writer* sends numbered chunks; the broker remembers which it has accepted, so that none counts twice. This is
independent of messages, so writers are separate state, applied event by event.
"""

from __future__ import annotations

import msgspec

#: Remembered writers, and partitions of all of them together. They are kept without a time limit, and each partition
#: takes about 200 bytes of memory.
MOST_WRITERS = 10_000
MOST_PARTITIONS = 1_000_000


class WriterEntry(msgspec.Struct):
    """A writer's progress: its newest epoch, and how many chunks of each partition were accepted."""

    epoch: int
    chunks: dict[int, int]
    #: The writer's digest of these chunks, for each partition that has one.
    digests: dict[int, int] = msgspec.field(default_factory=dict)
    #: The owner's identity; empty on a broker without access rules, or from an older journal.
    owner: str = ""
    #: When its last chunk was accepted.
    at: int = 0

    def note(self, key: ChunkKey) -> None:
        """Count another chunk of this epoch."""
        self.chunks[key.partition] = key.chunk + 1
        self.digests[key.partition] = key.digest
        if not key.digest:
            del self.digests[key.partition]
        self.owner, self.at = key.owner, key.at


class ChunkKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Identifies a chunk: the detail of a ``WRITTEN`` row. A ``WRITER_ENDED`` row has the writer alone."""

    writer: str
    epoch: int = 0
    partition: int = 0
    chunk: int = 0
    #: Digest of the rows of all chunks of the partition up to this one. 0: none.
    digest: int = 0
    #: The writer's owner from now on, and the time.
    owner: str = ""
    at: int = 0
