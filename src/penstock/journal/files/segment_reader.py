"""Reading blocks of a segment file, in order or by position, and finding the next valid one after a bad one."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing
from operator import attrgetter
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

from typing_extensions import override

from penstock.journal.files.disk import Disk, File
from penstock.journal.format.block import (
    HEADER_SIZE,
    MAGIC,
    Block,
    BlockError,
    BlockHeader,
    check_body,
    parse,
    parse_header,
)
from penstock.journal.format.checksum import crc32
from penstock.journal.format.segment import FOOTER_SIZE, Footer, Segment, SparseIndex
from penstock.journal.format.segment import HEADER_SIZE as SEGMENT_HEADER_SIZE

#: Bytes read at a time: enough to make calls cheap, few enough to stay in the CPU's cache.
WINDOW = 1024 * 1024
#: How many indexes of finished segments are cached, and how many bytes of blocks.
KEPT_INDEXES = 64
KEPT_BYTES = 16 * 1024 * 1024
#: The most bytes that the event loop reads itself, if they are in the page cache.
MOST_AT_ONCE = 256 * 1024


T = TypeVar("T")


def while_open(open_file: Callable[[], File], steps: Callable[[File], Iterator[T]]) -> Iterator[T]:
    """Read from a file, and close it at the end, even if the consumer stops early.

    This module is not compiled: a compiled generator that is dropped does not run its ``finally``.
    """
    with closing(open_file()) as file:
        yield from steps(file)


class Readable(Protocol):
    """A source of blocks."""

    def read(self, size: int, offset: int) -> bytes:
        """As ``File.read``."""


def read_blocks(
    file: Readable, start: int, stop: int, position: int | None = None, chain: int | None = None, *, verify: bool = True
) -> Iterator[Block]:
    """The blocks between two offsets. Raises BlockError at the first that is invalid or out of order.

    ``position`` and ``chain`` are the position and the checksum that the first block must continue, if known.
    """
    for header, view, offset in walk(file, start, stop, position, chain, verify=verify):
        yield Block(header, view, offset)


def walk(
    file: Readable, start: int, stop: int, position: int | None = None, chain: int | None = None, *, verify: bool = True
) -> Iterator[tuple[BlockHeader, memoryview, int]]:
    """As ``read_blocks``, but without decoding the blocks: header, bytes and offset of each."""
    data, base, at = b"", start, start
    while at < stop:
        if len(data) - (at - base) < HEADER_SIZE:
            data, base = file.read(min(WINDOW, stop - at), at), at
        header = parse_header(data, at - base, at)
        if header.length > len(data) - (at - base):
            data, base = file.read(min(max(WINDOW, header.length), stop - at), at), at
        if position is not None and header.first != position:
            raise BlockError(at, f"it starts at position {header.first}, expected {position}")
        if chain is not None and header.previous != chain:
            raise BlockError(at, "it does not continue the block before it")
        yield header, check_body(header, data, at - base, at, verify=verify), at
        at += header.length
        position, chain = header.first + header.events, header.crc


class BadBlocks(NamedTuple):
    """Damaged bytes: their offset, the positions lost by them (end excluded), and the reason."""

    offset: int
    first: int
    end: int
    reason: str


class DamagedBlock(BlockError):
    """The block with a position is damaged. ``lost`` is its range of positions, end excluded."""

    def __init__(self, bad: BadBlocks) -> None:
        super().__init__(bad.offset, bad.reason)
        self.lost = (bad.first, bad.end)


def scan(
    file: File, start: int, stop: int, first: int, end: int, *, verify: bool = True
) -> Iterator[tuple[Block | None, BadBlocks | None]]:
    """The blocks between two offsets, with the positions from ``first`` to ``end``, and the damage among them.

    After a bad block it continues with the next valid one, so one flipped bit costs only its block.
    """
    at, position = start, first
    while at < stop:
        try:
            for block in read_blocks(file, at, stop, position, verify=verify):
                yield block, None
                at, position = block.offset + block.header.length, block.end
        except BlockError as error:
            following = next_valid(file, at, position, stop=stop)
            if following is None or (following.offset, following.first) == (at, position):
                yield None, BadBlocks(at, position, max(end, position), error.reason)
                return
            yield None, BadBlocks(at, position, following.first, error.reason)
            at, position = following.offset, following.first


def next_valid(file: File, start: int, position: int, flags: int = 0, stop: int | None = None) -> Block | None:
    """The first valid block at or after an offset that begins at or after a position and has all of these flags.

    With ``stop`` it must end before or at that offset.
    """
    size, base = file.size() if stop is None else min(stop, file.size()), start
    while base < size:
        data = file.read(min(WINDOW, size - base), base)
        at = data.find(MAGIC)
        while at >= 0:
            found = _valid_at(file, base + at)
            if found is not None and found.offset + found.header.length > size:
                found = None
            if found is not None and found.first >= position and found.header.flags & flags == flags:
                return found
            at = data.find(MAGIC, at + 1)
        base += max(len(data) - len(MAGIC) + 1, 1)
    return None


def _valid_at(file: File, offset: int) -> Block | None:
    if offset % 8:
        return None
    try:
        header = parse_header(file.read(HEADER_SIZE, offset))
        return parse(file.read(header.length, offset), 0, offset)
    except BlockError:
        return None


def only_zeros(file: File, start: int) -> bool:
    """Whether the file has only zeros from an offset on."""
    windows = (file.read(WINDOW, at) for at in range(start, file.size(), WINDOW))
    return all(data == bytes(len(data)) for data in windows)


#: The blocks between two entries of an index, by file and offsets; and the blocks and damage read there.
_Key = tuple[str, int, int]
_Stretch = tuple[list[Block], list[BadBlocks]]


class Locator:
    """Finds the block with a position through sparse indexes, and caches the latest of both.

    Files are read outside of the lock, because the event loop takes it and must not wait for a disk.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = Lock()
        self._indexes: OrderedDict[str, SparseIndex] = OrderedDict()
        self._stretches: OrderedDict[_Key, _Stretch] = OrderedDict()
        self._kept = 0
        #: The file that was read last, and its name.
        self._file: tuple[str, File] | None = None
        #: Whether a block was used since the last ``forget_unused``.
        self._used = False

    def find(self, segment: Segment, position: int) -> Block | None:
        """The block of this segment with the position. Raises DamagedBlock if it is damaged."""
        index = self._index(segment)
        key = (segment.name, *index.stretch(index.find(position), segment.blocks_end))
        found = self._cached(key)
        if found is None:
            found = self._read(segment, index, position, key)
            self._keep(key, found)
        block = _block_of(found, position)
        if block is not None:
            return block
        for each in found[1]:
            if each.first <= position < each.end:
                raise DamagedBlock(each)
        return None

    def resident(self, segment: Segment, position: int) -> Block | None:
        """The same block, if it is cached."""
        index = segment.index or self._indexes.get(segment.name)
        if index is None:
            return None
        found = self._cached((segment.name, *index.stretch(index.find(position), segment.blocks_end)))
        return None if found is None else _block_of(found, position)

    def at_once(self, segment: Segment, position: int) -> Block | None:
        """The same block, if it is cached, or small and in the page cache."""
        index = segment.index or self._indexes.get(segment.name)
        if index is None:
            return None
        key = (segment.name, *index.stretch(index.find(position), segment.blocks_end))
        found = self._cached(key)
        if found is None:
            data = self._read_now(key)
            found = None if data is None else _blocks_of(data, key[1])
            if found is None:
                return None
            self._keep(key, found)
        return _block_of(found, position)

    def _read_now(self, key: _Key) -> bytes | None:
        name, start, stop = key
        with self._lock:
            if self._file is None or self._file[0] != name or stop - start > MOST_AT_ONCE:
                return None
            return self._file[1].read_now(stop - start, start)

    def close(self) -> None:
        """Close the file that was read last."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file[1].close()

    def offset(self, segment: Segment, position: int) -> int:
        """The offset of a block at or shortly before the one with the position."""
        index = self._index(segment)
        return index.stretch(index.find(position), segment.blocks_end)[0]

    def forget(self, segment: Segment) -> None:
        """Drop everything cached of a removed segment."""
        with self._lock:
            self._indexes.pop(segment.name, None)
            for key in [key for key in self._stretches if key[0] == segment.name]:
                self._drop(key)
        self.close()

    def forget_damage(self) -> None:
        """Read damaged places again when they are needed: the file may have been replaced."""
        with self._lock:
            damaged = {key for key, (_, bad) in self._stretches.items() if bad}
            for key in damaged:
                self._drop(key)
            for name in {key[0] for key in damaged}:
                self._indexes.pop(name, None)

    def forget_unused(self) -> bool:
        """As ``Log.forget_unused``."""
        with self._lock:
            unused = bool(self._stretches) and not self._used
            if unused:
                self._stretches.clear()
                self._kept = 0
            self._used = False
        if unused:
            self.close()
        return unused

    def _cached(self, key: _Key) -> _Stretch | None:
        with self._lock:
            self._used = True
            found = self._stretches.get(key)
            if found is not None:
                self._stretches.move_to_end(key)
            return found

    def _keep(self, key: _Key, found: _Stretch) -> None:
        with self._lock:
            if key not in self._stretches:
                self._stretches[key] = found
                self._kept += key[2] - key[1]
            while self._kept > KEPT_BYTES and len(self._stretches) > 1:
                self._drop(next(iter(self._stretches)))

    def _read(self, segment: Segment, index: SparseIndex, position: int, key: _Key) -> _Stretch:
        entry = index.find(position)
        first = index.positions[entry] if index.positions else segment.first
        end = index.positions[entry + 1] if entry + 1 < len(index.positions) else segment.end
        file = self._disk.open(segment.name)
        try:
            parts = list(scan(file, key[1], key[2], first, end))
        except BaseException:
            file.close()
            raise
        self.close()
        with self._lock:
            self._file = segment.name, file
        return [block for block, _ in parts if block is not None], [bad for _, bad in parts if bad is not None]

    def _drop(self, key: _Key) -> None:
        del self._stretches[key]
        self._kept -= key[2] - key[1]

    def _index(self, segment: Segment) -> SparseIndex:
        if segment.index is not None:
            return segment.index
        with self._lock:
            index = self._indexes.get(segment.name)
        if index is None:
            with closing(self._disk.open(segment.name)) as file:
                index = read_index(file, segment)
        with self._lock:
            self._indexes[segment.name] = index
            self._indexes.move_to_end(segment.name)
            if len(self._indexes) > KEPT_INDEXES:
                self._indexes.popitem(last=False)
        return index


class _Bytes(Readable):
    """A part of a file that is in memory."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._start = start

    @override
    def read(self, size: int, offset: int) -> bytes:
        return self._data[offset - self._start : offset - self._start + size]


