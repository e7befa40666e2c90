"""Writing the newest segment: the one file that grows."""

from __future__ import annotations

from penstock.journal.block import Batch, encode, parse_header
from penstock.journal.disk import Disk, File, write_all
from penstock.journal.segment import HEADER_SIZE, Footer, Segment, SegmentHeader

#: Space is reserved ahead in such steps: `fdatasync` takes about two thirds of the time when the size stays the same.
RESERVE = 4 * 1024 * 1024
#: An unfinished segment ends in at least this many zeros; see `segment`.
ZEROS = 8


class SegmentWriter:
    """Appends blocks to a new segment. Any OSError leaves it unusable: the caller must not go on after one."""

    def __init__(self, disk: Disk, header: SegmentHeader, reserve: int = RESERVE) -> None:
        """The file and its name are on disk before the first block is written."""
        self.segment = Segment(header)
        self._reserve = reserve
        self._reserved = HEADER_SIZE + reserve
        self._file: File = disk.create(self.segment.name)
        try:
            write_all(self._file, [header.encode()], 0)
            self._file.allocate(self._reserved)
            self._file.sync()
            disk.sync()
        except OSError:
            self._file.close()
            raise
        #: Whether every block written so far is on disk.
        self.synced = True

    def append(self, batch: Batch, epoch: int) -> None:
        """Write one block. It is not synced yet."""
        segment = self.segment
        parts = encode(batch, epoch, segment.chain, synced=self.synced)
        offset, length = segment.blocks_end, sum(map(len, parts))
        if offset + length + ZEROS > self._reserved:
            self._reserved = offset + length + self._reserve
            self._file.allocate(self._reserved)
        self.synced = False
        write_all(self._file, parts, offset)
        segment.add(parse_header(parts[0]))

    def sync(self) -> None:
        """Put the blocks on disk."""
        if not self.synced:
            self._file.sync()
            self.synced = True

    def finish(self) -> None:
        """Add index and footer, cut what was reserved, and close the file."""
        self.sync()  # before the footer: a segment that has one has all its blocks
        finish(self._file, self.segment, clean=True)
        self._file.close()

    def close(self) -> None:
        """Close the file as it is."""
        self._file.close()


def finish(file: File, segment: Segment, *, clean: bool) -> None:
    """Put index and footer behind the blocks, and sync it all."""
    index, raw = segment.footer(clean=clean)
    size = write_all(file, [index, raw], segment.blocks_end)
    file.truncate(size)
    file.sync()
    footer = Footer.decode(raw)
    assert footer is not None
    segment.finish(footer)
