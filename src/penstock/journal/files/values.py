"""Small named values beside the log, each in a file that is replaced atomically."""

from __future__ import annotations

from threading import Lock

from typing_extensions import override

from penstock.journal.contract import ValueStore
from penstock.journal.files.disk import Disk, read_whole, replace_whole

#: Suffix of a value that was set aside.
DAMAGED = ".damaged"


class FileValues(ValueStore):
    """The values in a data folder. Any thread may use it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = Lock()

    @override
    def get(self, name: str) -> bytes | None:
        return read_whole(self._disk, name) if name in self._disk.names() else None

    @override
    def put(self, name: str, value: bytes) -> None:
        with self._lock:
            replace_whole(self._disk, name, value)

    @override
    def delete(self, name: str) -> None:
        with self._lock:
            if name in self._disk.names():
                self._disk.unlink(name)
            self._disk.sync()

    @override
    def set_aside(self, name: str) -> None:
        with self._lock:
            self._disk.rename(name, name + DAMAGED)
