"""The journal in a database as the files of a folder, for code that checks or copies every byte.

An extent is fetched when more than its header is read, and freed when its file is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from penstock.journal.contract import Durability, Tail
from penstock.journal.files.checkpoints import checkpoint_name, is_checkpoint
from penstock.journal.files.disk import File, Part, RealFile
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.folder import Folder
from penstock.journal.files.tail import NAME as TAIL
from penstock.journal.files.tail import encode_tail
from penstock.journal.format.segment import KEPT, segment_name
from penstock.journal.postgresql.copies import ExtentCopy
from penstock.journal.postgresql.database import ExtentRow, ReadableDatabase, ShardRow
from penstock.journal.postgresql.retries import retry_once

#: Follows the blocks of a growing extent: without reserved space there, a file counts as truncated.
_RESERVED = bytes(4096)


class FolderView:
    """The files of an equivalent folder: a ``files.disk.ReadableDisk``."""

    def __init__(self, database: ReadableDatabase) -> None:
        self._database = database
        self.where = database.where

    def names(self) -> list[str]:
        """The names of all files."""
        checkpoints = [checkpoint_name(position) for position, _ in retry_once(self._database.checkpoints)]
        return [FOLDER, TAIL, *map(_name, retry_once(self._database.extents)), *checkpoints]

    def open(self, name: str) -> File:
        """A file, for reading. Raises FileNotFoundError."""
        if name == FOLDER:
            return BytesFile(_folder(retry_once(self._database.shard)).encode())
        if name == TAIL:
            return BytesFile(encode_tail(stored_tail(retry_once(self._database.shard))))
        for row in retry_once(self._database.extents):
            if _name(row) == name:
                return ExtentFile(self._database, row)
        data = retry_once(lambda: self._database.checkpoint(int(name[:16], 16))) if is_checkpoint(name) else None
        if data is None:
            raise FileNotFoundError(name)
        return BytesFile(data)


def stored_tail(row: ShardRow) -> Tail:
    """The tail that readers of a folder would find."""
    return Tail(Durability.COMMIT, row.identity, row.head, row.floor, 0, row.low, row.epoch)


def _folder(row: ShardRow) -> Folder:
    return Folder(row.identity, row.created, row.epoch, row.low if row.extent else 0)


def _name(row: ExtentRow) -> str:
    return segment_name(row.first) + (KEPT if row.kept else "")


class _ReadOnly:
    """The writing half of a read-only ``File``."""

    def read_now(self, size: int, offset: int) -> bytes | None:
        """None: reading would take a request to the database."""

    def write(self, parts: Sequence[Part], offset: int) -> NoReturn:
        raise PermissionError("a view of a database is not written to")

    def allocate(self, size: int) -> NoReturn:
        self.write((), 0)

    def truncate(self, size: int) -> NoReturn:
        self.write((), 0)

    def sync(self) -> NoReturn:
        self.write((), 0)


class BytesFile(_ReadOnly):
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes."""
        return self._data[offset : offset + size]

    def size(self) -> int:
        """Bytes in the file."""
        return len(self._data)

    def close(self) -> None:
        """Close the file."""


class ExtentFile(_ReadOnly):
    """An extent as a segment file. Raises FileNotFoundError once the extent is trimmed."""

    def __init__(self, database: ReadableDatabase, row: ExtentRow) -> None:
        self._database = database
        self._row = row
        self._copied: File | None = None

    def read(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes."""
        if self._copied is None and offset + size <= len(self._row.header):
            return self._row.header[offset : offset + size]
        data = self._copy().read(size, offset)
        behind = max(offset - self._copy().size(), 0)
        return data if self._row.finished else data + _RESERVED[behind : behind + size - len(data)]

    def size(self) -> int:
        """Bytes in the file."""
        return self._copy().size() + (0 if self._row.finished else len(_RESERVED))

    def close(self) -> None:
        """Close the file."""
        if self._copied is not None:
            self._copied.close()

    def _copy(self) -> File:
        if self._copied is None:
            database, copy = self._database, ExtentCopy(self._row)
            head = retry_once(database.shard).head
            retry_once(copy.extend, database, self._row, head)
            self._copied = RealFile(copy.descriptor())
        return self._copied
