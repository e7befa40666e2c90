"""A disk in memory that forgets, tears, flips and fails as real ones do, reproducibly for each seed.

Readers see a write at once, but only a sync makes it *stable*. ``crash`` brings back the stable
state plus whatever part of the rest the disk happened to have written: nothing, all, some of the writes, or some of the
bytes of a write. Creating, renaming and removing files are such changes too, made stable by a sync of the folder. The
disk has ``space``, which may be changed at any time, and takes no more when that is used up.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from penstock.journal.files.disk import Held, Part

#: A disk's atomic unit: a torn write is torn between two of these.
SECTOR = 512

T = TypeVar("T")


class Inode:
    """The bytes of a file: as readers see them, as they are on disk, and the changes between the two."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.stable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []  # write at an offset, or (None) set the size

    def change(self, offset: int, data: bytes | None) -> None:
        _apply(self.seen, offset, data)
        self.pending.append((offset, data))

    def settle(self) -> None:
        for change in self.pending:
            _apply(self.stable, *change)
        self.pending.clear()


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(offset - len(content), 0)))
    content[offset : offset + len(data)] = data


class SimFile:
    """An open file. Useless after a crash."""

    def __init__(self, disk: SimDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.lives

    def read_now(self, size: int, offset: int) -> bytes | None:
        """The page cache is always empty."""
        return None

    def _call(self, name: str) -> bool:
        if self._life != self._disk.lives:
            raise OSError(errno.EBADF, "the machine was restarted")
        return self._disk.call(name)

    def read(self, size: int, offset: int) -> bytes:
        self._call("read")
        return bytes(self._inode.seen[offset : offset + size])

    def write(self, parts: Sequence[Part], offset: int) -> int:
        data = b"".join(parts)
        if self._call("write"):
            data = data[: self._disk.random.randrange(1, len(data) + 1)]
        data = data[: max(len(self._inode.seen) - offset, 0) + max(self._disk.left, 0)]
        if not data and any(parts):
            raise OSError(errno.ENOSPC, "No space left on device")
        self._inode.change(offset, data)
        return len(data)

    def size(self) -> int:
        return len(self._inode.seen)

    def allocate(self, size: int) -> None:
        self._call("allocate")
        if size > len(self._inode.seen):
            if size - len(self._inode.seen) > self._disk.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._inode.change(size, None)

    def truncate(self, size: int) -> None:
        self._call("truncate")
        self._inode.change(size, None)

    def sync(self) -> None:
        try:
            self._call("sync")
        except OSError:
            # As on Linux, the pages count as clean now, so no later sync writes them: they are lost.
            self._inode.pending.clear()
            raise
        self._inode.settle()

    def close(self) -> None:
        """Closing never fails, because the journal does not depend on it."""


class SimLock:
    def __init__(self, disk: SimDisk, name: str) -> None:
        self._disk, self._name = disk, name
        disk.locks.add(name)

    def close(self) -> None:
        self._disk.locks.discard(self._name)


class SimDisk:
    """One folder on the simulated disk."""

    where = "/sim"
    syncs = True

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.seen: dict[str, Inode] = {}
        self.stable: dict[str, Inode] = {}
        self.pending: list[Callable[[dict[str, Inode]], object]] = []
        self.locks: set[str] = set()
        self.lives = 0
        self.space = 1 << 40
        #: Number of calls, by name and in total.
        self.calls: Counter[str] = Counter()
        self.made = 0
        self._fault: tuple[int, str] | None = None
        #: The last call that failed.
        self.failed = ""

    # Faults

    def fail_at(self, number: int, how: str) -> None:
        """Make the call with this number fail: "EIO", "ENOSPC", or "short" (a write that takes only a part)."""
        self._fault = (number, how)

    def call(self, name: str) -> bool:
        """Count a call. Raises if it is to fail; returns whether it is to be a short write."""
        self.calls[name] += 1
        self.made += 1
        if self._fault is None or self._fault[0] != self.made:
            return False
        how = self._fault[1]
        if how == "short":
            return True
        self.failed = name
        raise OSError(getattr(errno, how), f"simulated {how} in {name}")

    def flip(self, name: str, bit: int) -> None:
        """Flip one bit of a file, on disk and for readers."""
        inode = self.seen[name]
        for content in {id(each): each for each in (inode.seen, inode.stable)}.values():
            content[bit // 8] ^= 1 << bit % 8

    def crash(self, keep: str = "any") -> None:
        """Lose power. ``keep`` selects the unsynced changes that survive: "none", "all" or "any" (some, torn)."""
        self.lives += 1
        self.locks.clear()
        self._fault = None
        for change in self._kept(self.pending, keep):
            change(self.stable)
        self.pending.clear()
        for inode in {id(each): each for each in self.stable.values()}.values():
            for offset, data in self._kept(inode.pending, keep):
                self._put(inode.stable, offset, data, keep)
            inode.pending.clear()
            inode.seen = bytearray(inode.stable)
        self.seen = dict(self.stable)

    def _kept(self, changes: list[T], keep: str) -> list[T]:
        if keep == "none" or not changes:
            return []
        if keep == "all" or self.random.random() < 0.25:
            return list(changes)
        if self.random.random() < 0.5:
            return changes[: self.random.randrange(len(changes) + 1)]
        return [change for change in changes if self.random.random() < 0.5]

    def _put(self, content: bytearray, offset: int, data: bytes | None, keep: str) -> None:
        """Apply a change that reached the disk, possibly only part of a write."""
        if data is None or keep == "all" or self.random.random() < 0.4:
            _apply(content, offset, data)
        elif self.random.random() < 0.5:
            _apply(content, offset, data[: self.random.randrange(len(data) + 1)])
        else:
            for at in range(0, len(data), SECTOR):
                if self.random.random() < 0.5:
                    _apply(content, offset + at, data[at : at + SECTOR])

    # The folder

    def names(self) -> list[str]:
        self.call("names")
        return list(self.seen)

    def create(self, name: str) -> SimFile:
        self.call("create")
        if name in self.seen:
            raise FileExistsError(errno.EEXIST, "exists", name)
        inode = Inode()
        self._change(lambda names: names.__setitem__(name, inode))
        return SimFile(self, inode)

    def open(self, name: str) -> SimFile:
        self.call("open")
        if name not in self.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return SimFile(self, self.seen[name])

    def rename(self, old: str, new: str) -> None:
        self.call("rename")

        def change(names: dict[str, Inode]) -> None:
            if old in names:
                names[new] = names.pop(old)

        self._change(change)

    def unlink(self, name: str) -> None:
        self.call("unlink")
        self._change(lambda names: names.pop(name, None))

    def _change(self, change: Callable[[dict[str, Inode]], object]) -> None:
        change(self.seen)
        self.pending.append(change)

    def sync(self) -> None:
        self.call("sync folder")
        self.stable = dict(self.seen)
        self.pending.clear()

    def free(self) -> int:
        self.call("free")
        return self.left

    @property
    def left(self) -> int:
        """Free space, in bytes. Creating and renaming files costs nothing."""
        return self.space - sum(len(inode.seen) for inode in self.seen.values())

    def lock(self, name: str) -> SimLock:
        self.call("lock")
        if name in self.locks:
            raise Held("4711")
        return SimLock(self, name)
