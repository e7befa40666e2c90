"""Writers, as the broker knows them and as the journal describes them.

A *writer* sends numbered chunks; what is kept of it is which it has sent, so that none counts twice. That says nothing
of a message, so writers are state of their own, applied event by event.
"""

from __future__ import annotations

import msgspec

#: Writers that are remembered, and partitions of all of them together. They are kept without a limit of time, and each
#: partition costs some 200 bytes of memory.
MOST_WRITERS = 10_000
MOST_PARTITIONS = 1_000_000


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
