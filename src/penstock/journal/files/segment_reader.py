"""Reading blocks out of a segment file, in order or by position, and finding the next sound one after a bad one."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
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

#: How much is read at a time: enough to make the calls cheap, little enough to stay in the processor's cache.
WINDOW = 1024 * 1024
#: How many indexes of finished segments are kept, and how many bytes of blocks that single messages were taken from.
KEPT_INDEXES = 64
KEPT_BYTES = 16 * 1024 * 1024
#: The longest stretch of blocks that the event loop reads itself, where the system has it in memory.
MOST_AT_ONCE = 256 * 1024


T = TypeVar("T")


def while_open(open_file: Callable[[], File], steps: Callable[[File], Iterator[T]]) -> Iterator[T]:
    """What is read of a file, which is closed when that ends, however early somebody stops taking from it.

    This module is not compiled: a compiled generator that is dropped does not get to its ``finally``.
    """
    file = open_file()
    try:
        yield from steps(file)
    finally:
        file.close()


class Readable(Protocol):
    """What blocks are read from."""

    def read(self, size: int, offset: int) -> bytes:
        """See File."""


def read_blocks(
    file: Readable, start: int, stop: int, position: int | None = None, chain: int | None = None, *, verify: bool = True
) -> Iterator[Block]:
    """The blocks between two offsets. Raises BlockError at the first that is unsound or out of place.

    ``position`` and ``chain`` are what the first block must continue; None where that is not known.
    """
    for header, view, offset in walk(file, start, stop, position, chain, verify=verify):
        yield Block(header, view, offset)


def walk(
    file: Readable, start: int, stop: int, position: int | None = None, chain: int | None = None, *, verify: bool = True
) -> Iterator[tuple[BlockHeader, memoryview, int]]:
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


class BadBlocks(NamedTuple):
    """Bytes that are no sound blocks: where they begin, the positions that are lost by it (end excluded), and why."""

    offset: int
    first: int
    end: int
    reason: str


class Unsound(BlockError):
    """A block that was asked for is damaged. ``lost`` is the range of positions, end excluded."""

    def __init__(self, bad: BadBlocks) -> None:
        super().__init__(bad.offset, bad.reason)
        self.lost = (bad.first, bad.end)


def scan(
    file: File, start: int, stop: int, first: int, end: int, *, verify: bool = True
) -> Iterator[tuple[Block | None, BadBlocks | None]]:
    """The blocks between two offsets, which have the positions from ``first`` to ``end``; and what is bad among them.

    After a bad one it goes on with the next that is sound, so one flipped bit costs the block that it is in.
    """
    at, position = start, first
    while at < stop:
        try:
            for block in read_blocks(file, at, stop, position, verify=verify):
                yield block, None
                at, position = block.offset + block.header.length, block.end
        except BlockError as error:
            sound = next_sound(file, at, position, stop=stop)
            if sound is None or (sound.offset, sound.first) == (at, position):
                yield None, BadBlocks(at, position, max(end, position), error.reason)
                return
            yield None, BadBlocks(at, position, sound.first, error.reason)
            at, position = sound.offset, sound.first


def next_sound(file: File, start: int, position: int, flags: int = 0, stop: int | None = None) -> Block | None:
    """The first sound block at or after an offset that lies beyond a position and has all of these flags.

    With ``stop`` it must end at that offset at the latest.
    """
    size, base = file.size() if stop is None else min(stop, file.size()), start
    while base < size:
        data = file.read(min(WINDOW, size - base), base)
        at = data.find(MAGIC)
        while at >= 0:
            found = _sound_at(file, base + at)
            if found is not None and found.offset + found.header.length > size:
                found = None
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


#: A stretch of blocks between two entries of an index, by file and offsets; and what was read there.
_Key = tuple[str, int, int]
_Stretch = tuple[list[Block], list[BadBlocks]]


class Locator:
    """Finds the block that has a position, by way of the sparse indexes. Keeps the latest few of both.

    Files are read outside of the lock: the event loop asks for what is here, and must not wait for a disk.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = Lock()
        self._indexes: OrderedDict[str, SparseIndex] = OrderedDict()
        self._stretches: OrderedDict[_Key, _Stretch] = OrderedDict()
        self._kept = 0
        #: The file that was read last, and its name.
        self._file: tuple[str, File] | None = None
        #: Whether a block was asked for since ``forget_unused`` was called.
        self._asked = False

    def find(self, segment: Segment, position: int) -> Block | None:
        """The block of this segment that has the position. Raises Unsound where it is damaged."""
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
                raise Unsound(each)
        return None

    def resident(self, segment: Segment, position: int) -> Block | None:
        """The same block, if it is here."""
        index = segment.index or self._indexes.get(segment.name)
        if index is None:
            return None
        found = self._cached((segment.name, *index.stretch(index.find(position), segment.blocks_end)))
        return None if found is None else _block_of(found, position)

    def at_once(self, segment: Segment, position: int) -> Block | None:
        """The same block, if it is here, or the system has it in memory and it is not much to read."""
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
        """Let go of the file that was read last."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file[1].close()

    def offset(self, segment: Segment, position: int) -> int:
        """An offset at which a block starts, at or a little before the one that has the position."""
        index = self._index(segment)
        return index.stretch(index.find(position), segment.blocks_end)[0]

    def forget(self, segment: Segment) -> None:
        """The segment is gone."""
        with self._lock:
            self._indexes.pop(segment.name, None)
            for key in [key for key in self._stretches if key[0] == segment.name]:
                self._drop(key)
        self.close()

    def forget_damage(self) -> None:
        """Look at damaged places anew when they are asked for: the file may have been put back."""
        with self._lock:
            damaged = {key for key, (_, bad) in self._stretches.items() if bad}
            for key in damaged:
                self._drop(key)
            for name in {key[0] for key in damaged}:
                self._indexes.pop(name, None)

    def forget_unused(self) -> bool:
        """See Log."""
        with self._lock:
            unused = bool(self._stretches) and not self._asked
            if unused:
                self._stretches.clear()
                self._kept = 0
            self._asked = False
        if unused:
            self.close()
        return unused

    def _cached(self, key: _Key) -> _Stretch | None:
        with self._lock:
            self._asked = True
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
            file = self._disk.open(segment.name)
            try:
                index = read_index(file, segment)
            finally:
                file.close()
        with self._lock:
            self._indexes[segment.name] = index
            self._indexes.move_to_end(segment.name)
            if len(self._indexes) > KEPT_INDEXES:
                self._indexes.popitem(last=False)
        return index


class _Bytes(Readable):
    """A part of a file that was read already."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._start = start

    @override
    def read(self, size: int, offset: int) -> bytes:
        return self._data[offset - self._start : offset - self._start + size]


def _blocks_of(data: bytes, start: int) -> _Stretch | None:
    """The blocks in a stretch; None where one is unsound: whoever reads the file finds out what is wrong."""
    try:
        return list(read_blocks(_Bytes(data, start), start, start + len(data))), []
    except BlockError:
        return None


def _block_of(stretch: _Stretch, position: int) -> Block | None:
    blocks = stretch[0]
    at = bisect_right(blocks, position, key=attrgetter("first")) - 1
    return blocks[at] if at >= 0 and position < blocks[at].end else None


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
    start, stop = SEGMENT_HEADER_SIZE, segment.blocks_end
    for block, bad in scan(file, start, stop, segment.first, segment.end, verify=False):
        if block is not None:
            index.add(block.first, block.offset)
        elif bad is not None:  # it has an entry too: whoever looks for what is lost is told so
            index.add(bad.first, bad.offset)
    return index
