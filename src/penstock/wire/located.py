"""Decoders that also say where in the stream each message stood: for captures, where that matters.

A frame of a decoder may be a run of like messages, and it does not say where it came from. The decoders here keep, for
each frame that ``feed`` returns, a :class:`Place`. The exact parser knows where a message began and ended. For what the
fast pass takes, the lengths of a run's messages follow from what they hold; where they do not add up to what was taken
(a number with leading zeros, say), that stretch is read again by the exact parser alone.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, NamedTuple, TypeVar

from penstock.wire import kokaq, phpmq, sspq
from penstock.wire.phpmq.forms import Form
from penstock.wire.stream import StreamDecoder

FrameT = TypeVar("FrameT")

#: Both headers of a Kokaq message and the header of one component.
_KOKAQ_HEADERS, _KOKAQ_COMPONENT = 12, 8
#: A whole answer to Push as a run has it.
_KOKAQ_PUSHED = 39


class Place(NamedTuple):
    """Where the messages of one frame stood: the first at ``start``, ``between`` bytes after each but the last."""

    start: int
    lengths: list[int]
    between: int = 0


class _Located(StreamDecoder[FrameT], Generic[FrameT]):
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


class SspqDecoder(_Located[sspq.SspqFrame], sspq.Decoder):  # type: ignore[misc]  # its _message never returns None
    """SSPQ, either direction."""

    def _run(self, data: bytes, pos: int, frames: list[sspq.SspqFrame]) -> int:
        before = len(frames)
        start = self.offset
        stop = super()._run(data, pos, frames)
        for frame in frames[before:]:
            lengths = [len(payload) + 8 for payload in frame.payloads] if isinstance(frame, sspq.Send) else [8]
            self.places.append(Place(start, lengths))
            start += sum(lengths)
        return stop


class _Phpmq(_Located[phpmq.PhpmqFrame]):
    def _like(self, data: bytes, pos: int, frames: list[phpmq.PhpmqFrame], form: Form) -> int:
        if self._base + pos < self._exact_until:
            return pos
        before = len(frames)
        stop: int = super()._like(data, pos, frames, form)  # type: ignore[misc]
        if len(frames) == before:
            return stop
        lengths = _phpmq_lengths(frames[-1], form)
        between = len(form.line_end)
        if between and sum(lengths) == stop - pos:
            between = 0
        if not _all_begin(data, pos, lengths, between):
            lengths = [0, 0]  # leads to the exact parser
        return self._note(pos, stop, frames, before, lengths, between)


class PhpmqServerDecoder(_Phpmq, phpmq.ServerDecoder):
    """PHPMQ as a server receives it."""


class PhpmqClientDecoder(_Phpmq, phpmq.ClientDecoder):
    """PHPMQ as a client receives it."""


def _phpmq_lengths(frame: phpmq.PhpmqFrame, form: Form) -> list[int]:
    """The lengths of a run's messages, if its numbers are written as we would."""
    joint = form.joint_size
    common = 8 + 2 * joint + len(frame.queue.encode())
    match frame:
        case phpmq.Publish(_, payloads, ttl):
            common += 0 if ttl is None else joint + len(str(ttl))
            return [common + len(payload) for payload in payloads]
        case phpmq.Dispatch(_, ids, payloads, None):
            common += joint + phpmq.ID_SIZE
            return [common + len(payload) for payload in payloads]
        case phpmq.Dispatch(_, ids, payloads, ttls):
            common += 2 * joint + phpmq.ID_SIZE
            return [common + len(payload) + len(str(ttl)) for payload, ttl in zip(payloads, ttls or (), strict=True)]
        case phpmq.Acknowledge(_, ids) | phpmq.Reject(_, ids):
            return [common + len(each) for each in ids]
    return [0]


def _all_begin(data: bytes, pos: int, lengths: list[int], between: int) -> bool:
    """Whether each of these messages begins with its flag: an odd line end and an odd number can make up a sum."""
    for length in lengths:
        if not data.startswith(b"H", pos):
            return False
        pos += length + between
    return True


class KokaqServerDecoder(_Located[kokaq.KokaqRequest], kokaq.ServerDecoder):  # type: ignore[misc]  # as above
    """Kokaq as a server receives it."""

    def _pushes(self, data: bytes, pos: int, frames: list[kokaq.KokaqRequest]) -> int:
        before = len(frames)
        stop = super()._pushes(data, pos, frames)
        return self._note(pos, stop, frames, before, _kokaq_lengths(frames, before), 0)

    def _single(self, data: bytes, pos: int, frames: list[kokaq.KokaqRequest]) -> int:
        before = len(frames)
        stop = super()._single(data, pos, frames)
        return self._note(pos, stop, frames, before, [0], 0)


class KokaqClientDecoder(_Located[kokaq.KokaqResponse], kokaq.ClientDecoder):  # type: ignore[misc]  # as above
    """Kokaq as a client receives it that speaks ``variant``."""

    def __init__(self, max_payload: int, variant: kokaq.Variant = kokaq.CANONICAL) -> None:
        super().__init__(max_payload)
        self.variant = variant
        self._types = {variant.response_byte(each): each for each in kokaq.MessageType}

    def _pushed(self, data: bytes, pos: int, frames: list[kokaq.KokaqResponse]) -> int:
        before = len(frames)
        stop = super()._pushed(data, pos, frames)
        return self._note(pos, stop, frames, before, _kokaq_lengths(frames, before), 0)

    def _deliveries(self, data: bytes, pos: int, frames: list[kokaq.KokaqResponse]) -> int:
        before = len(frames)
        stop = super()._deliveries(data, pos, frames)
        return self._note(pos, stop, frames, before, _kokaq_lengths(frames, before), 0)


def _kokaq_lengths(frames: list[kokaq.KokaqRequest] | list[kokaq.KokaqResponse], before: int) -> list[int]:
    """The lengths of the messages of a run that was just added, if one was."""
    frame = frames[-1] if len(frames) > before else None
    match frame:
        case kokaq.Pushes():
            common = _KOKAQ_HEADERS + _KOKAQ_COMPONENT + _names(frame)
            return [common + len(payload) for payload in frame.payloads]
        case kokaq.Pushed():
            return [_KOKAQ_PUSHED] * len(frame.uuids)
        case kokaq.Deliveries():
            # Messages of a run have metadata of one shape: see shapes.py.
            common = _KOKAQ_HEADERS + 4 + _KOKAQ_COMPONENT + _names(frame) + len(frame.metadata.raw[0])
            return [common + len(payload) for payload in frame.payloads]
    return [0]


def _names(frame: kokaq.Pushes | kokaq.Deliveries) -> int:
    return len(frame.namespace.encode()) + len(frame.queue.encode())
