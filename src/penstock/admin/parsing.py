"""Input of HTTP connections, parsed in turns so that no client can keep the loop busy.

Headers and chunks may be tiny: 4 KiB of them take 20 ms to parse. Small reads are parsed at once, so that a probe is
answered whatever other clients send. Larger ones wait in a queue, of which each turn of the loop parses one piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

#: Bytes that are parsed at once, without and with a token.
PARSED_AT_ONCE, PARSED_AT_ONCE_AUTHENTICATED = 1024, 16 * 1024
#: Bytes of one piece, without and with a token.
PIECE, PIECE_AUTHENTICATED = 4096, 16 * 1024


class Parser(Protocol):
    """A connection that parses its input."""

    authenticated: bool
    loop: asyncio.AbstractEventLoop

    def parse(self, data: bytes) -> None:
        """Parse this, then continue reading if more is needed."""

    def pause_reading(self) -> None:
        """Read no more until this input has been parsed."""


class ParseQueue:
    """Inputs that wait: the loop parses one piece of one of them in each turn."""

    def __init__(self) -> None:
        self._waiting: deque[Input] = deque()
        self._scheduled = False

    def add(self, waiting: Input, loop: asyncio.AbstractEventLoop) -> None:
        """Queue an input, of which one piece is parsed when its turn comes."""
        self._waiting.append(waiting)
        self._schedule(loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        self._waiting.popleft().parse_piece()
        self._schedule(loop)


class Input:
    """What a connection has received and not parsed yet."""

    _queue = ParseQueue()

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._data = b""
        self._queued = False

    def __len__(self) -> int:
        return len(self._data)

    def receive(self, data: bytes) -> None:
        """Parse it at once, or a piece at a time if it is long."""
        self._data += data
        if self._queued:
            return
        if len(self._data) <= (PARSED_AT_ONCE_AUTHENTICATED if self._parser.authenticated else PARSED_AT_ONCE):
            self._parse(len(self._data))
        else:
            self.enqueue()

    def enqueue(self) -> None:
        """Queue the rest, if there is any, to parse its next piece in a later turn."""
        if self._data and not self._queued:
            self._parser.pause_reading()
            self._queued = True
            self._queue.add(self, self._parser.loop)

    def parse_piece(self) -> None:
        """Parse the next piece."""
        self._queued = False
        self._parse(PIECE_AUTHENTICATED if self._parser.authenticated else PIECE)

    def clear(self) -> None:
        """Drop the rest: the connection has ended."""
        self._data = b""

    def _parse(self, size: int) -> None:
        part, self._data = self._data[:size], self._data[size:]
        self._parser.parse(part)
