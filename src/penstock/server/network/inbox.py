"""What a session has read and not worked on yet: bytes that wait to be decoded, then frames that wait to be handled."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from penstock.wire.stream import StreamDecoder

FrameT = TypeVar("FrameT")

#: Bytes of postponed input that are decoded at a time, for each frame that may be handled.
PIECE_BYTES: Final = 512
#: About what a decoded frame costs while it waits.
FRAME_BYTES: Final = 256


class Inbox(Generic[FrameT]):
    """The input of one session."""

    def __init__(self, decoder: StreamDecoder[FrameT]) -> None:
        self.decoder = decoder
        #: Decoded frames, oldest first.
        self.frames: deque[FrameT] = deque()
        #: Reads that are not decoded yet.
        self.unread: deque[bytes] = deque()
        #: When the message that is coming in began, on the loop's clock; 0 = none is.
        self.unfinished_since = 0.0
        #: Bytes from which the frames were decoded, and those of the postponed reads.
        self._frame_bytes = 0
        self._unread_bytes = 0

    def decode(self, data: bytes, now: float) -> int:
        """Decode a read that came now. Returns how many frames it completed."""
        frames, size = self.frames, len(data)
        decoded = self.decoder.feed(data)
        self._frame_bytes = self._frame_bytes + size if frames else size
        frames.extend(decoded)
        if self.decoder.between_messages:
            self.unfinished_since = 0.0
        elif decoded or not self.unfinished_since:  # the unfinished message has begun since the last complete one
            self.unfinished_since = now
        return len(decoded)

    def postpone(self, data: bytes) -> None:
        """Decode this read later."""
        self.unread.append(data)
        self._unread_bytes += len(data)

    def next_piece(self, most_frames: int) -> bytes:
        """Take the next postponed bytes: a small piece where few frames may be handled."""
        data, size = self.unread.popleft(), most_frames * PIECE_BYTES
        if len(data) > size:
            self.unread.appendleft(data[size:])
            data = data[:size]
        self._unread_bytes -= len(data)
        return data

    def replace_first(self, frame: FrameT) -> None:
        """Part of the first frame is done: this is the rest."""
        self.frames[0] = frame

    def resumed(self, now: float) -> None:
        """The peer is read from again: an unfinished message was held up by us until now."""
        if self.unfinished_since:
            self.unfinished_since = now

    def clear(self) -> None:
        """Drop everything that was not worked on."""
        self.frames.clear()
        self.unread.clear()
        self._unread_bytes = 0

    @property
    def held_bytes(self) -> int:
        """About how much memory it takes."""
        held = self.decoder.held + self._unread_bytes
        return held + self._frame_bytes + FRAME_BYTES * len(self.frames) if self.frames else held
