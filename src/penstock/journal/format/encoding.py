"""Encoding a commit's events as a block. The layout is in ``block``."""

from __future__ import annotations

from array import array
from itertools import accumulate
from struct import Struct
from typing import Final

import numpy as np

from penstock.journal.format.block import (
    DEFAULTS,
    DTYPES,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    MAX_BLOCK,
    OFFSET,
    SYNCED,
    VERSION,
    Batch,
    BlockHeader,
)
from penstock.journal.format.checksum import crc32
from penstock.schema import COLUMN, COLUMNS, MESSAGE_KINDS, Column, Rows

#: Blocks up to this are joined before they are written: writing parts costs more than the copy.
SMALL_BLOCK: Final = 64 * 1024
#: Up to this number of rows, numpy costs more than it saves.
FEW_ROWS: Final = 100
#: ``at`` has 32 bits of microseconds. A commit takes milliseconds; an hour means that the clock jumped.
MAX_SPAN: Final = 3_600_000_000
_SIGNED_HEADER: Final = Struct(HEADER.format[:-1])  # the header's own CRC is its last field
_CRC: Final = Struct("<I")
_MESSAGE_KINDS: Final = tuple(int(kind) for kind in MESSAGE_KINDS)
_TWO_OFFSETS: Final = Struct("<ii")
_ORDER: Final = {column.name: place for place, column in enumerate(COLUMNS)}
_SORTS: Final = {Rows.ALL: 0, Rows.MESSAGES: 1, Rows.OTHERS: 2}
#: For each column: its bit, the kind of its rows, and its default as bytes, empty for a binary column.
_LAYOUT: Final = {c.name: (1 << c.id, _SORTS[c.rows], DEFAULTS.get(c.name, b"")) for c in COLUMNS}
_PADS: Final = tuple(bytes(size) for size in range(8))


class Encoded:
    """A block to write: its parts in order, beginning with the header, and the facts that a segment records."""

    __slots__ = ("base", "crc", "end", "first", "length", "parts")

    def __init__(self, parts: list[bytes], first: int, end: int, length: int, base: int, crc: int) -> None:
        self.parts = parts
        self.first = first
        self.end = end
        self.length = length
        self.base = base
        self.crc = crc

    @property
    def header(self) -> BlockHeader:
        """The decoded header."""
        return BlockHeader._make(HEADER.unpack(self.parts[0]))

    @property
    def data(self) -> bytes:
        """The joined parts."""
        return b"".join(self.parts)


def encode(batch: Batch, epoch: int, previous: int, *, synced: bool = False) -> Encoded:
    """Encode a batch. Payloads are copied once, by a join.

    ``previous`` is the ``crc`` of the block before. Raises ValueError if the batch is invalid, which is a fault of the
    caller.
    """
    kinds, first = batch.kinds, batch.first
    count = len(kinds)
    messages = 0
    for kind in _MESSAGE_KINDS:
        messages += kinds.count(kind)
    base, at = _relative_times(batch.at)
    body: list[bytes] = []
    if batch.sources:
        _add_binary(body, batch.sources)
    present, constant = _add_columns(body, batch, at, (count, messages, count - messages))
    length = HEADER_SIZE
    for part in body:
        length += len(part)
    if not count or length > MAX_BLOCK:
        raise ValueError(f"a block holds 1 event to {MAX_BLOCK} bytes; this batch has {count} in {length}: split it")
    if length <= SMALL_BLOCK:
        body = [b"".join(body)]
    crc = 0
    for part in body:
        crc = crc32(part, crc)
    flags = SYNCED if synced else 0
    head = _SIGNED_HEADER.pack(
        MAGIC, VERSION, flags, length, epoch, first, base, present, constant, count, messages, len(batch.sources), 0,
        crc, previous, 0,
    )  # fmt: skip
    own_crc = crc32(head)
    return Encoded([head + _CRC.pack(own_crc), *body], first, first + count, length, base, own_crc)


