"""The only module that touches files. Tests replace it by a disk that loses, tears and fails on request.

A disk is one folder. Errors are the operating system's OSErrors; callers decide what they mean.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from mypy_extensions import mypyc_attr

#: The kernel takes this many parts in one call (IOV_MAX).
_MOST_PARTS: Final = 1024
#: Linux: reading fails instead of waiting for the disk.
_NO_WAIT: Final = getattr(os, "RWF_NOWAIT", 0)

#: Suffix of a file that will replace another once it is on disk.
NEW: Final = ".new"

#: What can be written.
Part: TypeAlias = bytes | memoryview


class File(Protocol):
    """An open file. Threads can share it, because reads and writes state their offset."""

    def read(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    def read_now(self, size: int, offset: int) -> bytes | None:
        """The bytes if the system has all of them in memory; None if reading them might wait for the disk."""

    def write(self, parts: Sequence[Part], offset: int) -> int:
        """Write the parts in order. Returns how many bytes were written, which may be fewer."""

    def size(self) -> int:
        """Bytes in the file."""

    def allocate(self, size: int) -> None:
        """Make the file at least ``size`` bytes long, with zeros where nothing was written."""

    def truncate(self, size: int) -> None:
        """Cut the file to a size."""

    def sync(self) -> None:
        """Return once the bytes and the size are on disk."""

    def close(self) -> None:
        """Close it."""


class FileLock(Protocol):
    """A lock that is held until it is closed or the process ends."""

    def close(self) -> None:
        """Release it."""


@mypyc_attr(native_class=False)
class Held(Exception):
    """Another process has the lock; ``holder`` is the process number in it."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class ReadableDisk(Protocol):
    """One folder, for reading."""

    #: The folder, for display.
    where: str

    def names(self) -> list[str]:
        """The files in the folder."""

    def open(self, name: str) -> File:
        """Open a file for reading; for the folder's owner also for writing."""


class SharedDisk(ReadableDisk, Protocol):
    """One folder, for processes other than its owner."""

    def numbered(self) -> list[tuple[str, int]]:
        """The files, each with a number that a replacement of the same name would not have."""

    def number(self, name: str) -> int:
        """The number of a file. Raises FileNotFoundError."""

    def descriptor(self, name: str) -> int:
        """A new file descriptor for reading. Raises FileNotFoundError."""

    def path(self, name: str) -> str:
        """Where another process finds a file. Raises FileNotFoundError."""


class Disk(ReadableDisk, Protocol):
    """One folder, for its owner."""

    #: Whether a sync has anything to do.
    syncs: bool

    def create(self, name: str) -> File:
        """Create a file, which must not exist."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing another."""

    def unlink(self, name: str) -> None:
        """Remove a file."""

    def sync(self) -> None:
        """Return once the folder's names are on disk."""

    def free(self) -> int:
        """Free bytes."""

    def lock(self, name: str) -> FileLock:
        """Take a lock, and write our process number into its file. Raises Held."""


def write_all(file: File, parts: Sequence[Part], offset: int) -> int:
    """Write everything; returns the offset after it. Raises OSError if the disk accepts nothing."""
    if len(parts) <= _MOST_PARTS:
        return _write(file, parts, offset)
    for start in range(0, len(parts), _MOST_PARTS):
        offset = _write(file, parts[start : start + _MOST_PARTS], offset)
    return offset


