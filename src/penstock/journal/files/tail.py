"""The ``tail`` file: how far the journal goes, for other processes, and for the next start to compare with.

It is overwritten in place after each commit, in one call and without a sync. After a power failure it may be an older
version of itself.

     0       4     6     8             16            24            32            40            48
    +-------+-----+-----+-------------+-------------+-------------+-------------+-------------+
    | magic | ver | dur | identity    | committed   | floor       | generation  | start       |
    +-------+-----+-----+-------------+-------------+-------------+-------------+-------------+
    | epoch | reserved  | CRC of 0..60|
    +-------+-----------+-------------+ 64

A second record may follow: a synced copy, made when segments were about to be removed and a full disk had no room for a
new ``penstock.json``. Only its ``start`` counts. Commits do not overwrite it, so it survives a power failure that tears
the first record.
"""

from __future__ import annotations

import mmap
import os
from struct import Struct
from time import sleep
from typing import Final

from penstock.journal.contract import Durability, Tail
from penstock.journal.errors import JournalRefused, is_full
from penstock.journal.files.disk import Disk, File, ReadableDisk, RealDisk, SharedDisk, write_all
from penstock.journal.format.block import VERSION, other_format
from penstock.journal.format.checksum import crc32

NAME: Final = "tail"
MAGIC: Final = b"PNTL"
_LAYOUT: Final = Struct("<4sHHQQQQQI8xI")
_SIGNED: Final = Struct(_LAYOUT.format[:-1])  # the CRC is the last field
_CRC: Final = Struct("<I")
SIZE: Final = _LAYOUT.size
#: How often a reader retries a half-written record. A write takes a microsecond, so more would mean damage.
_TRIES: Final = 1000


def encode_tail(tail: Tail) -> bytes:
    """The 64 bytes of a record."""
    return _encode(tail.durability.value, *tail[1:])


def decode_tail(raw: bytes) -> Tail | None:
    """The record, or None if it is invalid. Raises JournalRefused for another format."""
    if len(raw) != SIZE or raw[:4] != MAGIC or crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        return None
    _, version, durability, *rest, _ = _LAYOUT.unpack(raw)
    if version != VERSION:
        raise JournalRefused(f"the file {NAME} cannot be read: {other_format(version)}")
    return Tail(Durability(durability), *rest)


def _encode(
    durability: int, identity: int, committed: int, floor: int, generation: int, start: int, epoch: int
) -> bytes:
    raw = _SIGNED.pack(MAGIC, VERSION, durability, identity, committed, floor, generation, start, epoch)
    return raw + _CRC.pack(crc32(raw))


def read_tail(disk: ReadableDisk) -> tuple[Tail | None, Tail | None]:
    """The record and the copy that the last broker left; None for a missing or unreadable one."""
    if NAME not in disk.names():
        return None, None
    file = disk.open(NAME)
    try:
        raw = file.read(2 * SIZE, 0)
    finally:
        file.close()
    return decode_tail(raw[:SIZE]), decode_tail(raw[SIZE:])


class TailWriter:
    """Overwrites the record, always in the same file, which readers keep mapped."""

    def __init__(self, disk: Disk, durability: Durability, identity: int) -> None:
        old, _ = read_tail(disk)
        self.generation = old.generation if old else 0
        self._durability: int = durability.value
        self._identity = identity
        self._file: File = disk.open(NAME) if NAME in disk.names() else disk.create(NAME)

    def publish(self, committed: int, floor: int, start: int, epoch: int) -> None:
        """Write the record that readers see."""
        self.generation += 1
        raw = _encode(self._durability, self._identity, committed, floor, self.generation, start, epoch)
        write_all(self._file, [raw], 0)

    def sync(self) -> None:
        """Sync the record."""
        self._file.sync()

    def keep(self) -> None:
        """Sync the record, then a copy of it if there is room. One of the two is valid at any time."""
        self._file.sync()
        try:
            write_all(self._file, [self._file.read(SIZE, 0)], SIZE)
            self._file.sync()
        except OSError as error:
            if not is_full(error):
                raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TailReader:
    """Follows the tail from another process. Reading costs a microsecond and no system call."""

    def __init__(self, disk: SharedDisk | str | os.PathLike[str]) -> None:
        """Raises FileNotFoundError without a tail, ValueError if it is shorter than a record."""
        if isinstance(disk, str | os.PathLike):
            disk = RealDisk(disk, read_only=True)
        file = disk.descriptor(NAME)
        try:
            self._map = mmap.mmap(file, SIZE, access=mmap.ACCESS_READ)
        finally:
            os.close(file)
        self._where = disk.where

    def read(self) -> Tail:
        """The latest record."""
        for attempt in range(_TRIES):
            tail = decode_tail(self._map[:SIZE])
            if tail is not None:
                return tail
            sleep(0 if attempt < 10 else 0.001)
        raise JournalRefused(f"{self._where}/{NAME} cannot be read: start the broker on this folder to replace it")

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()
