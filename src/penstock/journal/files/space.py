"""Free space on the disk, and a reserve for when there is none.

The reserve is a file, ``reserve``, whose blocks are allocated and never written. When a write finds the disk full, the
reserve is cut by the size of the write, and the write is repeated. So acknowledgements, compaction and a checkpoint
have room even if another program has filled the disk. The reserve is refilled when there is room for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import RLock
from typing import Final, TypeVar

from penstock.journal.errors import LogFailed, LogFull, is_full
from penstock.journal.files.disk import Disk, File

NAME: Final = "reserve"
#: The last part (1/KEPT) of the reserve is for appends alone: compaction must not use it up.
KEPT: Final = 4
#: The reserve is 1/RESERVE_PART of what must stay free (64 MiB by default), at most MOST_RESERVE, plus a checkpoint.
RESERVE_PART: Final = 16
MOST_RESERVE: Final = 256 * 2**20
#: Bytes that a start writes: ``penstock.json``, ``tail``, a socket, a new segment.
START_BYTES: Final = 256 * 1024

T = TypeVar("T")


class DiskSpace:
    """The free space of a data folder. Implements ``contract.Space``. Any thread may use it."""

    def __init__(self, disk: Disk, step: int) -> None:
        """``step`` is how far ahead segments are allocated while there is plenty of space."""
        self._disk = disk
        self._step = step
        self._changing = RLock()
        self._file: File | None = disk.open(NAME) if NAME in disk.names() else None
        #: Bytes in the reserve.
        self.reserve = self._file.size() if self._file is not None else 0
        #: Free bytes at the last look.
        self.free = disk.free()

    def look(self) -> int:
        """Free bytes now, without the reserve."""
        try:
            return self._look()
        except OSError as error:
            raise LogFailed(f"the free space under {self._disk.where} is unknown: {error}") from error

    def _look(self) -> int:
        self.free = self._disk.free()
        return self.free

    def has_room(self, size: int) -> bool:
        """Whether compaction may write ``size`` bytes. Leaves some for the segment that grows."""
        return size <= 0 or size <= self.for_upkeep - 2 * self._step

    def fill_reserve(self, min_free: int, state: int) -> None:
        """Fill the reserve: a part of ``min_free``, within bounds, and room for a checkpoint of ``state`` bytes."""
        base = max(min(min_free // RESERVE_PART, MOST_RESERVE), 2 * self._step)
        self.fill(base + state + state // 4)

    def taken(self, size: int) -> None:
        """Subtract bytes that were allocated since the last look."""
        self.free -= size

    @property
    def step(self) -> int:
        """How far ahead a segment should be allocated: less when space is short."""
        with contextlib.suppress(OSError):  # no reason to fail an append: the last figure will do
            self._look()
        return min(self._step, max(self.free, 0) // 16)

    @property
    def for_upkeep(self) -> int:
        """Bytes that compaction and checkpoints may use."""
        return self._look() + self.reserve - self.reserve // KEPT

    def spend(self, write: Callable[[], T], size: int) -> T:
        """Write up to ``size`` bytes, using the reserve if necessary. Raises LogFull when that is used up too.

        ``write`` is repeated after it found no room, so it must write the same bytes to the same place, and sync
        nothing but new files.
        """
        while True:
            try:
                return write()
            except OSError as error:
                if not is_full(error):
                    raise
                if not self._give(size):
                    raise LogFull(
                        f"the disk under {self._disk.where} is full: {error}. Free some space, and it continues"
                    ) from error
                size *= 4  # if that was not enough, another program was faster

    def make_sure(self, size: int) -> None:
        """Free ``size`` bytes on the disk, as far as the reserve has them."""
        missing = size - self._look()
        if missing > 0:
            self._give(missing)

    def check(self, size: int) -> None:
        """Raise LogFull unless compaction or a checkpoint may use ``size`` bytes."""
        room = self.for_upkeep
        if room < size:
            raise LogFull(f"the disk under {self._disk.where} is nearly full: {size} bytes needed, {max(room, 0)} free")

    def fill(self, size: int) -> None:
        """Grow the reserve to this size if as much again stays free; shrink it if it is more than twice as large."""
        with self._changing:
            if self.reserve > 2 * size:
                self._cut(size)
            elif self.reserve < size <= self._look() - (size - self.reserve):
                self._grow(size)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _give(self, size: int) -> bool:
        """Release ``size`` bytes of the reserve. False if it is empty."""
        with self._changing:
            if not self.reserve:
                return False
            self._cut(max(self.reserve - size, 0))
            return True

    def _cut(self, size: int) -> None:
        assert self._file is not None
        self._file.truncate(size)
        self.reserve = size

    def _grow(self, size: int) -> None:
        """Errors are ignored: the reserve stays smaller, and the writes that matter report them."""
        try:
            if self._file is None:
                self._file = self._disk.create(NAME)
            self._file.allocate(size)
        except OSError:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.truncate(self.reserve)
            return
        self.reserve = size
