"""Small named values beside the log, each in a file that is replaced atomically."""

from __future__ import annotations

from threading import Lock

from typing_extensions import override

from penstock.journal.contract import ValueStore
from penstock.journal.files.disk import Disk, write_all

#: Suffix of a new value until it is on disk.
NEW = ".new"
DAMAGED = ".damaged"


class FileValues(ValueStore):
    """The values in a data folder. Any thread may use it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = Lock()

    @override
    def get(self, name: str) -> bytes | None:
        if name not in self._disk.names():
            return None
        file = self._disk.open(name)
        try:
            return file.read(file.size(), 0)
        finally:
            file.close()

    @override
    def put(self, name: str, value: bytes) -> None:
        """Sync the folder too, or a power failure may bring back the old file."""
        with self._lock:
            self._remove(name + NEW)
            file = self._disk.create(name + NEW)
            try:
                write_all(file, [value], 0)
                file.sync()
            finally:
                file.close()
            self._disk.rename(name + NEW, name)
            self._disk.sync()

    @override
    def delete(self, name: str) -> None:
        with self._lock:
            self._remove(name)
            self._disk.sync()

    @override
    def set_aside(self, name: str) -> None:
        with self._lock:
            self._disk.rename(name, name + DAMAGED)

    def _remove(self, name: str) -> None:
        if name in self._disk.names():
            self._disk.unlink(name)
