"""Captured bytes of one direction of a connection, in pieces, to rows of the table of frames. Pure: no Spark.

Which protocol it is, and which direction, is told by the first bytes if nobody says so. SSPQ looks the same in both
directions; there the direction stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.spark.pipelines.decode.frames import Frames, FrameSource, error_text, kokaq_rows, phpmq_rows, sspq_rows
from penstock.wire import kokaq, located

PROTOCOLS = ("phpmq", "sspq", "kokaq")
TO_SERVER, TO_CLIENT = "to_server", "to_client"
DIRECTIONS = (TO_SERVER, TO_CLIENT)
#: Payloads up to this are taken. A capture is decoded after the fact, so it is the most that any broker may allow.
MAX_PAYLOAD = 256 * 2**20
#: A file is read in pieces of this size.
PIECE = 2**20
#: As many bytes of a stream tell its protocol and its direction.
ENOUGH = 8

_ROWS: dict[str, Callable[[Any], Any]] = {"phpmq": phpmq_rows, "sspq": sspq_rows, "kokaq": kokaq_rows}
_MAGIC = {b"H01": "phpmq", b"\x55\x99": "sspq", b"\x04\x20": "kokaq"}


class Guess(NamedTuple):
    """What the first bytes tell: None is unknown."""

    protocol: str | None
    direction: str | None
    variant: kokaq.Variant = kokaq.CANONICAL


def guess(head: bytes, protocol: str | None = None, direction: str | None = None) -> Guess:
    """Protocol and direction by the first bytes, as far as they are not known."""
    protocol = protocol or next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    if protocol == "phpmq" and direction is None and len(head) >= 6:
        direction = TO_CLIENT if head[3:6] == b"003" else TO_SERVER
    if protocol != "kokaq" or len(head) < 4:
        return Guess(protocol, direction)
    # Where a byte has two meanings, the protocol's own numbering is the likelier one.
    for variant in kokaq.VARIANTS:
        asked = {variant.request_byte(each, way) for each in kokaq.MessageType for way in (True, False)}
        answered = {variant.response_byte(each) for each in kokaq.MessageType}
        if direction != TO_CLIENT and head[3] in asked:
            return Guess(protocol, TO_SERVER, variant)
        if direction != TO_SERVER and head[3] in answered:
            return Guess(protocol, TO_CLIENT, variant)
    return Guess(protocol, direction)


def _decoder(found: Guess) -> Any:
    if found.protocol == "sspq":
        return located.SspqDecoder(MAX_PAYLOAD)
    if found.protocol == "phpmq":
        kind = located.PhpmqClientDecoder if found.direction == TO_CLIENT else located.PhpmqServerDecoder
        return kind(MAX_PAYLOAD)
    if found.direction == TO_CLIENT:
        return located.KokaqClientDecoder(kokaq.WIRE_MAX_PAYLOAD, found.variant)
    return located.KokaqServerDecoder(kokaq.WIRE_MAX_PAYLOAD)


class Half:
    """One direction of a connection: takes its bytes in order, and adds rows.

    After an error nothing more can be read, until ``gap`` says that bytes are missing: then it waits for something that
    looks like the beginning of a message.
    """

    def __init__(self, frames: Frames, source: FrameSource, found: Guess | None = None) -> None:
        self.source = source
        self.found = found or Guess(source.protocol, source.direction)
        self._settled = found is not None and found.protocol is not None
        self._frames = frames
        self._head = b""
        self._base = 0
        self._decoder: Any = None
        self._searching = False
        self._passed = 0
        #: Offset of the first byte that could not be read, once there is one; its row is added at the end.
        self._bad: tuple[int, str, str] | None = None
        self._fed = 0

    @property
    def variant(self) -> kokaq.Variant:
        """Which Kokaq it is, as far as is known: what answers are written in."""
        if isinstance(self._decoder, located.KokaqServerDecoder):
            return self._decoder.variant
        return self.found.variant

    def settle(self, found: Guess) -> None:
        """Say what it is, before the first byte: nothing is guessed then."""
        self.found = found
        self.source = self.source._replace(protocol=found.protocol, direction=found.direction)
        self._settled = True

    def feed(self, data: bytes, at: int | None = None) -> None:
        """Take the next bytes, which were seen at this time."""
        self._fed += len(data)
        if self._bad is not None:
            return
        if self._decoder is None:
            data = self._begin(data)
        if self._decoder is not None:
            self._decode(data, at)

    def _decode(self, data: bytes, at: int | None) -> None:
        found = self._decoder.feed(data)
        rows_of = _ROWS[self.found.protocol or ""]
        for frame, place in zip(found, self._decoder.places, strict=True):
            self._frames.add(self.source, at, rows_of(frame), place._replace(start=place.start + self._base))
        if self._decoder.error is not None:
            self._give_up(self._decoder.error)

    def _begin(self, data: bytes) -> bytes:
        """Find out what it is, once there are enough bytes. Returns those that were held back."""
        data = self._head + data
        magics = tuple(magic for magic, name in _MAGIC.items() if name == self.found.protocol)
        if self._searching and not data.startswith(magics):
            self._passed += len(data)
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
        self._tell_passed(self._base)
        if self.found.protocol is None:
            text = f"this is none of the protocols: it begins with {data[:ENOUGH].hex(' ')}"
            self._bad = self._base, "unknown-protocol", text
        else:
            self._decoder = _decoder(self.found)

    def _give_up(self, error: Any) -> None:
        self._bad = error.offset + self._base, error.code, error_text(error, self._base)
        self._decoder = None

    def gap(self, size: int, at: int | None = None) -> None:
        """Bytes are missing here. What comes next is read on if it begins like a message."""
        self._close(at)
        self._frames.fail(self.source, at, self._fed, size, "gap", f"{size} byte(s) were not captured")
        self._fed += size
        self._bad = None
        self._searching = self._settled

    def end(self, at: int | None = None) -> None:
        """That was all."""
        self._close(at)

    def _tell_passed(self, end: int) -> None:
        """A row for the bytes before ``end`` in which no beginning of a message was found."""
        self._searching = False
        if self._passed:
            text = f"{self._passed} byte(s) behind a gap are the rest of messages whose beginning is missing"
            self._frames.fail(self.source, None, end - self._passed, self._passed, "out-of-step", text)
            self._passed = 0

    def _close(self, at: int | None) -> None:
        if self._decoder is None and self._head:
            head = self._head
            self._settle(head)
            if self._decoder is not None:
                self._decode(head, at)
        self._tell_passed(self._fed)
        if self._decoder is not None and self._decoder.close() is not None:
            self._give_up(self._decoder.error)
        self._decoder = None
        if self._bad is not None:
            offset, code, text = self._bad
            self._frames.fail(self.source, at, offset, self._fed - offset, code, text)
            self._bad = None


def read_stream(
    pieces: Iterable[bytes],
    source: FrameSource,
    *,
    payloads: bool = False,
) -> Iterator[pa.RecordBatch]:
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
