"""The journal in a database as a folder would have it, for who looks at every byte: see ``files.disk.ReadableDisk``.

An extent is fetched when more than its header is read, and let go of with its file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from penstock.journal.contract import Durability
from penstock.journal.files.checkpoints import checkpoint_name, is_checkpoint
from penstock.journal.files.disk import File, Part, RealFile
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.folder import Folder
from penstock.journal.files.tail import NAME as TAIL
from penstock.journal.files.tail import StoredTail
from penstock.journal.format.segment import KEPT, segment_name
from penstock.journal.postgresql.copies import ExtentCopy
from penstock.journal.postgresql.database import ExtentRow, ReadableDatabase, ShardRow
from penstock.journal.postgresql.questions import asked

#: Behind the blocks of an extent that grows: a file has reserved space there, and one without was cut.
_RESERVED = bytes(4096)


class FolderView:
    """The files that a folder with this journal would have."""

    def __init__(self, database: ReadableDatabase) -> None:
        self._database = database
        self.where = database.where

    def names(self) -> list[str]:
        """See ReadableDisk."""
        checkpoints = [checkpoint_name(position) for position, _ in asked(self._database.checkpoints)]
        return [FOLDER, TAIL, *map(_name, asked(self._database.extents)), *checkpoints]

    def open(self, name: str) -> File:
        """See ReadableDisk."""
        if name == FOLDER:
            return BytesFile(_folder(asked(self._database.shard)).encode())
        if name == TAIL:
            return BytesFile(stored_tail(asked(self._database.shard)).encode())
        for row in asked(self._database.extents):
            if _name(row) == name:
                return ExtentFile(self._database, row)
        data = asked(lambda: self._database.checkpoint(int(name[:16], 16))) if is_checkpoint(name) else None
        if data is None:
            raise FileNotFoundError(name)
        return BytesFile(data)


def stored_tail(row: ShardRow) -> StoredTail:
    """What readers of a folder would be told."""
    return StoredTail(Durability.COMMIT, row.identity, row.head, row.floor, 0, row.low, row.epoch)


def _folder(row: ShardRow) -> Folder:
    return Folder(row.identity, row.created, row.epoch, row.low if row.extent else 0)


def _name(row: ExtentRow) -> str:
    return segment_name(row.first) + (KEPT if row.kept else "")


class _ReadOnly:
    """A file that nobody writes."""

    def read_now(self, size: int, offset: int) -> bytes | None:
        """See File: the database would have to be asked."""

    def write(self, parts: Sequence[Part], offset: int) -> NoReturn:
        raise PermissionError("a view of a database is not written to")

    def allocate(self, size: int) -> NoReturn:
        self.write((), 0)

    def truncate(self, size: int) -> NoReturn:
        self.write((), 0)

    def sync(self) -> NoReturn:
        self.write((), 0)


class BytesFile(_ReadOnly):
    """Bytes that are here."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int, offset: int) -> bytes:
        """See File."""
        return self._data[offset : offset + size]

    def size(self) -> int:
        """See File."""
        return len(self._data)

    def close(self) -> None:
        """See File."""


class ExtentFile(_ReadOnly):
    """An extent as a segment. Raises FileNotFoundError when it is there no more."""

    def __init__(self, database: ReadableDatabase, row: ExtentRow) -> None:
        self._database = database
        self._row = row
        self._copied: File | None = None

    def read(self, size: int, offset: int) -> bytes:
        """See File."""
        if self._copied is None and offset + size <= len(self._row.header):
            return self._row.header[offset : offset + size]
        data = self._copy().read(size, offset)
        behind = max(offset - self._copy().size(), 0)
        return data if self._row.finished else data + _RESERVED[behind : behind + size - len(data)]

    def size(self) -> int:
        """See File."""
        return self._copy().size() + (0 if self._row.finished else len(_RESERVED))

    def close(self) -> None:
        """See File."""
        if self._copied is not None:
            self._copied.close()

    def _copy(self) -> File:
        if self._copied is None:
            database, copy = self._database, ExtentCopy(self._row)
            head = asked(database.shard).head
            asked(lambda: copy.extend(database, self._row, head))
            self._copied = RealFile(copy.descriptor())
        return self._copied
