"""Room on the disk: how much there is, and a reserve for when there is none.

The reserve is a file, ``reserve``, whose blocks are allocated and never written. When a write finds the disk full, the
file is cut by what the write needs, and the write is done again. So acknowledgements, the copies of compaction and a
checkpoint have room also when somebody else has filled the disk. It is filled up again when there is room for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import RLock
from typing import Final, TypeVar

from penstock.journal.errors import LogFailed, LogFull, is_full
from penstock.journal.files.disk import Disk, File

NAME: Final = "reserve"
#: The last part of the reserve is for appends alone: whoever gives space back must not use up what is needed for that.
KEPT: Final = 4
#: The reserve has this part of what has to stay free (64 MiB by default), so much at most; and room for a checkpoint.
RESERVE_PART: Final = 16
MOST_RESERVE: Final = 256 * 2**20
#: What a start needs besides reading: ``penstock.json``, ``tail``, a socket, a new segment.
START_BYTES: Final = 256 * 1024

T = TypeVar("T")


class DiskSpace:
    """The room in a data folder. Any thread may use it. See ``contract.Space``."""

    def __init__(self, disk: Disk, step: int) -> None:
        """``step`` is what segments are reserved ahead by, where there is plenty."""
        self._disk = disk
        self._step = step
        self._changing = RLock()
        self._file: File | None = disk.open(NAME) if NAME in disk.names() else None
        #: Bytes in the reserve.
        self.reserve = self._file.size() if self._file is not None else 0
        #: How much the disk took when we last looked.
        self.free = disk.free()

    def look(self) -> int:
        """See Space. The reserve is apart."""
        try:
            return self._look()
        except OSError as error:
            raise LogFailed(f"the disk under {self._disk.where} can not be asked for its room: {error}") from error

    def _look(self) -> int:
        self.free = self._disk.free()
        return self.free

    def has_room(self, size: int) -> bool:
        """See Space. Some of it is left for the segment that grows."""
        return size <= 0 or size <= self.for_upkeep - 2 * self._step

    def fill_reserve(self, min_free: int, state: int) -> None:
        """See Space. The reserve has a part of what has to stay free, within bounds, and room for a checkpoint."""
        base = max(min(min_free // RESERVE_PART, MOST_RESERVE), 2 * self._step)
        self.fill(base + state + state // 4)

    def taken(self, size: int) -> None:
        """So many bytes were taken since the last look."""
        self.free -= size

    @property
    def step(self) -> int:
        """By how much a segment should be reserved ahead: less when room is short."""
        with contextlib.suppress(OSError):  # it is no reason to fail an append: what was seen last has to do
            self._look()
        return min(self._step, max(self.free, 0) // 16)

    @property
    def for_upkeep(self) -> int:
        """What may be used to give space back, or to write the state down."""
        return self._look() + self.reserve - self.reserve // KEPT

    def spend(self, write: Callable[[], T], size: int) -> T:
        """Write up to so many bytes, from the reserve where it must be. Raises LogFull when that is used up, too.

        ``write`` is done again after it found no room, so it must write the same to the same place, and sync only what
        it makes anew.
        """
        while True:
            try:
                return write()
            except OSError as error:
                if not is_full(error):
                    raise
                if not self._give(size):
                    raise LogFull(
                        f"the disk under {self._disk.where} is full: {error}. Make room, and it goes on"
                    ) from error
                size *= 4  # if that was not enough, somebody else was quicker

    def make_sure(self, size: int) -> None:
        """Have so many bytes free, as far as the reserve has them."""
        missing = size - self._look()
        if missing > 0:
            self._give(missing)

    def check(self, size: int) -> None:
        """Raise LogFull unless so many bytes may be used for upkeep."""
        room = self.for_upkeep
        if room < size:
            raise LogFull(f"the disk under {self._disk.where} is nearly full: {size} bytes needed, {max(room, 0)} free")

    def fill(self, size: int) -> None:
        """Bring the reserve to this size, if as much again stays free; make it smaller if it is far larger."""
        with self._changing:
            if self.reserve > 2 * size:
                self._cut(size)
            elif self.reserve < size <= self._look() - (size - self.reserve):
                self._grow(size)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _give(self, size: int) -> bool:
        """Take so many bytes out of the reserve. False when there are none."""
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
        """Whatever goes wrong: there is less of a reserve then, and who writes what matters finds out."""
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
