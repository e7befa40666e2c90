"""A checkpoint in bytes, and back. What the state is, only the engine knows: here it is JSON and columns of numbers.

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

``length`` counts all of it. Flag 1: written at a clean stop, nothing follows it in the log.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.journal.contract import Checkpoint, Columns
from penstock.journal.format.block import VERSION
from penstock.journal.format.checksum import crc32

MAGIC = b"PNCK"
CLEAN = 1

_HEADER = Struct("<4sHHQQQQIIQII")


class BadCheckpoint(Exception):
    """These bytes are not a checkpoint that can be used; the text says why."""


def encode_checkpoint(
    identity: int, position: int, meta: bytes, columns: Columns, *, clean: bool
) -> list[bytes | memoryview]:
    """The bytes, part by part. The columns are not copied."""
    directory = json.dumps([[name, column.dtype.str, len(column)] for name, column in columns.items()]).encode()
    parts: list[bytes | memoryview] = []
    crc = 0
    contents: list[bytes | memoryview] = [meta, directory, *map(_bytes_of, columns.values())]
    for data in contents:
        padding = bytes(-len(data) % 8)
        parts += [data, padding]
        crc = crc32(padding, crc32(data, crc))
    length = _HEADER.size + sum(map(len, parts))
    fields = (identity, position, length, len(meta), len(directory), 0, 0, crc)
    header = _HEADER.pack(MAGIC, VERSION, CLEAN if clean else 0, *fields, 0)[:-4]
    return [header + crc32(header).to_bytes(4, "little"), *parts]


def _bytes_of(column: npt.NDArray[Any]) -> memoryview:
    """The column's bytes where they are: it may be hundreds of megabytes."""
    return np.ascontiguousarray(column).view(np.uint8).data


def decode_checkpoint(data: bytes, identity: int, position: int) -> Checkpoint:
    """The checkpoint; its columns are views of the bytes. Raises BadCheckpoint unless it is that of the position."""
    header = data[: _HEADER.size]
    if len(header) < _HEADER.size or crc32(header[:-4]) != int.from_bytes(header[-4:], "little"):
        raise BadCheckpoint("its header is damaged")
    magic, version, flags, owner, at, length, meta_size, directory_size, _, _, crc, _ = _HEADER.unpack(header)
    if magic != MAGIC or (owner, at) != (identity, position):
        raise BadCheckpoint("it belongs to another journal or position")
    if version > VERSION:
        raise BadCheckpoint(f"it has format version {version}, this Penstock reads up to {VERSION}")
    if length != len(data):
        raise BadCheckpoint(f"it has {len(data)} bytes where {length} were written")
    if crc32(memoryview(data)[_HEADER.size :]) != crc:
        raise BadCheckpoint("its checksum is wrong")
    place = _HEADER.size
    meta, place = data[place : place + meta_size], place + _aligned(meta_size)
    directory = json.loads(data[place : place + directory_size])
    columns = _columns(data, place + _aligned(directory_size), directory)
    return Checkpoint(position, meta, columns, bool(flags & CLEAN))


def _columns(data: bytes, place: int, directory: list[tuple[str, str, int]]) -> Columns:
    columns: Columns = {}
    for name, kind, rows in directory:
        column: npt.NDArray[Any] = np.frombuffer(data, np.dtype(kind), rows, place)
        columns[name] = column
        place += _aligned(column.nbytes)
    return columns


def _aligned(size: int) -> int:
    return (size + 7) & ~7
