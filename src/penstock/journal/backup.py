"""Backing up a journal while a broker writes to it, and restoring a backup.

The order makes the copy consistent: first the ``tail`` is read, then every file is opened, and only then copied. Files
that compaction or retention removes meanwhile stay readable; live messages of files removed before have been copied
forward to files that exist. So the copy is what a crash would have left at some moment since it began, and a start
repairs its end.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from penstock.journal.contract import Tail, resume_after
from penstock.journal.errors import JournalRefused, LogError
from penstock.journal.files.checkpoints import is_checkpoint
from penstock.journal.files.disk import Disk, RealDisk
from penstock.journal.files.folder import load_folder, store_folder
from penstock.journal.files.tail import NAME as TAIL
from penstock.journal.files.tail import TailReader, encode_tail
from penstock.journal.format.segment import is_segment

MANIFEST = "backup.json"
#: Files beside the log that belong to the journal.
BESIDE = ("penstock.json", "readers.json", "tokens.json")
PIECE = 4 * 2**20
#: How often the folder is listed until no new file appears while its files are opened.
TRIES = 20

#: Called with the number of bytes copied since the last call. Returning False cancels.
Progress = Callable[[int], bool]


class BackupError(LogError):
    """The backup was not made. The text says why."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup. It reaches ``position`` at least; ``created_at`` is when it was begun."""

    identity: str
    position: int
    created_at: int
    bytes: int
    files: dict[str, int]


def copy_journal(folder: str, target: str, progress: Progress = lambda size: True) -> Manifest:
    """Copy the journal in a folder. Raises BackupError or OSError; then nothing is left at the target."""
    return make_backup(lambda: _tail(folder), lambda partial: _copy_files(folder, partial, progress), target)


def make_backup(tail_of: Callable[[], Tail], copy_files: Callable[[Path], dict[str, int]], target: str) -> Manifest:
    """Make a backup of the files that ``copy_files`` puts into a folder. After an error nothing is left at the target.

    The tail, up to which the backup must reach, is read before anything is copied.
    """
    if os.path.lexists(target):
        raise BackupError(f"{target} exists already")
    begun = time.time_ns() // 1000
    tail = tail_of()
    partial = Path(f"{target}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True, mode=0o700)
    try:
        sizes = copy_files(partial)
        (partial / TAIL).write_bytes(encode_tail(tail))
        manifest = Manifest(
            identity=f"{tail.identity:016x}",
            position=tail.committed,
            created_at=begun,
            bytes=sum(sizes.values()),
            files={**sizes, TAIL: len(encode_tail(tail))},
        )
        _write(partial / MANIFEST, msgspec.json.encode(manifest))
        os.rename(partial, target)
        _sync_folder(os.path.dirname(target) or ".")
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest


def read_manifest(folder: str) -> Manifest | None:
    """The manifest of a complete backup; None for anything else."""
    try:
        return msgspec.json.decode(Path(folder, MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None


def check_backup(folder: str) -> Manifest:
    """The manifest of a backup whose files are all there. Raises BackupError."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise BackupError(f"{folder} is not a backup: it has no {MANIFEST} that can be read")
    for name, size in manifest.files.items():
        found = os.path.getsize(os.path.join(folder, name)) if os.path.exists(os.path.join(folder, name)) else -1
        if found != size:
            raise BackupError(f"{folder} is not whole: {name} has {found} bytes where {size} were copied")
    return manifest


def restore_backup(folder: str, data: str, progress: Progress = lambda size: True) -> Manifest:
    """Make a data folder from a backup. The journal repeats no position that was used after the backup.

    Raises BackupError, JournalRefused or OSError, and leaves nothing behind then.
    """
    manifest = check_backup(folder)
    if os.path.isdir(data) and os.listdir(data):
        raise JournalRefused(f"{data} is not empty: a backup is restored into a new folder")
    partial = Path(f"{data}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True, mode=0o700)
    try:
        for name in manifest.files:
            with open(os.path.join(folder, name), "rb") as source:
                _copy(source.fileno(), partial / name, progress)
        _sync_folder(str(partial))
        mark_put_back(RealDisk(partial), manifest.position)
        if os.path.isdir(data):
            os.rmdir(data)
        os.rename(partial, data)
        _sync_folder(os.path.dirname(os.path.abspath(data)))
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest


def mark_put_back(disk: Disk, end: int) -> int:
    """Record in a folder that events after a position were lost. Returns where numbering resumes.

    The caller must hold the folder's lock. Raises JournalRefused or OSError.
    """
    folder = load_folder(disk)
    if folder is None:
        raise JournalRefused(f"{disk.where} is not a journal: it has no penstock.json")
    resumes = max(folder.resumes, resume_after(end, time.time_ns() // 1000))
    store_folder(disk, folder._replace(resumes=resumes))
    return resumes


def _tail(folder: str) -> Tail:
    try:
        with closing(TailReader(folder)) as reader:
            return reader.read()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise BackupError(f"{folder} has no journal that can be read") from None


def _copy_files(folder: str, target: Path, progress: Progress) -> dict[str, int]:
    opened: dict[str, int] = {}
    try:
        for _ in range(TRIES):
            if not _open_new(folder, opened):
                break
        return {name: _copy(file, target / name, progress) for name, file in sorted(opened.items())}
    finally:
        for file in opened.values():
            os.close(file)


def _open_new(folder: str, opened: dict[str, int]) -> bool:
    """Open files that were created since the last look. False: there were none."""
    wanted = [name for name in os.listdir(folder) if is_segment(name) or is_checkpoint(name) or name in BESIDE]
    new = [name for name in wanted if name not in opened]
    for name in new:
        try:
            opened[name] = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # it was removed just now
    return bool(new)


def _copy(source: int, target: Path, progress: Progress) -> int:
    """Copy a file up to its current end. Returns its bytes."""
    return copy_file(lambda size, offset: os.pread(source, size, offset), target, progress)


def copy_file(read: Callable[[int, int], bytes], target: Path, progress: Progress) -> int:
    """Copy bytes into a new file until ``read(size, offset)`` returns none. Returns their number."""
    size = 0
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while data := read(PIECE, size):
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            size += len(data)
            if not progress(len(data)):
                raise BackupError("the copy was cancelled")
        os.fsync(file)
    finally:
        os.close(file)
    return size


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(str(path.parent))


def _sync_folder(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
