"""Bytes to lines and back. Imports nothing of Penstock but ``penstock.wire``."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from msgspec import Struct

from penstock.wire.located import Located
from penstock.wire.stream import StreamDecoder

MAGIC = b"LINE "
#: Verbs, and whether a queue follows.
VERBS = {"PUT": True, "GET": True, "ACK": False, "PING": False, "OK": False, "MSG": True, "PONG": False}


class Line(Struct, frozen=True):
    """A message of the protocol, in either direction."""

    verb: str
    queue: str = ""
    body: bytes = b""


class Decoder(StreamDecoder[Line]):
    """Lines, of clients and of servers."""

    protocol = "Lines"

    def __init__(self, max_payload: int = 2**20) -> None:
        super().__init__()
        self._most = max_payload + 300

    def _run(self, data: bytes, pos: int, frames: list[Line]) -> int:
        """There is no fast pass."""
        return pos

    def _message(self) -> Generator[int, bytes, Line]:
        for expected in MAGIC:
            if (yield 1)[0] != expected:
                raise self._bad("bad-start", "a line begins with LINE")
        line = bytearray()
        while (byte := (yield 1)) != b"\n":
            line += byte
            if len(line) > self._most:
                raise self._bad("too-long", f"a line is longer than {self._most} bytes", peer_at_fault=False)
        verb, _, rest = bytes(line).partition(b" ")
        if verb.decode("latin-1") not in VERBS:
            raise self._bad("bad-verb", f"there is no verb {verb!r}")
        queue, _, body = rest.partition(b" ") if VERBS[verb.decode()] else (b"", b"", rest)
        return Line(verb.decode(), queue.decode("utf-8", "replace"), body)


class LocatedDecoder(Located[Line], Decoder):  # type: ignore[misc]  # its _message never returns None
    """The decoder that says where each line stood: for captures."""


def encode(lines: Iterable[Line]) -> bytes:
    """The bytes of these lines."""
    return b"".join(_written(line) for line in lines)


def _written(line: Line) -> bytes:
    if b"\n" in line.body:
        raise ValueError("a body of Lines has no line ends")
    words = [line.verb.encode(), *([line.queue.encode()] if line.queue else []), *([line.body] if line.body else [])]
    return MAGIC + b" ".join(words) + b"\n"
