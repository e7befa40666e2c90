"""Writing a segment file from existing blocks, byte for byte as their writer did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.journal.files.disk import File, write_all
from penstock.journal.format.checksum import crc32
from penstock.journal.format.segment import HEADER_SIZE, Footer, SparseIndex


class SegmentSums(NamedTuple):
    """A footer's facts about a segment's blocks."""

    flags: int
    first: int
    end: int
    last_at: int
    chain: int
    blocks: int


class SegmentAssembly:
    """One file, written from its header on. ``size`` and ``end`` are the bytes so far, and the position after them."""

    def __init__(self, file: File, header: bytes, first: int) -> None:
        """Raises OSError."""
        self._file = file
        self._index = SparseIndex()
        self.size = HEADER_SIZE
        self.end = first
        write_all(file, [header], 0)

    def add(self, blocks: Sequence[tuple[int, int, bytes]]) -> None:
        """Append blocks, each given by its first position, its end, and its bytes. Raises OSError."""
        write_all(self._file, [data for _, _, data in blocks], self.size)
        for first, end, data in blocks:
            self._index.add(first, self.size)
            self.size += len(data)
            self.end = end

    def finish(self, sums: SegmentSums) -> None:
        """Append index and footer. Raises OSError."""
        index = self._index.encode()
        footer = Footer(
            flags=sums.flags,
            first=sums.first,
            end=sums.end,
            last_at=sums.last_at,
            blocks_end=self.size,
            entries=len(self._index.offsets),
            chain=sums.chain,
            blocks=sums.blocks,
            index_crc=crc32(index),
        )
        write_all(self._file, [index, footer.encode()], self.size)
