"""Extents of the database as local segment files, which readers map like the files of a folder.

A copy consists of the extent's header and its blocks, one after the other. Once the extent is finished and completely
copied, an index and a footer follow: byte for byte the file that a folder would have. The file has no name, so it
disappears with its last open descriptor, even after a kill, and remains readable as long as it is open, even if the
extent is trimmed. Of a growing extent, a copy contains as much as was requested so far.
"""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from penstock.journal.errors import LogFailed
from penstock.journal.files.disk import RealFile
from penstock.journal.files.mapped_segment import MappedSegment
from penstock.journal.files.segment_assembly import SegmentAssembly, SegmentSums
from penstock.journal.format.segment import segment_name
from penstock.journal.postgresql.database import ExtentRow, ReadableDatabase

#: Bytes per statement: enough to make its overhead negligible, few enough for a short wait.
PIECE = 8 * 2**20
#: Bytes of copies that are cached for later readers. Copies in use come on top.
KEPT_BYTES = 2**30

#: Name and checksum of the header: together they identify an extent.
Key = tuple[str, int]


def key_of(row: ExtentRow) -> Key:
    """Identifies an extent, also among those of another journal that takes the place of this one."""
    return segment_name(row.first), int.from_bytes(row.header[-4:], "little")


class ExtentCopy:
    """One extent as a file. Threads take turns with ``extend``."""

    def __init__(self, row: ExtentRow) -> None:
        """Raises LogFailed if it cannot be written."""
        self.first = row.first
        self.whole = False
        self._lock = Lock()
        self._file = -1
        with _disk_errors():
            self._file = _anonymous()
            self._assembly = SegmentAssembly(RealFile(self._file), row.header, row.first)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    @property
    def size(self) -> int:
        """Its bytes without the index."""
        return self._assembly.size

    def descriptor(self) -> int:
        """A new descriptor, which the caller closes."""
        return os.dup(self._file)

    def extend(self, database: ReadableDatabase, row: ExtentRow, until: int) -> None:
        """Fetch the missing blocks up to a position, or all of a finished extent.

        If rows are missing in the database, the copy ends early, and its readers find it damaged there. Raises
        DatabaseError, FileNotFoundError if the extent was trimmed, LogFailed if the copy cannot be written.
        """
        with self._lock, _disk_errors():
            wanted = row.end if row.finished else until
            while self._assembly.end < wanted and self._fetch(database):
                pass
            if row.finished and not self.whole and self._assembly.end == row.end:
                self._assembly.finish(SegmentSums(row.flags, row.first, row.end, row.last_at, row.chain, row.blocks))
                self.whole = True

    def _fetch(self, database: ReadableDatabase) -> bool:
        """Fetch some more blocks. False: there are none."""
        rows = database.blocks(self.first, self._assembly.end, PIECE)
        if not rows and all(each.first != self.first for each in database.extents()):
            raise FileNotFoundError(segment_name(self.first))
        self._assembly.add([(row.first, row.end, row.data) for row in rows])
        return bool(rows)


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise  # the extent was trimmed
    except OSError as error:
        raise LogFailed(f"a copy of the journal cannot be kept in {tempfile.gettempdir()}: {error.strerror}") from error


def _anonymous() -> int:
    """A file without a name."""
    with tempfile.TemporaryFile(prefix="penstock-") as file:
        return os.dup(file.fileno())


class ExtentCopies:
    """A cache of copies, the most recently used last. Threads may share one."""

    def __init__(self, database: ReadableDatabase, kept_bytes: int = KEPT_BYTES) -> None:
        self._database = database
        self._kept_bytes = kept_bytes
        self._lock = Lock()
        self._copies: OrderedDict[Key, ExtentCopy] = OrderedDict()
        self._mapped: dict[Key, MappedSegment] = {}

    def mapped(self, row: ExtentRow, until: int) -> MappedSegment:
        """An extent, complete up to a position. Raises the errors of ``ExtentCopy.extend``."""
        key = key_of(row)
        copy = self._copy(key, row)
        copy.extend(self._database, row, until)
        with self._lock:
            mapped = self._mapped.get(key)
            if mapped is None or (mapped.footer is None and copy.whole):
                mapped = MappedSegment(copy.descriptor(), key[0])
                if key in self._copies:
                    self._mapped[key] = mapped
            self._drop_others(key)
            return mapped

    def has(self, key: Key) -> bool:
        """Whether there is a copy of an extent."""
        return key in self._copies

    def file(self, name: str) -> RealFile:
        """The copy of an extent. Raises FileNotFoundError if there is none."""
        with self._lock:
            for key, copy in self._copies.items():
                if key[0] == name:
                    return RealFile(copy.descriptor())
        raise FileNotFoundError(name)

    def clear(self) -> None:
        """Forget all copies."""
        with self._lock:
            self._copies.clear()
            self._mapped.clear()

    def _copy(self, key: Key, row: ExtentRow) -> ExtentCopy:
        with self._lock:
            copy = self._copies.get(key)
            if copy is None:
                copy = self._copies[key] = ExtentCopy(row)
            self._copies.move_to_end(key)
            return copy

    def _drop_others(self, latest: Key) -> None:
        kept = sum(copy.size for copy in self._copies.values())
        for key in list(self._copies):
            if kept <= self._kept_bytes:
                return
            if key != latest:
                kept -= self._copies.pop(key).size
                self._mapped.pop(key, None)
