"""One block: the events of one commit, column by column, in bytes.

A block is a header of 80 bytes and a body of columns in Arrow's physical layout, so that a reader can wrap the bytes
without a copy. Everything is little-endian; the header, each column and each block start at a multiple of 8 bytes.

     0       4     6     8           12          16                      24
    +-------+-----+-----+-----------+-----------+-----------------------+
    | magic | ver | flg | length    | epoch     | first position        |
    +-------+-----+-----+-----------+-----------+-----------------------+ 24
    | base time, microseconds (i64) | present columns, bit = id (u64)   |
    +-------------------------------+-----------+-----------------------+ 40
    | constant columns, bit = id    | events    | message rows          |
    +---------------+---------------+-----------+-----------------------+ 56
    | sources       | reserved      | body CRC  | previous              |
    +---------------+---------------+-----------+-----------------------+ 72
    | reserved      | CRC of 0..76  |
    +---------------+---------------+ 80
    | sources, as a binary column, if there are any                     |
    | the present columns, in the order of ``schema.COLUMNS``           |
    +-------------------------------------------------------------------+

    a fixed column      value × rows (or one value, when constant), zeros to the next multiple of 8
    a binary column     (rows + 1) × i32 offsets, zeros to 8, the bytes one after the other, zeros to 8

``length`` is that of the whole block. ``previous`` is the header CRC of the block before, which chains the blocks of a
segment; since a header contains the CRC of its body, the chain covers every byte. A column whose rows all have its
default is absent; one whose rows all have one other value is constant. ``at`` counts from the base time. The only flag,
``SYNCED``, means that everything before the block was on disk before the block was written: a crash alone cannot lose
what lies before a valid block with this flag. docs/journal.md says how to change any of this.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Container, Iterator
from functools import cached_property, lru_cache
from struct import Struct
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.journal.format.checksum import crc32
from penstock.schema import COLUMN, COLUMNS, MESSAGE_KINDS, Column, Kind, Rows

if sys.byteorder != "little":  # columns are written and read without conversion
    raise ImportError("penstock.journal needs a little-endian machine")

MAGIC = b"PNBK"
#: The format of all files of a journal. Files of any other format are refused.
VERSION = 2
#: Spark and Arrow address the bytes of a column with 32 bits. This stays far below, and bounds a reader's memory.
MAX_BLOCK = 64 * 1024 * 1024
#: Flag: everything before was synced before this block was written.
SYNCED = 1

HEADER = Struct("<4sHHIIQqQQIIIIIIII")
HEADER_SIZE = HEADER.size
#: The bytes covered by the header's checksum, which is its last field.
SIGNED_SIZE = HEADER_SIZE - 4
_SIZE = Struct("<I")

#: What numpy and memoryview can wrap without a copy.
Buffer: TypeAlias = bytes | bytearray | memoryview
Ints: TypeAlias = npt.NDArray[np.integer[Any]]

DTYPES = {code: np.dtype("<" + name) for code, name in zip("BHIqQ", ("u1", "u2", "u4", "i8", "u8"), strict=True)}
OFFSET = np.dtype("<i4")
#: The default of each fixed-width column, as bytes.
DEFAULTS = {c.name: np.array([c.default], DTYPES[c.type]).tobytes() for c in COLUMNS if c.type != "binary"}
_KNOWN = sum(1 << column.id for column in COLUMNS)
_BINARY = sum(1 << column.id for column in COLUMNS if column.type == "binary")
_IS_MESSAGE = np.zeros(256, np.bool_)
_IS_MESSAGE[list(MESSAGE_KINDS)] = True


class BlockError(Exception):
    """These bytes are not a valid block. ``offset`` is where the block starts in its file or extent."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"bad block at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


def other_format(version: int) -> str:
    """Why a file of another format is refused."""
    return f"it was written in format {version}: this Penstock reads format {VERSION}. Use a Penstock that reads it"


class Batch(Protocol):
    """The events of one commit: each column has a value for every row, or for every message row or other row."""

    @property
    def first(self) -> int:
        """Position of the first event."""

    @property
    def kinds(self) -> bytearray:
        """A ``Kind`` per row."""

    @property
    def at(self) -> array[int]:
        """Microseconds since 1970 per row, type "q"; the whole batch spans less than an hour."""

    @property
    def queues(self) -> array[int]:
        """Queue number per row, type "I"."""

    @property
    def source(self) -> array[int]:
        """Index into ``sources`` per row, type "H"."""

    @property
    def sources(self) -> list[bytes]:
        """The senders of the commands, as "protocol peer". May be empty if every ``source`` is 0."""

    @property
    def columns(self) -> dict[str, array[int] | list[bytes]]:
        """The used columns of message rows and of other rows, with a value for each of these rows."""


