"""Limits the size of blocks, so that each reaches the database within a small part of the lease."""

from __future__ import annotations

#: Bytes of a block: at first, at least and at most. Reading one message of a block means reading all of it.
FIRST = 512 * 1024
LEAST = 64 * 1024
MOST = 4 * 1024 * 1024
#: The part of the lease that sending a block may take.
PART = 1 / 12


class BlockPace:
    """Follows the bandwidth that the last blocks had. A single message is never split, however large it is."""

    def __init__(self, lease: float) -> None:
        self._seconds = lease * PART
        #: The current limit of a block's bytes.
        self.bytes = FIRST

    def note(self, size: int, seconds: float) -> None:
        """Record how long a block of ``size`` bytes took. Small blocks do not show the bandwidth."""
        if size < LEAST:
            return
        if seconds > self._seconds:
            self.bytes = max(LEAST, min(self.bytes, int(size * self._seconds / seconds)))
        elif 2 * size >= self.bytes:
            self.bytes = min(MOST, 2 * self.bytes)
