"""Reading blocks out of a segment file, in order or by position, and finding the next sound one after a bad one."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from operator import attrgetter
from threading import Lock

from penstock.journal.block import HEADER_SIZE, MAGIC, Block, BlockError, Header, check_body, parse, parse_header
from penstock.journal.checksum import crc32
from penstock.journal.disk import Disk, File
from penstock.journal.segment import FOOTER_SIZE, Footer, Segment, SparseIndex
from penstock.journal.segment import HEADER_SIZE as SEGMENT_HEADER_SIZE

#: How much is read at a time: enough to make the calls cheap, little enough to stay in the processor's cache.
WINDOW = 1024 * 1024
#: How many indexes of finished segments are kept, and how many bytes of blocks that single messages were taken from.
KEPT_INDEXES = 64
KEPT_BYTES = 16 * 1024 * 1024


def read_blocks(
    file: File, start: int, stop: int, position: int | None = None, chain: int | None = None, *, verify: bool = True
) -> Iterator[Block]:
    """The blocks between two offsets. Raises BlockError at the first that is unsound or out of place.

    ``position`` and ``chain`` are what the first block must continue; None where that is not known.
    """
    for header, view, offset in walk(file, start, stop, position, chain, verify=verify):
        yield Block(header, view, offset)


def walk(
    file: File, start: int, stop: int, position: int | None = None, chain: int | None = None, *, verify: bool = True
) -> Iterator[tuple[Header, memoryview, int]]:
    """As ``read_blocks``, but without looking into the blocks: header, bytes and offset of each."""
    data, base, at = b"", start, start
    while at < stop:
        if len(data) - (at - base) < HEADER_SIZE:
            data, base = file.read(min(WINDOW, stop - at), at), at
        header = parse_header(data, at - base, at)
        if header.length > len(data) - (at - base):
            data, base = file.read(min(max(WINDOW, header.length), stop - at), at), at
        if position is not None and header.first != position:
            raise BlockError(at, f"it starts at position {header.first} where {position} must follow")
        if chain is not None and header.previous != chain:
            raise BlockError(at, "it does not continue the block before it")
        yield header, check_body(header, data, at - base, at, verify=verify), at
        at += header.length
        position, chain = header.first + header.events, header.crc


def next_sound(file: File, start: int, position: int, flags: int = 0) -> Block | None:
    """The first sound block at or after an offset that lies beyond a position and has all of these flags."""
    size, base = file.size(), start
    while base < size:
        data = file.read(WINDOW, base)
        at = data.find(MAGIC)
        while at >= 0:
            found = _sound_at(file, base + at)
            if found is not None and found.first >= position and found.header.flags & flags == flags:
                return found
            at = data.find(MAGIC, at + 1)
        base += max(len(data) - len(MAGIC) + 1, 1)
    return None


def _sound_at(file: File, offset: int) -> Block | None:
    if offset % 8:
        return None
    try:
        header = parse_header(file.read(HEADER_SIZE, offset))
        return parse(file.read(header.length, offset), 0, offset)
    except BlockError:
        return None


def only_zeros(file: File, start: int) -> bool:
    """Whether nothing was written from an offset on."""
    windows = (file.read(WINDOW, at) for at in range(start, file.size(), WINDOW))
    return all(data == bytes(len(data)) for data in windows)


class Locator:
    """Finds the block that has a position, by way of the sparse indexes. Keeps the latest few of both."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = Lock()
        self._indexes: OrderedDict[str, SparseIndex] = OrderedDict()
        self._stretches: OrderedDict[tuple[str, int, int], list[Block]] = OrderedDict()
        self._kept = 0

    def find(self, segment: Segment, position: int) -> Block | None:
        """The block of this segment that has the position. Raises BlockError where it is unsound."""
        with self._lock:
            blocks = self._blocks(segment, *self._stretch(segment, position))
        at = bisect_right(blocks, position, key=attrgetter("first")) - 1
        return blocks[at] if at >= 0 and position < blocks[at].end else None

    def offset(self, segment: Segment, position: int) -> int:
        """An offset at which a block starts, at or a little before the one that has the position."""
        with self._lock:
            return self._stretch(segment, position)[0]

    def _stretch(self, segment: Segment, position: int) -> tuple[int, int]:
        index = segment.index or self._index(segment)
        return index.stretch(index.find(position), segment.blocks_end)

    def forget(self, segment: Segment) -> None:
        """The segment is gone."""
        with self._lock:
            self._indexes.pop(segment.name, None)
            for key in [key for key in self._stretches if key[0] == segment.name]:
                self._drop(key)

    def _blocks(self, segment: Segment, start: int, stop: int) -> list[Block]:
        key = (segment.name, start, stop)
        blocks = self._stretches.get(key)
        if blocks is None:
            file = self._disk.open(segment.name)
            try:
                blocks = list(read_blocks(file, start, stop))
            finally:
                file.close()
            self._stretches[key] = blocks
            self._kept += stop - start
            while self._kept > KEPT_BYTES and len(self._stretches) > 1:
                self._drop(next(iter(self._stretches)))
        self._stretches.move_to_end(key)
        return blocks

    def _drop(self, key: tuple[str, int, int]) -> None:
        del self._stretches[key]
        self._kept -= key[2] - key[1]

    def _index(self, segment: Segment) -> SparseIndex:
        index = self._indexes.get(segment.name)
        if index is None:
            file = self._disk.open(segment.name)
            try:
                index = read_index(file, segment)
            finally:
                file.close()
            self._indexes[segment.name] = index
            if len(self._indexes) > KEPT_INDEXES:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(segment.name)
        return index


def read_footer(file: File, first: int) -> Footer | None:
    """The footer of the segment that starts at a position, if the file ends in one that fits it."""
    size = file.size()
    footer = Footer.decode(file.read(FOOTER_SIZE, size - FOOTER_SIZE)) if size > FOOTER_SIZE else None
    if footer is None or footer.first != first or footer.file_size != size:
        return None
    return footer


def read_index(file: File, segment: Segment) -> SparseIndex:
    """The index in a finished segment, or a new one made from its blocks if the one in the file is damaged."""
    footer = read_footer(file, segment.first)
    if footer is not None:
        raw = file.read(16 * footer.entries, footer.blocks_end)
        if len(raw) == 16 * footer.entries and crc32(raw) == footer.index_crc:
            return SparseIndex.decode(raw)
    index = SparseIndex()
    for header, _, offset in walk(file, SEGMENT_HEADER_SIZE, segment.blocks_end, segment.first, verify=False):
        index.add(header.first, offset)
    return index
