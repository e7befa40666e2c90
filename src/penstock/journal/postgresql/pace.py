"""How large blocks may be, so that each gets to the database in a small part of the lease."""

from __future__ import annotations

#: Bytes of a block at first, at least and at most. All of it is read by whoever wants one message of it.
FIRST = 512 * 1024
LEAST = 64 * 1024
MOST = 4 * 1024 * 1024
#: The part of the lease that a block may take.
PART = 1 / 12


class BlockPace:
    """Follows the bandwidth, as the last blocks show it. A single message is never cut, however large it is."""

    def __init__(self, lease: float) -> None:
        self._seconds = lease * PART
        #: How many bytes a block may have now.
        self.bytes = FIRST

    def note(self, size: int, seconds: float) -> None:
        """A block of so many bytes took so long. Small ones tell nothing of the bandwidth."""
        if size < LEAST:
            return
        if seconds > self._seconds:
            self.bytes = max(LEAST, min(self.bytes, int(size * self._seconds / seconds)))
        elif 2 * size >= self.bytes:
            self.bytes = min(MOST, 2 * self.bytes)
