"""Captured bytes of one direction of a connection, in pieces, to rows of the table of frames. Pure: no Spark.

The first bytes identify the protocol and the direction, unless they are given. If a protocol looks the same in both
directions, the direction stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from typing import Protocol as TypingProtocol

import pyarrow as pa

from penstock.protocols import ProtocolError, having
from penstock.spark.pipelines.decode.frames import FrameRows, Frames, FrameSource, error_text
from penstock.wire.located import Place
from penstock.wire.stream import WireError

TO_SERVER, TO_CLIENT = "to_server", "to_client"
DIRECTIONS = (TO_SERVER, TO_CLIENT)
#: The largest payload that is decoded: the most that any broker may allow.
MAX_PAYLOAD = 256 * 2**20
#: Bytes of a file that are read at once.
PIECE = 2**20
#: The first bytes of a stream, which identify its protocol and direction.
ENOUGH = 8


class Guess(NamedTuple):
    """What the first bytes show; None is unknown."""

    protocol: str | None
    direction: str | None
    #: The protocol's variant, for its decoder.
    variant: Any = None


class CaptureDecoder(TypingProtocol):
    """The interface of a decoder of captures: see :mod:`penstock.wire.located`."""

    error: WireError | None
    places: list[Place]

    def feed(self, data: bytes) -> list[Any]:
        """Take bytes, and return the frames that they complete; ``places`` contains their places."""

    def close(self) -> WireError | None:
        """End the input."""


def _no_guess(head: bytes, direction: str | None) -> tuple[str | None, Any]:
    return direction, None


@dataclass(frozen=True, kw_only=True)
class Capture:
    """How to read captures of a protocol; the protocol's entry names it as the part ``capture``."""

    #: The first bytes of every message, in either direction. At most ENOUGH.
    magic: bytes
    #: Makes a decoder for a guess.
    decoder: Callable[[Guess], CaptureDecoder]
    #: Turns a frame into rows.
    rows: Callable[[Any], FrameRows]
    #: Guesses the direction and the variant from the first bytes, and from the direction if it is known.
    guess: Callable[[bytes, str | None], tuple[str | None, Any]] = _no_guess
    #: Whether the first bytes alone identify the direction for certain.
    shows_direction: bool = False


@cache
def captures() -> dict[str, Capture]:
    """How to read captures of each protocol. Raises ProtocolError if two can't be distinguished."""
    found: dict[str, Capture] = {}
    for protocol in having("capture"):
        capture = protocol.part("capture")
        if not isinstance(capture, Capture) or not 0 < len(capture.magic) <= ENOUGH:
            raise ProtocolError(
                f"{protocol.title}: {protocol.capture!r} is no Capture with a magic of 1 to {ENOUGH} bytes"
            )
        for name, other in found.items():
            if capture.magic.startswith(other.magic) or other.magic.startswith(capture.magic):
                raise ProtocolError(f"captures of {protocol.name} and {name} begin alike: {capture.magic!r}")
        found[protocol.name] = capture
    return found


def guess(head: bytes, protocol: str | None = None, direction: str | None = None) -> Guess:
    """Identify protocol and direction by the first bytes, as far as they are unknown."""
    protocol = protocol or next((name for name, each in captures().items() if head.startswith(each.magic)), None)
    return Guess(protocol, *captures()[protocol].guess(head, direction)) if protocol else Guess(None, direction)