class OneEvent(NamedTuple):
    """A batch of one event of the broker itself, with a detail."""

    first: int
    kinds: bytearray
    at: array[int]
    columns: dict[str, array[int] | list[bytes]]
    queues: array[int] = array("I", [0])
    source: array[int] = array("H", [0])
    sources: list[bytes] = [b"penstock"]  # noqa: RUF012  # never changed

    @classmethod
    def make(cls, position: int, kind: Kind, at: int, detail: bytes) -> OneEvent:
        """``at`` is in microseconds since 1970."""
        return cls(position, bytearray([kind]), array("q", [at]), {"detail": [detail]})


class BlockHeader(NamedTuple):
    """The header of a block, whose CRC was verified."""

    magic: bytes
    version: int
    flags: int
    length: int
    epoch: int
    first: int
    base: int
    present: int
    constant: int
    events: int
    messages: int
    sources: int
    reserved: int
    body_crc: int
    previous: int
    reserved_2: int
    crc: int

    @property
    def end(self) -> int:
        """The position after the last event."""
        return self.first + self.events


def _rows(column: Column, count: int, messages: int) -> int:
    if column.rows is Rows.ALL:
        return count
    return messages if column.rows is Rows.MESSAGES else count - messages


def parse_header(data: Buffer, start: int = 0, offset: int = 0) -> BlockHeader:
    """The header at ``data[start:]``, verified. ``offset`` is its place in the file, for the error."""
    if len(data) - start < HEADER_SIZE:
        raise BlockError(offset, f"{max(len(data) - start, 0)} bytes are left, a header has {HEADER_SIZE}")
    header = BlockHeader._make(HEADER.unpack_from(data, start))
    if header.magic != MAGIC:
        raise BlockError(offset, "no block starts here (wrong magic)")
    if header.version != VERSION:
        raise BlockError(offset, other_format(header.version))
    if crc32(memoryview(data)[start : start + SIGNED_SIZE]) != header.crc:
        raise BlockError(offset, "the header's checksum is wrong")
    if not HEADER_SIZE <= header.length <= MAX_BLOCK or header.length % 8:
        raise BlockError(offset, f"a length of {header.length} bytes is impossible")
    if header.flags & ~SYNCED or header.messages > header.events or not header.events:
        raise BlockError(offset, "the header contradicts itself")
    if header.present & ~_KNOWN or header.constant & ~(header.present & ~_BINARY):
        raise BlockError(offset, "the header has columns that this format does not have")
    return header


def parse(data: Buffer, start: int = 0, offset: int = 0, *, verify: bool = True) -> Block:
    """The block at ``data[start:]``, as a view of it. ``verify=False`` skips only the body's checksum."""
    header = parse_header(data, start, offset)
    return Block(header, check_body(header, data, start, offset, verify=verify), offset)


def check_body(header: BlockHeader, data: Buffer, start: int, offset: int, *, verify: bool = True) -> memoryview:
    """The bytes of the block with this header. Raises BlockError if they are incomplete or, if ``verify``, damaged."""
    if header.length > len(data) - start:
        raise BlockError(offset, f"it has {header.length} bytes, of which {len(data) - start} are there")
    view = memoryview(data)[start : start + header.length]
    if verify and crc32(view[HEADER_SIZE:]) != header.body_crc:
        raise BlockError(offset, "the body's checksum is wrong")
    return view if view.readonly else view.toreadonly()


@lru_cache(maxsize=256)
def plan(present: int, constant: int) -> tuple[tuple[str, int, int], ...]:
    """The columns of two bit maps: name, rows (0: one value, 1: all, 2: messages, 3: others) and width (0: binary).

    A broker writes few combinations, so caching them saves most of a parse.
    """
    sorts = {Rows.ALL: 1, Rows.MESSAGES: 2, Rows.OTHERS: 3}
    return tuple(
        (c.name, 0 if constant >> c.id & 1 else sorts[c.rows], 0 if c.type == "binary" else DTYPES[c.type].itemsize)
        for c in COLUMNS
        if present >> c.id & 1
    )


