"""The Kokaq decoders that report the place of each message."""

from __future__ import annotations

from penstock.wire import kokaq
from penstock.wire.located import Located

#: Both headers of a message and the header of one component.
_HEADERS, _COMPONENT = 12, 8
#: The length of an answer to Push in a run.
_PUSHED = 38


class LocatedServerDecoder(Located[kokaq.KokaqRequest], kokaq.ServerDecoder):  # type: ignore[misc]  # as above
    """Kokaq as a server receives it."""

    def _pushes(self, data: bytes, pos: int, frames: list[kokaq.KokaqRequest]) -> int:
        before = len(frames)
        stop = super()._pushes(data, pos, frames)
        return self._note(pos, stop, frames, before, _lengths(frames, before), 0)

    def _single(self, data: bytes, pos: int, frames: list[kokaq.KokaqRequest]) -> int:
        before = len(frames)
        stop = super()._single(data, pos, frames)
        return self._note(pos, stop, frames, before, _lengths(frames, before, stop - pos), 0)


class LocatedClientDecoder(Located[kokaq.KokaqResponse], kokaq.ClientDecoder):  # type: ignore[misc]  # as above
    """Kokaq as a client that speaks ``variant`` receives it."""

    def __init__(self, max_payload: int, variant: kokaq.Variant = kokaq.CANONICAL) -> None:
        super().__init__(max_payload)
        self.variant = variant
        self._types = {variant.response_byte(each): each for each in kokaq.MessageType}

    def _pushed(self, data: bytes, pos: int, frames: list[kokaq.KokaqResponse]) -> int:
        before = len(frames)
        stop = super()._pushed(data, pos, frames)
        return self._note(pos, stop, frames, before, _lengths(frames, before), 0)

    def _deliveries(self, data: bytes, pos: int, frames: list[kokaq.KokaqResponse]) -> int:
        before = len(frames)
        stop = super()._deliveries(data, pos, frames)
        return self._note(pos, stop, frames, before, _lengths(frames, before), 0)


def _lengths(frames: list[kokaq.KokaqRequest] | list[kokaq.KokaqResponse], before: int, total: int = 0) -> list[int]:
    """The lengths of the messages of the run that was just added, if any. ``total`` is their sum if all are equal."""
    frame = frames[-1] if len(frames) > before else None
    match frame:
        case kokaq.Pushes():
            common = _HEADERS + _COMPONENT + _names(frame)
            return [common + len(payload) for payload in frame.payloads]
        case kokaq.Requests():
            return [total // len(frame.opaques)] * len(frame.opaques)
        case kokaq.Pushed():
            return [_PUSHED] * len(frame.uuids)
        case kokaq.Deliveries():
            # Messages of a run have metadata of one shape: see shapes.py.
            common = _HEADERS + 4 + _COMPONENT + _names(frame) + len(frame.metadata.raw[0])
            return [common + len(payload) for payload in frame.payloads]
    return [0]


def _names(frame: kokaq.Pushes | kokaq.Deliveries) -> int:
    return len(frame.namespace.encode()) + len(frame.queue.encode())