class Half:
    """One direction of a connection: takes its bytes in order, and adds rows.

    After an error it ignores all bytes until ``gap`` reports missing ones; then it searches for the beginning of a
    message.
    """

    def __init__(self, frames: Frames, source: FrameSource, found: Guess | None = None) -> None:
        self.source = source
        self.found = found or Guess(source.protocol, source.direction)
        self._settled = found is not None and found.protocol is not None
        self._frames = frames
        self._head = b""
        self._base = 0
        self._decoder: CaptureDecoder | None = None
        self._searching = False
        #: Bytes without the beginning of a message so far, while searching.
        self._skipped = 0
        #: Offset of the first byte that could not be read, once there is one; its row is added at the end.
        self._bad: tuple[int, str, str] | None = None
        self._fed = 0

    @property
    def variant(self) -> Any:
        """The protocol's variant, from the first bytes or, if its decoder has one, from all so far."""
        return getattr(self._decoder, "variant", self.found.variant)

    def settle(self, found: Guess) -> None:
        """Set protocol and direction before the first byte, so that nothing is guessed."""
        self.found = found
        self.source = self.source._replace(protocol=found.protocol, direction=found.direction)
        self._settled = True

    def feed(self, data: bytes, at: int | None = None) -> None:
        """Take the next bytes, captured at this time."""
        self._fed += len(data)
        if self._bad is not None:
            return
        if self._decoder is None:
            data = self._begin(data)
        if self._decoder is not None:
            self._decode(data, at)

    def _decode(self, data: bytes, at: int | None) -> None:
        decoder = self._decoder
        assert decoder is not None
        assert self.found.protocol is not None
        rows_of = captures()[self.found.protocol].rows
        for frame, place in zip(decoder.feed(data), decoder.places, strict=True):
            self._frames.add(self.source, at, rows_of(frame), place._replace(start=place.start + self._base))
        if decoder.error is not None:
            self._give_up(decoder.error)

    def _begin(self, data: bytes) -> bytes:
        """Identify the protocol once there are enough bytes. Returns the bytes that were held back."""
        data = self._head + data
        if self._searching and not data.startswith(
            captures()[self.found.protocol].magic if self.found.protocol else ()
        ):
            self._skipped += len(data)
        elif len(data) < ENOUGH and not self._settled:
            self._head = data
        else:
            self._settle(data)
        return data

    def _settle(self, data: bytes) -> None:
        if not self._settled:
            self.found = guess(data, self.found.protocol, self.found.direction)
            self.source = self.source._replace(protocol=self.found.protocol, direction=self.found.direction)
            self._settled = True
        self._base = self._fed - len(data)
        self._head = b""
        self._end_search(self._base)
        if self.found.protocol is None:
            text = f"no known protocol begins with {data[:ENOUGH].hex(' ')}"
            self._bad = self._base, "unknown-protocol", text
        else:
            self._decoder = captures()[self.found.protocol].decoder(self.found)

    def _give_up(self, error: Any) -> None:
        self._bad = error.offset + self._base, error.code, error_text(error, self._base)
        self._decoder = None

    def gap(self, size: int, at: int | None = None) -> None:
        """Report missing bytes. Reading resumes at the next piece that begins like a message."""
        self._close(at)
        self._frames.fail(self.source, at, self._fed, size, "gap", f"{size} byte(s) were not captured")
        self._fed += size
        self._bad = None
        self._searching = self._settled

    def end(self, at: int | None = None) -> None:
        """End the input."""
        self._close(at)

    def _end_search(self, end: int) -> None:
        """Stop searching, and add a row for the skipped bytes before ``end``."""
        self._searching = False
        if self._skipped:
            text = f"{self._skipped} byte(s) after a gap belong to messages whose beginning is missing"
            self._frames.fail(self.source, None, end - self._skipped, self._skipped, "out-of-step", text)
            #: Bytes without the beginning of a message so far, while searching.
        self._skipped = 0

    def _close(self, at: int | None) -> None:
        if self._decoder is None and self._head:
            head = self._head
            self._settle(head)
            if self._decoder is not None:
                self._decode(head, at)
        self._end_search(self._fed)
        if self._decoder is not None and self._decoder.close() is not None:
            self._give_up(self._decoder.error)
        self._decoder = None
        if self._bad is not None:
            offset, code, text = self._bad
            self._frames.fail(self.source, at, offset, self._fed - offset, code, text)
            self._bad = None


def read_stream(pieces: Iterable[bytes], source: FrameSource, *, payloads: bool = False) -> Iterator[pa.RecordBatch]:
    """The frames of one direction of a connection, captured as plain bytes."""
    frames = Frames(payloads=payloads)
    half = Half(frames, source)
    for piece in pieces:
        half.feed(piece)
        if frames.full:
            yield frames.batch()
    half.end()
    if len(frames):
        yield frames.batch()
