"""A segment file as another process reads it: mapped, never written, never read past the committed blocks.

The mapping is safe although the writer truncates the file when it finishes it: it only cuts bytes after the committed
blocks, which are never touched. A trimmed segment stays readable while it is mapped.
"""

from __future__ import annotations

import mmap
import os
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from threading import Lock

from typing_extensions import override

from penstock.journal.contract import HeldExtent, SharedExtent
from penstock.journal.files.disk import RealFile
from penstock.journal.files.segment_reader import read_footer
from penstock.journal.format.block import HEADER_SIZE as BLOCK_HEADER_SIZE
from penstock.journal.format.block import Block, BlockError, BlockHeader, check_body, parse_header
from penstock.journal.format.catalogue import QueueName, SegmentCatalogue
from penstock.journal.format.checksum import crc32
from penstock.journal.format.mentions import mentions
from penstock.journal.format.segment import HEADER_SIZE, Footer, SegmentHeader, SparseIndex
from penstock.schema import COLUMN

#: Bytes searched at a time for a message. Above WORTH_SCANNING bytes per event, going from header to header is faster.
SCANNED_AT_ONCE = 4 * 2**20
WORTH_SCANNING = 4096
_DETAIL = 1 << COLUMN["detail"].id


class MappedSegment(HeldExtent):
    """One mapped segment."""

    def __init__(self, file: int, name: str, verified: Verified | None = None) -> None:
        """Takes over the descriptor ``file``. ``verified`` records which of its bytes have been verified already.

        Raises BlockError without a valid header.
        """
        self.name = name
        self._file = file
        self._view = memoryview(b"")
        self._lock = Lock()
        self._catalogue = SegmentCatalogue()
        self._index: SparseIndex | None = None  # read from the file, once it is finished
        self._walked = SparseIndex()  # built from the headers up to _walked_to
        self._walked_to = HEADER_SIZE
        self._walked_position = 0
        self._verified = verified or Verified()
        self.header, self.footer = read_ends(self._file)
        self.first = self._walked_position = self.header.first

    def __repr__(self) -> str:
        return f"<MappedSegment {self.name}>"

    @property
    def descriptor(self) -> int:
        """The file's descriptor, valid while this object exists."""
        return self._file

    @override
    def blocks(self, start: int, stop: int, *, verify: bool = True) -> Iterator[Block]:
        offset = self.offset_of(max(start, self.first), stop)
        before: BlockHeader | None = None
        run = _Run(self._verified)
        try:
            while before is None or before.end < stop:
                header = self._header(offset)
                _check_order(before, header, offset)
                if header.end > start:
                    if header.first >= stop:
                        return
                    yield self._block(header, offset, verify=verify and not run.knows(offset, header.length))
                    if verify:
                        run.add(offset, header.length)
                offset += header.length
                before = header
        finally:
            run.end()

    @override
    def mentions(self, message: int, start: int, stop: int) -> Iterator[Block]:
        positions, offsets = self.marks(stop)
        low = max(bisect_right(positions, start) - 1, 0)
        high = bisect_left(positions, stop)
        if offsets[min(high, len(offsets) - 1)] - offsets[low] > WORTH_SCANNING * (stop - start):
            yield from self.blocks(start, stop, verify=False)
            return
        while low < min(high, len(offsets) - 1):
            following = max(bisect_right(offsets, offsets[low] + SCANNED_AT_ONCE) - 1, low + 1)
            for offset in mentions(self._see(offsets[following]), offsets[low], offsets[following], message):
                header = self._header(offset)
                if header.first < stop and header.end > start:
                    yield self._block(header, offset, verify=False)
            low = following

    def offset_of(self, position: int, limit: int) -> int:
        """The offset of a block at or shortly before the one with the position."""
        if position == self.first:
            return HEADER_SIZE
        index = self._index_up_to(min(position + 1, limit))
        return index.offsets[index.find(position)] if index.offsets else HEADER_SIZE

    def position_before(self, time: int, limit: int) -> int:
        """A position before which all events are earlier than a time, unless the clock was set back."""
        index = self._index_up_to(limit)
        entry = bisect_left(index.offsets, time, key=lambda offset: self._header(offset).base) - 1
        return index.positions[entry] if entry >= 0 else self.first

    @override
    def marks(self, limit: int) -> tuple[list[int], list[int]]:
        index = self._index_up_to(limit)
        with self._lock:
            end = (self._walked_position, self._walked_to)
            if self.footer is not None:
                end = (self.footer.end, self.footer.blocks_end)
            return [*index.positions, end[0]], [*index.offsets, end[1]]

    @override
    def name_of(self, number: int, limit: int) -> QueueName | None:
        name = self._catalogue.names.get(number)
        if name is None:
            with self._lock:
                self._walk(limit)
            name = self._catalogue.names.get(number)
        return name

    @override
    def catalogue(self, limit: int) -> SegmentCatalogue:
        with self._lock:
            self._walk(limit)
        return self._catalogue

    def share(self, path: str, start: int, stop: int, wanted: Callable[[QueueName], bool] | None) -> SharedExtent:
        """How another process reads a range of it. ``path`` is where that process finds the file."""
        names = dict(self.catalogue(stop).names)
        return SharedExtent(
            path=path,
            name=self.name,
            checksum=self.header.checksum,
            start=start,
            stop=stop,
            offset=self.offset_of(start, stop),
            names={number: name for number, name in names.items() if wanted is None or wanted(name)},
        )

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)  # here, because another thread may still read. Blocks that were read stay valid

    # Helpers

    def _index_up_to(self, limit: int) -> SparseIndex:
        with self._lock:
            if self.footer is not None:
                self._index = self._index or self._stored_index(self.footer)
                return self._index
            self._walk(limit)
            return self._walked

    def _stored_index(self, footer: Footer) -> SparseIndex:
        stop = footer.blocks_end + 16 * footer.entries
        raw = bytes(self._see(stop)[footer.blocks_end : stop])
        if crc32(raw) == footer.index_crc:
            return SparseIndex.decode(raw)
        self._walk(footer.end)
        return self._walked

    def _walk(self, limit: int) -> None:
        """Read headers up to a position, for the index and the names. Most bodies are skipped."""
        if self.footer is not None:
            limit = min(limit, self.footer.end)
        while self._walked_position < limit:
            offset = self._walked_to
            header = self._header(offset)
            if header.present & _DETAIL:  # only such blocks contain rows about queues
                self._catalogue.feed(self._block(header, offset, verify=True))
            self._walked.add(header.first, offset)
            self._walked_to, self._walked_position = offset + header.length, header.end

    def _header(self, offset: int) -> BlockHeader:
        return parse_header(self._see(offset + BLOCK_HEADER_SIZE), offset, offset)

    def _block(self, header: BlockHeader, offset: int, *, verify: bool) -> Block:
        data = self._see(offset + header.length)
        return Block(header, check_body(header, data, offset, offset, verify=verify), offset)

    def _see(self, size: int) -> memoryview:
        """The bytes of the file, mapped again if it has grown and more are needed."""
        view = self._view
        if size > len(view) and os.fstat(self._file).st_size > len(view):
            # Map the current length: the writer may truncate the file between fstat and mmap.
            view = self._view = memoryview(mmap.mmap(self._file, 0, access=mmap.ACCESS_READ))
        return view


