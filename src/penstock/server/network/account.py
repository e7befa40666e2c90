"""What the broker holds in memory for one session, and how fast its peer takes its output."""

from __future__ import annotations

from collections import deque
from typing import Final

#: Bytes that a peer has to take in a second, once its patience is over, to be waited for longer.
RATE: Final = 256 * 1024


class Account:
    """A session's part of ``Memory``: bytes of input, and of output that was prepared and not taken."""

    def __init__(self) -> None:
        self.input = 0
        self.output = 0
        #: Payloads that answers had to read before their turn.
        self.kept_bytes = 0
        #: Since when output has waited in the transport, which is up to the peer; 0 = none does. How much of it was
        #: taken since then, and when last.
        self.output_since = 0.0
        self.taken = 0
        self.taken_at = 0.0
        #: Bytes that wait in the transport, when we last looked.
        self.buffered = 0
        #: Writes of which something waits there. The transport keeps a write as a whole until its last byte is gone.
        self._unsent: deque[int] = deque()
        self.unsent_bytes = 0

    def hold(self, held_input: int, held_output: int) -> None:
        """The session holds this much now."""
        self.input = held_input
        self.output = held_output

    def add_output(self, size: int) -> None:
        """The session holds more output."""
        self.output += size

    def keep(self, change: int) -> None:
        """So many bytes more of payloads are kept for answers; if negative, fewer."""
        self.kept_bytes += change

    def note_written(self, written: int, buffered: int, now: float) -> None:
        """``written`` is what was written since the last time, ``buffered`` what waits in the transport now."""
        if not buffered:
            self.output_since = 0.0
        elif not self.buffered:
            self.output_since = self.taken_at = now
            self.taken = 0
        elif written + self.buffered > buffered:
            self.taken += written + self.buffered - buffered
            self.taken_at = now
        self.buffered = buffered
        if written:
            self._unsent.append(written)
            self.unsent_bytes += written
        while self._unsent and self.unsent_bytes - self._unsent[0] >= buffered:
            self.unsent_bytes -= self._unsent.popleft()

    def takes_too_little(self, now: float, patience: float) -> bool:
        """Whether the peer has taken nothing for so long, or less than RATE on the whole, of what waits for it."""
        enough = RATE * (now - self.output_since - patience)
        return now - self.taken_at > patience or self.taken < enough