class Block:
    """A decoded block: numpy views of its bytes, made on demand. Arrays are read-only and keep the bytes alive."""

    def __init__(self, header: BlockHeader, view: memoryview, offset: int) -> None:
        self.header = header
        self.view = view
        self.offset = offset
        self.first = header.first
        self.count = header.events
        self.end = header.end
        self.epoch = header.epoch
        self.base = header.base
        #: How many rows are messages.
        self.messages = header.messages
        #: Where each column that is present begins.
        self._places = _place_columns(header, view, offset)
        if self._count_messages() != header.messages:
            raise BlockError(offset, "the kinds of its rows contradict the header")

    def __repr__(self) -> str:
        return f"<Block {self.first}..{self.end} epoch {self.epoch}, {len(self.view)} bytes at {self.offset}>"

    # The four columns of all rows

    @property
    def kinds(self) -> Ints:
        """A ``Kind`` per row."""
        return self.column("kind")

    @property
    def queues(self) -> Ints:
        """Queue number per row."""
        return self.column("queue")

    @property
    def source(self) -> Ints:
        """Index into ``sources`` per row."""
        return self.column("source")

    def at(self) -> npt.NDArray[np.int64]:
        """Microseconds since 1970 per row."""
        return self.column("at").astype(np.int64) + self.base

    @cached_property
    def sources(self) -> list[bytes]:
        """The byte strings that ``source`` counts into; empty when no row has one."""
        if not self.header.sources:
            return []
        offsets, data = self._binary_at(HEADER_SIZE, self.header.sources)
        return [bytes(data[a:b]) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    # Rows and columns

    @cached_property
    def _message_rows(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(_IS_MESSAGE[self.kinds])

    def message_rows(self) -> npt.NDArray[np.intp]:
        """The numbers of the message rows: value i of a message column belongs to row ``[i]`` of these."""
        return self._message_rows

    def other_rows(self) -> npt.NDArray[np.intp]:
        """The numbers of all other rows."""
        return np.flatnonzero(~_IS_MESSAGE[self.kinds])

    def rows(self, name: str) -> int:
        """The number of values of a column."""
        return _rows(COLUMN[name], self.count, self.messages)

    def has(self, name: str) -> bool:
        """Whether the column is present. If not, all its values are the default."""
        return bool(self.header.present >> COLUMN[name].id & 1)

    def column(self, name: str) -> Ints:
        """A fixed-width column, with a value for each of its rows. The column ``at`` counts from the base time."""
        column, rows = COLUMN[name], self.rows(name)
        dtype = DTYPES[column.type]
        place = self._places.get(name)
        # One value for all rows has steps of 0 bytes. ``np.broadcast_to`` does the same in ten times the time.
        if place is None:
            return np.ndarray(rows, dtype, DEFAULTS[name], strides=(0,))
        if self.header.constant >> column.id & 1:
            return np.ndarray(rows, dtype, self.view, place, (0,))
        return np.frombuffer(self.view, dtype, rows, place)

    def binary(self, name: str) -> tuple[npt.NDArray[np.int32], memoryview]:
        """A binary column: value i is ``data[offsets[i]:offsets[i + 1]]``."""
        rows, place = self.rows(name), self._places.get(name)
        if place is None:
            return np.zeros(rows + 1, np.int32), self.view[:0]
        return self._binary_at(place, rows)

    def pieces(self, names: Container[str]) -> Iterator[tuple[str, bytes]]:
        """The present ones of these columns, copied as bytes: a value per row, or the offsets of a binary column.

        For reading many small blocks: without numpy, whose cost per array would dominate.
        """
        view, places = self.view, self._places
        counts = (1, self.count, self.messages, self.count - self.messages)
        for name, sort, width in plan(self.header.present, self.header.constant):
            if name in names:
                start = places[name]
                data = view[start : start + (width * counts[sort] if width else 4 * counts[sort] + 4)].tobytes()
                yield name, data if sort else data * self.rows(name)

    def value(self, name: str, index: int) -> int | bytes:
        """One value of a column. ``index`` counts the rows of the column, not of the block."""
        if COLUMN[name].type != "binary":
            return int(self.column(name)[index])
        offsets, data = self.binary(name)
        return bytes(data[offsets[index] : offsets[index + 1]])

    # Where things are

    def _count_messages(self) -> int:
        if self.header.constant & 1 << COLUMN["kind"].id:  # most blocks; the short cut speeds up recovery of small ones
            return self.count if self.view[self._places["kind"]] in MESSAGE_KINDS else 0
        return int(np.count_nonzero(_IS_MESSAGE[self.kinds]))

    def _binary_at(self, place: int, rows: int) -> tuple[npt.NDArray[np.int32], memoryview]:
        offsets = np.frombuffer(self.view, np.int32, rows + 1, place)
        start = place + _padded(OFFSET.itemsize * (rows + 1))
        return offsets, self.view[start : start + int(offsets[-1])]


def _place_columns(header: BlockHeader, view: memoryview, offset: int) -> dict[str, int]:
    """Where each column begins. Raises BlockError unless together they take the block's length exactly."""
    places: dict[str, int] = {}
    place = HEADER_SIZE
    if header.sources:
        place = _after_binary(view, place, header.sources, offset)
    counts = (1, header.events, header.messages, header.events - header.messages)
    for name, sort, width in plan(header.present, header.constant):
        places[name] = place
        if width:
            place += (width * counts[sort] + 7) & ~7
        else:
            place = _after_binary(view, place, counts[sort], offset)
    if place != len(view):
        raise BlockError(offset, f"its columns take {place} bytes, its length says {len(view)}")
    return places


def _after_binary(view: memoryview, place: int, rows: int, offset: int) -> int:
    """Where the next column begins, after a binary one at ``place``. Bounds are checked before anything is read."""
    start = place + _padded(OFFSET.itemsize * (rows + 1))
    if start > len(view):
        raise BlockError(offset, "the offsets of a binary column reach past its end")
    size: int = _SIZE.unpack_from(view, place + OFFSET.itemsize * rows)[0]
    return start + _padded(size)


def _padded(size: int) -> int:
    return (size + 7) & ~7