def chain_to(header: BlockHeader, previous: int) -> tuple[BlockHeader, bytes]:
    """The header, also as bytes, of a block that is moved after another one. The body stays the same."""
    fields = header._replace(previous=previous, reserved_2=0)[:-1]
    signed = _SIGNED_HEADER.pack(*fields)
    crc = crc32(signed)
    return BlockHeader._make((*fields, crc)), signed + _CRC.pack(crc)


def _relative_times(at: array[int]) -> tuple[int, bytes]:
    """The base time and the times after it. Equal times are checked first, as all rows of a command have one."""
    raw = at.tobytes()
    if raw == raw[:8] * len(at):
        return (at[0] if at else 0), bytes(4 * len(at))
    if len(at) <= FEW_ROWS:
        base = min(at)
        _check_span(base, max(at))
        return base, array("I", [time - base for time in at]).tobytes()
    times = np.frombuffer(raw, np.int64)
    base = int(times.min())
    _check_span(base, int(times.max()))
    return base, (times - base).astype(DTYPES["I"]).tobytes()


def _check_span(first: int, last: int) -> None:
    if last - first >= MAX_SPAN:
        raise ValueError("the times of one batch lie an hour or more apart: commit the events before the jump first")


def _add_columns(parts: list[bytes], batch: Batch, at: bytes, counts: tuple[int, int, int]) -> tuple[int, int]:
    """Add the columns that are not all default; returns the bit maps of the present and of the constant ones.

    ``counts`` has the numbers of all rows, of message rows, and of other rows.
    """
    used = batch.columns
    if not used.keys() <= COLUMN.keys():
        raise ValueError(f"no such column: {', '.join(sorted(used.keys() - COLUMN.keys()))}")
    values: list[tuple[str, bytes | list[bytes]]] = [
        ("kind", bytes(batch.kinds)),
        ("at", at),
        ("queue", batch.queues.tobytes()),
        ("source", batch.source.tobytes()),
    ]
    for name in used if len(used) < 2 else sorted(used, key=_ORDER.__getitem__):
        column = used[name]
        values.append((name, column if isinstance(column, list) else column.tobytes()))
    present = constant = 0
    for name, data in values:
        if not data:
            continue
        bit, sort, default = _LAYOUT[name]
        rows, width = counts[sort], len(default)
        if len(data) != rows * (width or 1) or isinstance(data, list) == bool(width):
            raise _misfit(COLUMN[name])
        if isinstance(data, list):
            if any(data):
                present |= bit
                _add_binary(parts, data)
            continue
        one = data[:width]
        if rows == 1 or (data[-width:] == one and data == one * rows):  # as bytes: for small blocks numpy costs more
            if one == default:
                continue
            constant |= bit
        present |= bit
        _add_padded(parts, one if constant & bit else data)
    return present, constant


def _misfit(column: Column) -> ValueError:
    return ValueError(
        f'column {column.name} needs one value of type "{column.type}" for each of its rows ({column.rows.value})'
    )


def _add_binary(parts: list[bytes], values: list[bytes]) -> None:
    if len(values) == 1:
        parts.append(_TWO_OFFSETS.pack(0, len(values[0])))
        _add_padded(parts, values[0])
        return
    _add_padded(parts, _offsets(values))
    _add_padded(parts, b"".join(values))


def _offsets(values: list[bytes]) -> bytes:
    """The offset of each value, and the end of the last."""
    if len(values) <= FEW_ROWS:
        return array("i", accumulate(map(len, values), initial=0)).tobytes()
    sizes = list(map(len, values))
    if sizes.count(sizes[0]) == len(sizes):
        return (np.arange(len(sizes) + 1, dtype=OFFSET) * sizes[0]).tobytes()
    offsets = np.zeros(len(sizes) + 1, OFFSET)
    np.cumsum(sizes, out=offsets[1:])
    return offsets.tobytes()


def _add_padded(parts: list[bytes], data: bytes) -> None:
    parts.append(data)
    if len(data) & 7:
        parts.append(_PADS[-len(data) & 7])
