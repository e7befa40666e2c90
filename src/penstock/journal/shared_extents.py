"""Reading extents that a follower in another process of this machine shares: see ``contract.SharedExtent``.

The follower has checked how far the journal goes, what is lost, and which queues are selected. This module only opens
and maps the files, and refuses any that is not the shared extent. A file that is removed in between is not found; a
mapped one stays readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from typing_extensions import override

from penstock.journal.contract import BlockReader, LocatedBlock, SharedExtent
from penstock.journal.errors import Gone
from penstock.journal.files.mapped_segment import MappedSegment
from penstock.journal.format.catalogue import QueueName

#: In a container the broker's path may name a pipe or a terminal: opening must not wait for its other end.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class SharedExtentReader(BlockReader):
    """The shared range of a journal."""

    def __init__(self, identity: int, extents: Sequence[SharedExtent]) -> None:
        self.identity = identity
        self.where = "the journal's files"
        self._extents = extents

    @property
    @override
    def latest(self) -> int:
        """The end of the shared range."""
        return self._extents[-1].stop

    @override
    def read(
        self, start: int, stop: int | None = None, *, verify: bool = True, accept_loss: bool = False
    ) -> Iterator[LocatedBlock]:
        """Open the extents one after the other.

        Raises OSError for a file that can't be opened, Gone for a different extent, BlockError for a bad block.
        """
        for extent in self._extents:
            segment = _OpenedExtent(os.open(extent.path, _FLAGS), self.identity, extent)
            low, high = max(start, extent.start), extent.stop if stop is None else min(stop, extent.stop)
            if low < high:
                for block in segment.blocks(low, high, verify=verify):
                    yield LocatedBlock(block, segment)


class _OpenedExtent(MappedSegment):
    """An extent whose first offset and queues are known, so that its file need not be read to find them."""

    def __init__(self, file: int, identity: int, extent: SharedExtent) -> None:
        super().__init__(file, extent.name)
        if (self.header.identity, self.header.checksum) != (identity, extent.checksum):
            raise Gone(f"{extent.path} is not the extent {extent.name}")
        self._extent = extent

    @override
    def offset_of(self, position: int, limit: int) -> int:
        extent = self._extent
        return extent.offset if position == extent.start else super().offset_of(position, limit)

    @override
    def name_of(self, number: int, limit: int) -> QueueName | None:
        """None for a queue that is not selected."""
        return self._extent.names.get(number)
