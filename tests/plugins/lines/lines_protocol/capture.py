"""Recognition of Lines in captures, and its rows in the table of frames."""

from __future__ import annotations

from lines_protocol.codec import MAGIC, Line, LocatedDecoder
from penstock.spark.pipelines.decode.captures import MAX_PAYLOAD, TO_CLIENT, TO_SERVER, Capture, Guess
from penstock.spark.pipelines.decode.frames import FrameRows

_OF_SERVERS = (b"O", b"M", b"PO")


def _decoder(found: Guess) -> LocatedDecoder:
    return LocatedDecoder(MAX_PAYLOAD)


def _rows(line: Line) -> FrameRows:
    ids = [line.body] if line.verb == "OK" else None
    payloads = [line.body] if line.verb in ("PUT", "MSG") else None
    return FrameRows(line.verb, 1, payloads, queue=line.queue or None, ids=ids)


def _guess(head: bytes, direction: str | None) -> tuple[str | None, None]:
    return direction or (TO_CLIENT if head[len(MAGIC) :].startswith(_OF_SERVERS) else TO_SERVER), None


CAPTURE = Capture(magic=MAGIC, decoder=_decoder, rows=_rows, guess=_guess, shows_direction=True)
