"""A real folder with a limited capacity, for tests that cannot mount a small file system.

The capacity is a number in a file, so that a test can fill the disk under a running broker, and make room again. With
0, even overwriting fails, as on file systems that never write in place.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.journal.files.disk import Part, RealDisk, RealFile


class SmallDisk(RealDisk):
    """A folder whose files may hold ``capacity`` bytes. Names cost nothing."""

    def __init__(self, folder: Path, capacity: Path) -> None:
        """``capacity`` is the file with the number; see ``set_capacity``."""
        super().__init__(folder)
        self._capacity = capacity

    @property
    def left(self) -> int:
        """Free space, in bytes."""
        with os.scandir(self._folder) as entries:
            used = sum(entry.stat().st_size for entry in entries)
        return self.capacity - used

    @property
    def capacity(self) -> int:
        """Its size in bytes."""
        return int(self._capacity.read_text())

    def free(self) -> int:
        return max(self.left, 0)

    def create(self, name: str) -> SmallFile:
        return SmallFile(super().create(name), self)

    def open(self, name: str) -> SmallFile:
        return SmallFile(super().open(name), self)


class SmallFile(RealFile):
    """A file on such a disk."""

    def __init__(self, file: RealFile, disk: SmallDisk) -> None:
        super().__init__(file._fd)
        self._disk = disk

    def write(self, parts: Sequence[Part], offset: int) -> int:
        data = b"".join(parts)
        if not self._disk.capacity:
            raise OSError(errno.ENOSPC, "No space left on device")
        grows = offset + len(data) - self.size()
        if grows > 0:
            data = data[: len(data) - grows + min(grows, self._disk.free())]
        if not data:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write([data], offset)

    def allocate(self, size: int) -> None:
        if size - self.size() > self._disk.free():
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(size)


def set_capacity(capacity: Path, size: int) -> None:
    """Set the disk's size, atomically, because a broker may be reading it."""
    new = capacity.with_suffix(".new")
    new.write_text(str(size))
    new.replace(capacity)


def used(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(each.stat().st_size for each in folder.iterdir() if each.is_file())