def read_whole(disk: ReadableDisk, name: str) -> bytes:
    """The bytes of a file."""
    file = disk.open(name)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def replace_whole(disk: Disk, name: str, data: bytes) -> None:
    """Replace a file: after a crash either the old or the new one is there, complete."""
    new = name + NEW
    if new in disk.names():
        disk.unlink(new)
    file = disk.create(new)
    try:
        write_all(file, [data], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(new, name)
    disk.sync()


def _write(file: File, parts: Sequence[Part], offset: int) -> int:
    """Write as many parts as one call takes. The kernel may still write less, for instance of more than 2 GiB."""
    left = 0
    for part in parts:
        left += len(part)
    while left:
        written = file.write(parts, offset)
        if written <= 0:
            raise OSError(errno.EIO, "the disk accepts no more bytes")
        offset, left = offset + written, left - written
        if left:
            parts = _behind(parts, written)
    return offset


def _behind(parts: Sequence[Part], size: int) -> list[Part]:
    """The parts without their first ``size`` bytes, which are not all."""
    number = 0
    while size >= len(parts[number]):
        size -= len(parts[number])
        number += 1
    return [memoryview(parts[number])[size:], *parts[number + 1 :]]


@mypyc_attr(allow_interpreted_subclasses=True)
class RealFile:
    """A file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, size: int, offset: int) -> bytes:
        """One call is enough for a local file below 2 GiB."""
        return os.pread(self._fd, size, offset)

    def read_now(self, size: int, offset: int) -> bytes | None:
        """The bytes if they are in the page cache. None on file systems that can't tell."""
        buffer = bytearray(size)
        try:
            done = os.preadv(self._fd, [buffer], offset, _NO_WAIT) if _NO_WAIT else 0
        except OSError:  # an ordinary read reports the error, if there is one
            return None
        return bytes(buffer) if done == size else None

    def write(self, parts: Sequence[Part], offset: int) -> int:
        """Write as many parts as one call takes."""
        return os.pwritev(self._fd, parts if len(parts) <= _MOST_PARTS else parts[:_MOST_PARTS], offset)

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._fd).st_size

    def allocate(self, size: int) -> None:
        """Allocate space; on file systems that can't, make a hole."""
        have = self.size()
        if size <= have:
            return
        try:
            os.posix_fallocate(self._fd, have, size - have)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            os.ftruncate(self._fd, size)

    def truncate(self, size: int) -> None:
        """Cut the file to a size."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Sync the bytes, and the size if it has changed."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close it. Closing twice is allowed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class RealDisk:
    """A folder of the local file system."""

    syncs = True

    def __init__(self, folder: str | os.PathLike[str], *, read_only: bool = False) -> None:
        """``read_only`` is for processes other than the broker: nothing is created or opened for writing."""
        self._folder = Path(folder)
        self.where = str(self._folder)
        self._access = os.O_RDONLY if read_only else os.O_RDWR
        if not read_only:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o750)

    def names(self) -> list[str]:
        """The files in the folder."""
        return os.listdir(self._folder)

    def create(self, name: str) -> RealFile:
        """Create a file, which must not exist."""
        return RealFile(os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))

    def open(self, name: str) -> RealFile:
        """Open an existing file."""
        return RealFile(os.open(self._folder / name, self._access | os.O_CLOEXEC))

    def numbered(self) -> list[tuple[str, int]]:
        """The files and their inodes: a repair may replace a file by another of the same name."""
        with os.scandir(self._folder) as entries:
            return [(entry.name, entry.inode()) for entry in entries]

    def number(self, name: str) -> int:
        """Device and inode of a file."""
        found = os.stat(os.path.join(self.where, name))
        return found.st_dev << 64 | found.st_ino

    def descriptor(self, name: str) -> int:
        """A new file descriptor for reading."""
        return os.open(os.path.join(self.where, name), os.O_RDONLY | os.O_CLOEXEC)

    def path(self, name: str) -> str:
        """The absolute path of a file."""
        return os.path.abspath(os.path.join(self.where, name))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing another."""
        os.rename(self._folder / old, self._folder / new)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(self._folder / name)

    def sync(self) -> None:
        """Sync the folder's names."""
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free(self) -> int:
        """Bytes that an unprivileged user may write."""
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def lock(self, name: str) -> RealFile:
        """Take an ``flock``, which the kernel releases when the process ends."""
        fd = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sign(fd)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise Held(holder) from None
        except OSError:
            os.close(fd)
            raise
        return RealFile(fd)


def _sign(fd: int) -> None:
    """Overwrite the file with our process number, which needs no new block. A full disk is ignored."""
    try:
        os.ftruncate(fd, os.pwrite(fd, b"%d\n" % os.getpid(), 0))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
