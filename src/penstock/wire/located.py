"""Decoders that also say where in the stream each message stood: for captures, where that matters.

A frame of a decoder may be a run of like messages, and it does not say where it came from. The decoders here keep, for
each frame that ``feed`` returns, a :class:`Place`. The exact parser knows where a message began and ended. For what the
fast pass takes, the lengths of a run's messages follow from what they hold; where they do not add up to what was taken
(a number with leading zeros, say), that stretch is read again by the exact parser alone.

Each protocol has its own beside its codec: ``class LocatedDecoder(Located[Frame], Decoder)``. Where the fast pass does
nothing that is all.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, NamedTuple, TypeVar

from penstock.wire.stream import StreamDecoder

FrameT = TypeVar("FrameT")


class Place(NamedTuple):
    """Where the messages of one frame stood: the first at ``start``, ``between`` bytes after each but the last."""

    start: int
    lengths: list[int]
    between: int = 0


class Located(StreamDecoder[FrameT], Generic[FrameT]):
    """What the located decoders share. ``places`` has one for each frame of the last ``feed``."""

    def __init__(self, max_payload: int) -> None:
        super().__init__(max_payload)  # type: ignore[call-arg]  # that of the protocol's decoder
        self.places: list[Place] = []
        self._exact_until = 0
        self._base = 0

    def feed(self, data: bytes) -> list[FrameT]:
        """As ever. ``places`` is filled beside."""
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
        """Keep the place of what was taken between ``pos`` and ``stop``; or give it back, if the sum is not right."""
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
