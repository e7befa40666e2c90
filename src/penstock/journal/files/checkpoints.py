"""Checkpoints: the state before a position, so that a start reads the events after it and not all there ever were.

What the state is, only the engine knows: here it is some JSON and some columns of numbers. Two checkpoints are kept.
The older is there for the day on which the newer can't be read, so the log must keep the events after the *older* one.

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

``length`` counts the whole file. Flag 1: written at a clean stop, nothing follows it in the log.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from struct import Struct
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.journal.contract import Checkpoint, Columns
from penstock.journal.errors import LogFull, is_full
from penstock.journal.files.disk import Disk, File, Part, ReadableDisk, write_all
from penstock.journal.files.space import DiskSpace
from penstock.journal.format.block import VERSION
from penstock.journal.format.checksum import crc32

MAGIC = b"PNCK"
CLEAN = 1
#: How many are kept.
KEPT = 2

_HEADER = Struct("<4sHHQQQQIIQII")
_NAME = re.compile(r"[0-9a-f]{16}\.ckpt")
_TEMPORARY = "checkpoint.new"

T = TypeVar("T")


class BadCheckpoint(Exception):
    """The file is not a checkpoint that can be used; the text says why."""


class CheckpointReader:
    """The checkpoints in a data folder, for who reads it."""

    def __init__(self, disk: ReadableDisk, identity: int) -> None:
        self._files = disk
        self._identity = identity
        #: What ``newest_good`` passed over, and why: for the operator.
        self.report: list[str] = []

    def positions(self) -> list[int]:
        """See CheckpointStore."""
        return sorted(int(name[:16], 16) for name in self._files.names() if _NAME.fullmatch(name))

    def size(self, position: int) -> int:
        """See CheckpointStore."""
        file = self._files.open(checkpoint_name(position))
        try:
            return file.size()
        finally:
            file.close()

    def newest_good(self) -> Checkpoint | None:
        """See CheckpointStore."""
        for position in reversed(self.positions()):
            try:
                return self.read(position)
            except BadCheckpoint as error:
                self.report.append(f"{checkpoint_name(position)} is passed over: {error}")
        return None

    def newest_before(self, stop: int) -> Checkpoint | None:
        """The newest that can be read and does not lie behind a position, while a broker may replace them."""
        for position in reversed(self.positions()):
            if position <= stop:
                with contextlib.suppress(FileNotFoundError, BadCheckpoint):  # its owner's next start will tell of it
                    return self.read(position)
        return None

    def read(self, position: int) -> Checkpoint:
        """The one at a position. Raises BadCheckpoint if it can not be used."""
        file = self._files.open(checkpoint_name(position))
        try:
            return _decode(file, self._identity, position)
        finally:
            file.close()


class Checkpoints(CheckpointReader):
    """The same for the folder's owner, who has its lock: see ``CheckpointStore``."""

    def __init__(self, disk: Disk, identity: int, space: DiskSpace | None = None) -> None:
        """``space`` has the reserve, and says when there is no room."""
        super().__init__(disk, identity)
        self._disk = disk
        self._space = space

    def write(self, position: int, meta: bytes, columns: Columns, *, clean: bool = False) -> None:
        """See CheckpointStore."""
        self.clear()
        try:
            self._write_new(_encode(self._identity, position, meta, columns, clean=clean))
        except (OSError, LogFull) as error:
            with contextlib.suppress(OSError):
                self.clear()  # it must not keep the room that others need
            if isinstance(error, OSError) and is_full(error):
                raise LogFull(f"there is no room for a checkpoint: {error}") from error
            raise
        self._disk.rename(_TEMPORARY, checkpoint_name(position))
        self._disk.sync()
        for old in self.positions()[:-KEPT]:
            self._disk.unlink(checkpoint_name(old))

    def clear(self) -> None:
        """Remove what was left of one that could not be finished."""
        if _TEMPORARY in self._disk.names():
            self._disk.unlink(_TEMPORARY)

    def _write_new(self, parts: list[Part]) -> None:
        size = sum(map(len, parts))
        if self._space is not None:
            self._space.check(size)
        file = self._spend(lambda: self._disk.create(_TEMPORARY), size)
        try:
            self._spend(lambda: write_all(file, parts, 0), size)
            file.sync()
        finally:
            file.close()

    def _spend(self, write: Callable[[], T], size: int) -> T:
        return write() if self._space is None else self._space.spend(write, size)


def is_checkpoint(name: str) -> bool:
    """Whether a file name is that of a checkpoint."""
    return _NAME.fullmatch(name) is not None


def checkpoint_name(position: int) -> str:
    """The file name of the checkpoint at a position."""
    return f"{position:016x}.ckpt"


def _encode(identity: int, position: int, meta: bytes, columns: Columns, *, clean: bool) -> list[Part]:
    directory = json.dumps([[name, column.dtype.str, len(column)] for name, column in columns.items()]).encode()
    parts: list[Part] = []
    crc = 0
    contents: list[Part] = [meta, directory, *map(_bytes_of, columns.values())]
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


def _decode(file: File, identity: int, position: int) -> Checkpoint:
    header = file.read(_HEADER.size, 0)
    if len(header) < _HEADER.size or crc32(header[:-4]) != int.from_bytes(header[-4:], "little"):
        raise BadCheckpoint("its header is damaged")
    magic, version, flags, owner, at, length, meta_size, directory_size, _, _, crc, _ = _HEADER.unpack(header)
    if magic != MAGIC or (owner, at) != (identity, position):
        raise BadCheckpoint("it belongs to another journal or position")
    if version > VERSION:
        raise BadCheckpoint(f"it has format version {version}, this Penstock reads up to {VERSION}")
    if length != file.size():
        raise BadCheckpoint(f"it has {file.size()} bytes where {length} were written")
    body = file.read(length - _HEADER.size, _HEADER.size)
    if crc32(body) != crc:
        raise BadCheckpoint("its checksum is wrong")
    place = _aligned(meta_size)
    directory = json.loads(body[place : place + directory_size])
    columns = _columns(body, place + _aligned(directory_size), directory)
    return Checkpoint(position, body[:meta_size], columns, bool(flags & CLEAN))


def _columns(body: bytes, place: int, directory: list[tuple[str, str, int]]) -> Columns:
    columns: Columns = {}
    for name, kind, rows in directory:
        column: npt.NDArray[Any] = np.frombuffer(body, np.dtype(kind), rows, place)
        columns[name] = column
        place += _aligned(column.nbytes)
    return columns


def _aligned(size: int) -> int:
    return (size + 7) & ~7