def _blocks_of(data: bytes, start: int) -> _Stretch | None:
    """The blocks in these bytes; None if one is invalid: reading the file will report it."""
    try:
        return list(read_blocks(_Bytes(data, start), start, start + len(data))), []
    except BlockError:
        return None


def _block_of(stretch: _Stretch, position: int) -> Block | None:
    blocks = stretch[0]
    at = bisect_right(blocks, position, key=attrgetter("first")) - 1
    return blocks[at] if at >= 0 and position < blocks[at].end else None


def read_footer(file: File, first: int) -> Footer | None:
    """The footer of the segment that begins at a position, if the file ends with a matching one."""
    size = file.size()
    footer = Footer.decode(file.read(FOOTER_SIZE, size - FOOTER_SIZE)) if size > FOOTER_SIZE else None
    if footer is None or footer.first != first or footer.file_size != size:
        return None
    return footer


def read_index(file: File, segment: Segment) -> SparseIndex:
    """The index of a finished segment, rebuilt from its blocks if the one in the file is damaged."""
    footer = read_footer(file, segment.first)
    if footer is not None:
        raw = file.read(16 * footer.entries, footer.blocks_end)
        if len(raw) == 16 * footer.entries and crc32(raw) == footer.index_crc:
            return SparseIndex.decode(raw)
    index = SparseIndex()
    start, stop = SEGMENT_HEADER_SIZE, segment.blocks_end
    for block, bad in scan(file, start, stop, segment.first, segment.end, verify=False):
        if block is not None:
            index.add(block.first, block.offset)
        elif bad is not None:  # it has an entry too, so that a look-up of a lost position reports it
            index.add(bad.first, bad.offset)
    return index
