"""Where the log begins and ends, written for the next start (``penstock.json``) and for other processes (``tail``)."""

from __future__ import annotations

from penstock.journal.contract import Durability
from penstock.journal.errors import LogFull, is_full
from penstock.journal.files.disk import Disk
from penstock.journal.files.folder import Folder, store_folder
from penstock.journal.files.space import START_BYTES, DiskSpace
from penstock.journal.files.tail import TailWriter


class JournalMarks:
    """Writes both files. Nothing is changed before ``begin``."""

    def __init__(self, disk: Disk, space: DiskSpace, folder: Folder, floor: int) -> None:
        """``folder`` is what ``penstock.json`` says, ``floor`` where the history for readers begins."""
        self._disk = disk
        self._space = space
        self.folder = folder
        self.floor = floor
        self._tail: TailWriter | None = None

    def begin(self, durability: Durability) -> None:
        """Open the ``tail``."""
        self._tail = TailWriter(self._disk, durability, self.folder.identity)

    def set_floor(self, position: int) -> None:
        """Move the beginning of the history. Readers see it after the next ``publish``."""
        self.floor = position

    def publish(self, committed: int, start: int) -> None:
        """Show other processes how far the log is committed, and where it begins. One thread at a time."""
        assert self._tail is not None
        try:
            self._tail.publish(committed, max(self.floor, start), start, self.folder.epoch)
        except OSError as error:
            if not is_full(error):  # it has its block; where that is not enough, readers see the next one
                raise

    def store_epoch(self, epoch: int, start: int) -> None:
        """Put a new epoch on disk. Raises LogFull, OSError."""
        self._space.spend(lambda: self._store(epoch, start), START_BYTES)

    def store_start(self, start: int) -> bool:
        """Put on disk where the log begins: events missing from there on are lost. False: the disk is full."""
        try:
            self._space.spend(lambda: self._store(self.folder.epoch, start), START_BYTES)
        except LogFull:
            return False
        return True

    def keep_published(self) -> None:
        """Sync a copy of the published record, which needs no room. Not while another thread publishes."""
        assert self._tail is not None
        self._tail.keep()

    def _store(self, epoch: int, start: int) -> None:
        folder = self.folder._replace(epoch=epoch, start=start)
        store_folder(self._disk, folder)
        self.folder = folder

    def close(self) -> None:
        """Close the ``tail``."""
        if self._tail is not None:
            self._tail.close()
