"""The SSPQ decoder that says where each message stood."""

from __future__ import annotations

from penstock.wire import sspq
from penstock.wire.located import Located, Place


class LocatedDecoder(Located[sspq.SspqFrame], sspq.Decoder):  # type: ignore[misc]  # its _message never returns None
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
