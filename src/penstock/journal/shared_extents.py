"""Reading extents that a follower in another process of this machine has told of: see ``contract.SharedExtent``.

The follower has looked at how far the journal goes, what is lost of it, and which queues are meant. Here files are
opened and mapped, and nothing else: each must be the very extent that is meant, or it is not read. A file that is
removed in between is not found; one that is mapped stays readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from typing_extensions import override

from penstock.journal.contract import BlockReader, LocatedBlock, SharedExtent
from penstock.journal.errors import Gone
from penstock.journal.files.mapped_segment import MappedSegment
from penstock.journal.format.catalogue import QueueName

#: What is no file, as a path of the broker may be in a container, is opened without waiting for somebody at its end.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class SharedExtentReader(BlockReader):
    """A range of the journal as ``views.arrow`` reads it: see ``contract.BlockReader``."""

    def __init__(self, identity: int, extents: Sequence[SharedExtent]) -> None:
        self.identity = identity
        self.where = "the journal's files"
        self._extents = extents

    @property
    @override
    def latest(self) -> int:
        """The end of what may be read."""
        return self._extents[-1].stop

    @override
    def read(
        self, start: int, stop: int | None = None, *, verify: bool = True, accept_loss: bool = False
    ) -> Iterator[LocatedBlock]:
        """The blocks of the extents, which are opened one after the other.

        Raises OSError for a file that can't be opened, Gone for one that is another extent, BlockError for a bad block.
        """
        for extent in self._extents:
            segment = _OpenedExtent(os.open(extent.path, _FLAGS), self.identity, extent)
            low, high = max(start, extent.start), extent.stop if stop is None else min(stop, extent.stop)
            if low < high:
                for block in segment.blocks(low, high, verify=verify):
                    yield LocatedBlock(block, segment)


class _OpenedExtent(MappedSegment):
    """An extent that knows where to begin, and the queues that are meant, without having walked through its file."""

    def __init__(self, file: int, identity: int, extent: SharedExtent) -> None:
        super().__init__(file, extent.name)
        if (self.header.identity, self.header.checksum) != (identity, extent.checksum):
            raise Gone(f"{extent.path} is another extent than {extent.name}")
        self._extent = extent

    @override
    def offset_of(self, position: int, limit: int) -> int:
        extent = self._extent
        return extent.offset if position == extent.start else super().offset_of(position, limit)

    @override
    def name_of(self, number: int, limit: int) -> QueueName | None:
        """None for a queue that is not meant."""
        return self._extent.names.get(number)