class Verified:
    """The bytes of a file whose checksums were verified. Once is enough, as checksums are most of the cost of a scan.

    This holds for a growing file too: committed blocks are never overwritten. A start may truncate the file after an
    unclean stop, but continues in another file.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: list[tuple[int, int]] = []

    def covers(self, start: int, stop: int) -> bool:
        """Whether all of these bytes were verified."""
        at = bisect_right(self._runs, (start, sys.maxsize)) - 1
        return at >= 0 and self._runs[at][1] >= stop

    def add(self, start: int, stop: int) -> None:
        """Add a range."""
        with self._lock:
            runs = sorted([*self._runs, (start, stop)])
            joined = runs[:1]
            for low, high in runs[1:]:
                if low <= joined[-1][1]:
                    joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
                else:
                    joined.append((low, high))
            self._runs = joined


class _Run:
    """The contiguous bytes that one reader has verified."""

    def __init__(self, verified: Verified) -> None:
        self._verified = verified
        self._start = self._stop = 0

    def knows(self, offset: int, length: int) -> bool:
        return self._verified.covers(offset, offset + length)

    def add(self, offset: int, length: int) -> None:
        if offset != self._stop:
            self.end()
            self._start = offset
        self._stop = offset + length

    def end(self) -> None:
        if self._start < self._stop:
            self._verified.add(self._start, self._stop)
        self._start = self._stop = 0


def read_ends(file: int) -> tuple[SegmentHeader, Footer | None]:
    """Header and footer of a segment file; no footer while it grows. Raises BlockError for an invalid header."""
    header = SegmentHeader.decode(os.pread(file, HEADER_SIZE, 0))
    if header is None:
        raise BlockError(0, "the segment's header is unreadable")
    return header, read_footer(RealFile(file), header.first)


def _check_order(before: BlockHeader | None, header: BlockHeader, offset: int) -> None:
    if before is not None and header.first != before.end:
        raise BlockError(offset, f"it starts at position {header.first}, expected {before.end}")
    if before is not None and header.previous != before.crc:
        raise BlockError(offset, "it does not continue the block before it")
