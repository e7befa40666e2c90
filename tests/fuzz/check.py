"""The promises that hold for any bytes from any sender: the oracle of the fuzzer, its replays and the vectors.

``check`` returns quietly or raises. A :class:`FindingError` says which promise was broken; any other exception is one
that the decoder or the encoder should not have raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from zlib import crc32

from penstock.wire.stream import StreamDecoder, WireError
from support.protocols import CODECS, Codec, Options

Error = tuple[int, str, str, bool]

#: Small, so that a fuzzer reaches it with its short inputs.
MAX_PAYLOAD = 64
#: Fields other than payloads that a decoder may hold: headers, and names of up to 255 bytes.
MAX_FIELD = 1024

#: The name of each decoder, and the sender of its input: a server's decoder reads what a client sends.
SENDERS = {"server": "client", "client": "server"}

#: Options of decoders and encoders besides the limit, by protocol and sender. The input's last byte chooses one.
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
    """A promise of the decoders is broken for some input."""


def targets() -> dict[str, tuple[Codec, str]]:
    """Return every decoder by name: the codec, and the sender of its input. SSPQ uses one for both sides."""
    found = {}
    for codec in CODECS.values():
        if codec.name == "sspq":
            found[codec.name] = codec, "client"
        else:
            found |= {f"{codec.name}-{side}": (codec, sender) for side, sender in SENDERS.items()}
    return found


def checker(codec: Codec, sender: str) -> Callable[[bytes], None]:
    """Return the check of one decoder as a function of the bytes alone."""
    choices = [{"max_payload": MAX_PAYLOAD, **choice} for choice in CHOICES.get((codec.name, sender), [{}])]

    def check(data: bytes) -> None:
        options = choices[data[-1] % len(choices)] if data else choices[0]
        whole = _decode(codec.decoder(sender, options), [data])
        _same(codec, "in pieces", _decode(codec.decoder(sender, options), pieces(data)), whole)
        frames = sendable(whole.frames)
        # A style would give all dispatches one form; each must be sent as it was received.
        encoded = codec.encode(sender, frames, {**options, "dispatch_ttl": None})
        if encoded != data:
            again = _decode(codec.decoder(sender, options), [encoded])
            _same(codec, f"encoded again ({encoded.hex()})", again, Decoded(frames, None, None))

    return check


def sendable(frames: list[Any]) -> list[Any]:
    """Return the frames that can be sent: Kokaq frames with a problem can be received, but not sent."""
    return [frame for frame in frames if getattr(frame, "problem", None) is None]


def pieces(data: bytes) -> list[bytes]:
    """Cut the data into four pieces at places derived from it; the third piece is one byte."""
    mark = crc32(data)
    places = len(data) + 1
    first, second = sorted(((mark & 0xFFFF) % places, (mark >> 16) % places))
    return [data[:first], data[first:second], data[second : second + 1], data[second + 1 :]]


class Decoded(NamedTuple):
    """The result of a stream: its frames, the error so far, and the error at the end of the stream."""

    frames: list[Any]
    error: Error | None
    closed: Error | None


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
    return Decoded(frames, _comparable(decoder.error), _comparable(decoder.close()))


def _same(codec: Codec, how: str, found: Decoded, expected: Decoded) -> None:
    """Raise unless both are the same; only batching may differ."""
    if found == expected:
        return
    if found[1:] != expected[1:] or list(codec.singles(found.frames)) != list(codec.singles(expected.frames)):
        raise FindingError(f"{how}: {found}\nexpected: {expected}")


def _comparable(error: WireError | None) -> Error | None:
    return None if error is None else (error.offset, error.code, error.reason, error.peer_at_fault)
