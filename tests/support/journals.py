"""Journals for tests: on any disk, and in memory."""

from __future__ import annotations

from typing import Any

from penstock.journal.contract import OwnerOptions
from penstock.journal.files.disk import Disk
from penstock.journal.files.journal import OwnedFiles
from penstock.journal.files.log import FileLog
from penstock.journal.memory import MemoryDisk
from penstock.server.maintenance.retention import Retention
from penstock.server.process.opening import Opened, open_engine


def open_folder(
    disk: Disk, now: int, options: OwnerOptions | None = None, retention: Retention | None = None, **more: Any
) -> Opened:
    """A running engine on the journal of a disk."""
    return open_engine(OwnedFiles(disk, options), now, retention, **more)


class MemoryLog(FileLog):
    """A log in memory."""

    def __init__(self, extent_bytes: int = 2**20) -> None:
        super().__init__(MemoryDisk(), OwnerOptions(extent_bytes=extent_bytes, reserve=64 * 1024))
