"""Files and folders on a local disk, written atomically and durably; and the error of this package."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


class LakeError(Exception):
    """The lake can't or must not be used. The text says why, and what to do."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically and durably."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Make a folder and its parents, and sync them to disk."""
    if not folder.exists():
        make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def remove(path: Path) -> None:
    """Remove a file or folder. If a task still writes into it, it may stay; that is no error."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            path.unlink()
