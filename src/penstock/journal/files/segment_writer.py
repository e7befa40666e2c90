"""Writing the newest segment: the one file that grows.

Space is allocated before it is written, including room for the index and the footer. So a full disk is noticed before a
block is begun, and a segment can always be finished.

If each commit is synced, small ones also write zeros ahead: writing to merely allocated space changes metadata, and
syncing that takes longer than a small commit itself.
"""

from __future__ import annotations

import contextlib
from typing import Final

from penstock.journal.contract import Durability
from penstock.journal.errors import LogFull, is_full
from penstock.journal.files.disk import Disk, File, write_all
from penstock.journal.files.space import DiskSpace
from penstock.journal.format.block import Batch
from penstock.journal.format.encoding import encode
from penstock.journal.format.segment import FOOTER_SIZE, HEADER_SIZE, Segment, SegmentHeader

#: Blocks up to SMALL bytes are small. One of many of these writes AHEAD bytes of zeros after itself.
SMALL: Final = 16 * 1024
AHEAD: Final = 256 * 1024


class SegmentWriter:
    """Appends blocks to a new segment. Unusable after any OSError; after LogFull the same append may be retried."""

    def __init__(self, disk: Disk, header: SegmentHeader, space: DiskSpace) -> None:
        """Create the file. It and its name are on disk on return."""
        self.segment = Segment(header)
        self._space = space
        self._reserved = HEADER_SIZE
        self._file: File = space.spend(lambda: disk.create(self.segment.name), HEADER_SIZE)
        try:
            space.spend(lambda: write_all(self._file, [header.encode()], 0), HEADER_SIZE)
            self._reserve_up_to(HEADER_SIZE)
            self._file.sync()
            disk.sync()
        except (OSError, LogFull):
            self._file.close()
            with contextlib.suppress(OSError):
                disk.unlink(self.segment.name)
            raise
        #: The end of the zeros written ahead.
        self._zeros_end = 0
        self._writes_zeros = header.durability is Durability.COMMIT and disk.syncs
        #: Whether every block written so far is on disk.
        self.synced = True

    def append(self, batch: Batch, epoch: int) -> None:
        """Write one block, without syncing it."""
        segment = self.segment
        block = encode(batch, epoch, segment.chain, synced=self.synced)
        offset, length, parts = segment.blocks_end, block.length, block.parts
        self._reserve_up_to(offset + length)
        if not (self._writes_zeros and length <= SMALL and self._write_with_zeros(parts, offset, offset + length)):
            # A retry after a full disk overwrites what the failed write has left.
            self._space.spend(lambda: write_all(self._file, parts, offset), length)
        self.synced = False
        segment.note(block.first, block.end, length, block.base, block.crc)

    def _write_with_zeros(self, parts: list[bytes], offset: int, end: int) -> bool:
        """Write a small block and zeros after it. False: there are enough zeros, or no room for them."""
        if end <= self._zeros_end:
            return False
        zeros_end = min(end + AHEAD, self._reserved)
        try:
            write_all(self._file, [*parts, bytes(zeros_end - end)], offset)
        except OSError as error:
            if not is_full(error):
                raise
            self._writes_zeros = False  # the file system did not keep the allocated space
            return False
        self._zeros_end = zeros_end
        return True

    def sync(self) -> None:
        """Sync the blocks."""
        if not self.synced:
            self._file.sync()
            self.synced = True

    def finish(self) -> None:
        """Append index and footer, cut the allocated rest, and close the file."""
        self.sync()  # before the footer: a segment that has one has all its blocks
        finish(self._file, self.segment, clean=True, space=self._space)
        self._file.close()

    def close(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def _reserve_up_to(self, end: int) -> None:
        """Allocate space for blocks up to an offset, index and footer, and some more if there is room."""
        assert self.segment.index is not None
        needed = end + 16 * (len(self.segment.index.offsets) + 1) + FOOTER_SIZE
        if needed <= self._reserved:
            return
        wanted = needed + self._space.step
        try:
            self._file.allocate(wanted)
        except OSError as error:
            if not is_full(error):
                raise
            wanted = needed
            self._space.spend(lambda: self._file.allocate(wanted), wanted - self._reserved)
        self._space.taken(wanted - self._reserved)
        self._reserved = wanted


def finish(file: File, segment: Segment, *, clean: bool, space: DiskSpace | None = None) -> None:
    """Append index and footer and sync the file. With ``space`` it may be retried after LogFull."""
    index, footer = segment.footer(clean=clean)

    def write() -> int:
        return write_all(file, [index, footer.encode()], segment.blocks_end)

    file.truncate(write() if space is None else space.spend(write, FOOTER_SIZE))
    file.sync()
    segment.finish(footer)
