"""The bytes of a checkpoint: the engine's JSON, and columns of numbers.

    header (64 bytes)
     0       4     6     8             16            24            32            40            48
    +-------+-----+-----+-------------+-------------+-------------+-------------+-------+-----+
    | magic | ver | flg | identity    | position    | length      | meta length | direc | res |
    +-------+-----+-----+-------+-----+-------+-----+-------------+-------------+-------+-----+
    | reserved (u64)    | CRC of the rest (u32)     | CRC of 0..60 (u32)        |
    +-------------------+---------------------------+---------------------------+ 64
    | meta: JSON of the engine's, zeros to 8 bytes                              |
    | directory: JSON, [[name, numpy type, rows], ...], zeros to 8              |
    | the columns in that order, each with zeros to 8 bytes                     |
    +---------------------------------------------------------------------------+

``length`` is that of the whole checkpoint. Flag 1: written at a clean stop, so nothing follows it in the log.

A checkpoint may have hundreds of megabytes, so it is written and read in pieces. A column with one value for all rows
takes no memory on either side: it is an array with a stride of 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.journal.contract import Checkpoint, Columns
from penstock.journal.format.block import VERSION, other_format
from penstock.journal.format.checksum import crc32

MAGIC = b"PNCK"
CLEAN = 1
#: Bytes processed at a time.
PIECE = 256 * 1024

#: Reads a number of bytes of a checkpoint at an offset; fewer only at its end.
Read: TypeAlias = Callable[[int, int], bytes | memoryview]

_HEADER = Struct("<4sHHQQQQIIQII")


class BadCheckpoint(Exception):
    """These bytes are not a usable checkpoint; the text says why."""


def encode_checkpoint(
    identity: int, position: int, meta: bytes, columns: Columns, *, clean: bool
) -> list[bytes | memoryview]:
    """The bytes, in parts. Columns are not copied."""
    directory = json.dumps([[name, column.dtype.str, len(column)] for name, column in columns.items()]).encode()
    parts: list[bytes | memoryview] = []
    contents: list[Sequence[bytes | memoryview]] = [[meta], [directory], *map(_pieces, columns.values())]
    for pieces in contents:
        parts += pieces
        parts.append(bytes(-sum(map(len, pieces)) % 8))
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    length = _HEADER.size + sum(map(len, parts))
    fields = (identity, position, length, len(meta), len(directory), 0, 0, crc)
    header = _HEADER.pack(MAGIC, VERSION, CLEAN if clean else 0, *fields, 0)[:-4]
    return [header + crc32(header).to_bytes(4, "little"), *parts]


def _pieces(column: npt.NDArray[Any]) -> list[memoryview]:
    """The column's bytes, not copied. One value for all rows becomes one piece, repeated as often as needed."""
    if column.strides != (0,) or not len(column):
        return [_bytes_of(np.ascontiguousarray(column))]
    piece = np.full(min(len(column), PIECE // column.itemsize), column[0], column.dtype)
    whole, rest = divmod(len(column), len(piece))
    return [_bytes_of(piece)] * whole + [_bytes_of(piece[:rest])]


def _bytes_of(column: npt.NDArray[Any]) -> memoryview:
    return column.view(np.uint8).data


def decode_checkpoint(read: Read, size: int, identity: int, position: int) -> Checkpoint:
    """Decode a checkpoint of ``size`` bytes. Raises BadCheckpoint unless it is that of the identity and position."""
    header = bytes(read(_HEADER.size, 0))
    if len(header) < _HEADER.size or crc32(header[:-4]) != int.from_bytes(header[-4:], "little"):
        raise BadCheckpoint("its header is damaged")
    magic, version, flags, owner, at, length, meta_size, directory_size, _, _, crc, _ = _HEADER.unpack(header)
    if magic != MAGIC or (owner, at) != (identity, position):
        raise BadCheckpoint("it belongs to another journal or position")
    if version != VERSION:
        raise BadCheckpoint(other_format(version))
    if length != size:
        raise BadCheckpoint(f"it has {size} bytes, but {length} were written")
    if _checksum(read, size) != crc:
        raise BadCheckpoint("its checksum is wrong")
    place = _HEADER.size
    meta, place = bytes(read(meta_size, place)), place + _aligned(meta_size)
    directory = json.loads(bytes(read(directory_size, place)))
    columns = _columns(read, place + _aligned(directory_size), directory)
    return Checkpoint(position, meta, columns, bool(flags & CLEAN))


def _checksum(read: Read, size: int) -> int:
    crc = 0
    for place in range(_HEADER.size, size, PIECE):
        crc = crc32(read(min(PIECE, size - place), place), crc)
    return crc


def _columns(read: Read, place: int, directory: list[tuple[str, str, int]]) -> Columns:
    columns: Columns = {}
    for name, kind, rows in directory:
        dtype = np.dtype(kind)
        columns[name] = _column(read, place, dtype, rows)
        place += _aligned(dtype.itemsize * rows)
    return columns


def _column(read: Read, place: int, dtype: np.dtype[Any], rows: int) -> npt.NDArray[Any]:
    """A column; if all values are equal, an array with a stride of 0."""
    found: npt.NDArray[Any] | None = None
    first = np.frombuffer(read(dtype.itemsize, place), dtype) if rows else np.empty(0, dtype)
    step = PIECE // dtype.itemsize
    for start in range(0, rows, step):
        count = min(step, rows - start)
        part = np.frombuffer(read(count * dtype.itemsize, place + start * dtype.itemsize), dtype, count)
        if found is None and (part != first).any():
            found = np.empty(rows, dtype)
            found[:start] = first
        if found is not None:
            found[start : start + count] = part
    return np.broadcast_to(first, rows) if found is None else found


def _aligned(size: int) -> int:
    return (size + 7) & ~7
