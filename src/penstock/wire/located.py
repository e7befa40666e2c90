"""Decoders that also report the place of each message in the stream: for captures.

A decoder's frame may be a run of similar messages, and does not contain its place. The decoders here keep a
:class:`Place` for each frame that ``feed`` returns. The exact parser knows where a message began and ended. For a run
that the fast pass has read, the lengths of its messages are computed from their contents. If the sum differs from the
bytes read (because of a number with leading zeros, say), the exact parser alone reads that stretch again.

Each protocol has its own beside its codec: ``class LocatedDecoder(Located[Frame], Decoder)``. A protocol without a fast
pass needs nothing else.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, NamedTuple, TypeVar

from penstock.wire.stream import StreamDecoder

FrameT = TypeVar("FrameT")


class Place(NamedTuple):
    """The place of one frame's messages: the first is at ``start``, and ``between`` bytes separate two of them."""

    start: int
    lengths: list[int]
    between: int = 0


class Located(StreamDecoder[FrameT], Generic[FrameT]):
    """Base of the located decoders. ``places`` has one for each frame of the last ``feed``."""

    def __init__(self, max_payload: int) -> None:
        super().__init__(max_payload)  # type: ignore[call-arg]  # calls the protocol's decoder
        self.places: list[Place] = []
        self._exact_until = 0
        self._base = 0

    def feed(self, data: bytes) -> list[FrameT]:
        """As ``StreamDecoder.feed``; also fills ``places``."""
        self.places = []
        return super().feed(data)

    def _message(self) -> Generator[int, bytes, FrameT | None]:
        start = self.offset
        frame = yield from super()._message()  # type: ignore[safe-super]
        if frame is not None:
            self.places.append(Place(start, [self.offset - start]))
        return frame

    def _run(self, data: bytes, pos: int, frames: list[FrameT]) -> int:
        if self.offset < self._exact_until:
            return pos
        self._base = self.offset - pos
        return super()._run(data, pos, frames)  # type: ignore[safe-super]

    def _note(self, pos: int, stop: int, frames: list[FrameT], before: int, lengths: list[int], between: int) -> int:
        """Note the place of the run between ``pos`` and ``stop``; or undo the run if its lengths do not add up."""
        if len(frames) == before:
            return stop
        if len(lengths) == 1:
            lengths = [stop - pos]
        elif sum(lengths) + between * (len(lengths) - 1) != stop - pos:
            frames.pop()
            self._exact_until = self._base + stop
            return pos
        self.places.append(Place(self._base + pos, lengths, between))
        return stop
