"""A backup of the journal in a database, made while a broker writes it: see ``journal.backup``.

Checkpoints are copied first, then the extents, oldest first. Messages that compaction removes meanwhile were copied
forward to a later extent. So the copy equals a folder after a crash at some moment since it began, unless an extent was
removed before it was copied: then the remaining files are listed and copied again.
"""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from penstock.journal.backup import BackupError, Manifest, Progress, copy_file, make_backup
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.tail import NAME as TAIL
from penstock.journal.format.segment import is_kept, is_segment
from penstock.journal.postgresql.database import ReadableDatabase
from penstock.journal.postgresql.folder_view import BytesFile, FolderView, stored_tail
from penstock.journal.postgresql.retries import retry_once
from penstock.journal.transfer import VALUES

#: How often the copy starts over because an extent was removed meanwhile.
TRIES = 20


def back_up(database: ReadableDatabase, target: str, progress: Progress) -> Manifest:
    """Copy the journal into a folder. Raises BackupError, LogError or OSError; then nothing is left at the target."""
    copying = _Copying(database, progress)
    return make_backup(lambda: stored_tail(retry_once(database.shard)), copying.run, target)


class _Copying:
    """One backup into a folder."""

    def __init__(self, database: ReadableDatabase, progress: Progress) -> None:
        self._database = database
        self._view = FolderView(database)
        self._progress = progress
        self._sizes: dict[str, int] = {}

    def run(self, folder: Path) -> dict[str, int]:
        """Copy everything. Returns the files and their sizes."""
        for _ in range(TRIES):
            with suppress(FileNotFoundError):  # it was removed between listing and copying it
                self._copy_all(folder)
                self._copy_values(folder)
                return self._sizes
        raise BackupError(f"{self._view.where} gives back its history faster than it can be copied")

    def _copy_all(self, folder: Path) -> None:
        names = [name for name in self._view.names() if name != TAIL and not is_kept(name)]
        for name in set(self._sizes) - {name for name in names if is_segment(name)}:
            (folder / name).unlink()
            del self._sizes[name]
        names.sort(key=lambda name: (is_segment(name), name != FOLDER, name))
        for name in names:
            if name not in self._sizes:
                with closing(self._view.open(name)) as file:
                    (folder / name).unlink(missing_ok=True)
                    self._sizes[name] = copy_file(file.read, folder / name, self._progress)

    def _copy_values(self, folder: Path) -> None:
        for name in VALUES:
            value = retry_once(self._database.value, name)
            if value is not None:
                self._sizes[name] = copy_file(BytesFile(value).read, folder / name, self._progress)
