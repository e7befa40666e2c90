"""What must hold for any bytes, whoever sends them: the judge of the fuzzer, of its replays and of the vectors.

``check`` returns quietly or raises. A :class:`FindingError` says which promise was broken; any other exception is one
that the decoder or the encoder should not have raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from zlib import crc32

from penstock.wire.stream import StreamDecoder, WireError
from support.protocols import CODECS, Codec, Options

Told = tuple[int, str, str, bool]

#: Small, so that a fuzzer meets it within its short inputs.
MAX_PAYLOAD = 64
#: Fields other than payloads that a decoder may hold: headers, and names of up to 255 bytes.
MAX_FIELD = 1024

#: The name of each decoder, and who sends what it decodes: a server receives what a client sends.
SENDERS = {"server": "client", "client": "server"}

#: What decoders and encoders can be told besides the limit, by protocol and sender. The input's last byte chooses.
CHOICES: dict[tuple[str, str], list[Options]] = {
    ("kokaq", "server"): [
        {"variant": f"{numbering}/{order}"} for numbering in ("canonical", "listing") for order in ("low", "high")
    ],
}
CHOICES |= {
    ("phpmq", sender): [{}, {"dialect": "36", "width": 36}, {"dialect": "32", "width": 32}, {"dialect": "ttl"}]
    for sender in SENDERS
}


class FindingError(AssertionError):
    """A promise of the decoders that does not hold for some input."""


def targets() -> dict[str, tuple[Codec, str]]:
    """Every decoder there is, by name: the codec, and who sends what it decodes. SSPQ has one for both sides."""
    found = {}
    for codec in CODECS.values():
        if codec.name == "sspq":
            found[codec.name] = codec, "client"
        else:
            found |= {f"{codec.name}-{side}": (codec, sender) for side, sender in SENDERS.items()}
    return found


def checker(codec: Codec, sender: str) -> Callable[[bytes], None]:
    """The check of one decoder, as a function of the bytes alone."""
    choices = [{"max_payload": MAX_PAYLOAD, **choice} for choice in CHOICES.get((codec.name, sender), [{}])]

    def check(data: bytes) -> None:
        options = choices[data[-1] % len(choices)] if data else choices[0]
        whole = _decode(codec.decoder(sender, options), [data])
        _same(codec, "in pieces", _decode(codec.decoder(sender, options), pieces(data)), whole)
        frames = sendable(whole.frames)
        # A style would make all dispatches alike: each is sent as it came.
        encoded = codec.encode(sender, frames, {**options, "dispatch_ttl": None})
        if encoded != data:
            again = _decode(codec.decoder(sender, options), [encoded])
            _same(codec, f"encoded again ({encoded.hex()})", again, Decoded(frames, None, None))

    return check


def sendable(frames: list[Any]) -> list[Any]:
    """The frames as they can be sent again: Kokaq frames with a problem can be received, but not sent."""
    return [frame for frame in frames if getattr(frame, "problem", None) is None]


def pieces(data: bytes) -> list[bytes]:
    """The data in four pieces, cut at places that follow from it; the third piece is one byte."""
    mark = crc32(data)
    places = len(data) + 1
    first, second = sorted(((mark & 0xFFFF) % places, (mark >> 16) % places))
    return [data[:first], data[first:second], data[second : second + 1], data[second + 1 :]]


class Decoded(NamedTuple):
    """What came of a stream: its frames, the error so far, and the error when the stream ended."""

    frames: list[Any]
    error: Told | None
    closed: Told | None


def _decode(decoder: StreamDecoder[Any], chunks: Iterable[bytes]) -> Decoded:
    frames: list[Any] = []
    fed = 0
    for chunk in chunks:
        frames += decoder.feed(chunk)
        fed += len(chunk)
        if decoder.held > MAX_PAYLOAD + MAX_FIELD:
            raise FindingError(f"{decoder.held} bytes are held, over the limit")
        if decoder.error is None and decoder.offset + decoder.held != fed:
            raise FindingError(f"fed {fed} bytes, but is at byte {decoder.offset} and holds {decoder.held}")
    return Decoded(frames, _told(decoder.error), _told(decoder.close()))


def _same(codec: Codec, how: str, found: Decoded, expected: Decoded) -> None:
    """Both are the same but for batching, which may differ."""
    if found == expected:
        return
    if found[1:] != expected[1:] or list(codec.singles(found.frames)) != list(codec.singles(expected.frames)):
        raise FindingError(f"{how}: {found}\nexpected: {expected}")


def _told(error: WireError | None) -> Told | None:
    return None if error is None else (error.offset, error.code, error.reason, error.peer_at_fault)
