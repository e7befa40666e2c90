"""The PHPMQ decoders that report the place of each message."""

from __future__ import annotations

from penstock.wire import phpmq
from penstock.wire.located import Located
from penstock.wire.phpmq.forms import Form


class _LocatedRuns(Located[phpmq.PhpmqFrame]):
    def _like(self, data: bytes, pos: int, frames: list[phpmq.PhpmqFrame], form: Form) -> int:
        if self._base + pos < self._exact_until:
            return pos
        before = len(frames)
        stop: int = super()._like(data, pos, frames, form)  # type: ignore[misc]
        if len(frames) == before:
            return stop
        lengths = _lengths(frames[-1], form)
        between = len(form.line_end)
        if between and sum(lengths) == stop - pos:
            between = 0
        if not _all_begin(data, pos, lengths, between):
            lengths = [0, 0]  # leads to the exact parser
        return self._note(pos, stop, frames, before, lengths, between)


class LocatedServerDecoder(_LocatedRuns, phpmq.ServerDecoder):
    """PHPMQ as a server receives it."""


class LocatedClientDecoder(_LocatedRuns, phpmq.ClientDecoder):
    """PHPMQ as a client receives it."""


def _lengths(frame: phpmq.PhpmqFrame, form: Form) -> list[int]:
    """The lengths of a run's messages, if its numbers are written without leading zeros, as we write them."""
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
    """Whether each message begins with its flag: unusual line ends and numbers may compensate each other in the sum."""
    for length in lengths:
        if not data.startswith(b"H", pos):
            return False
        pos += length + between
    return True
