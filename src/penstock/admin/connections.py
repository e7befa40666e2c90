"""Connections of HTTP: how many there may be, how long each may owe us something, and who makes room.

A connection is *unproven* until a request on it has shown a token that is known. Unproven ones have places and
deadlines of their own, so whoever has no token can only take the place of others who have shown none:

    accepted ──(TLS handshake)──→ unproven ──(a token that is known)──→ proven
                    │ more than HANDSHAKES  │ more than UNPROVEN           │ more than PROVEN
                    ▼                       ▼                              ▼
                the oldest of the address that has most of them       one that asks for nothing
                makes room                                            makes room, else the request is refused

A newcomer is always let in, and a request that needs no token is answered while all proven places are taken. So a probe
for health needs no free place, only the moment in which its request arrives.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Connections that have shown a token, and that have shown none: a login or a probe has one for a moment.
PROVEN = 500
UNPROVEN = 200
#: TLS handshakes under way.
HANDSHAKES = 200
#: All connections, where no room can be made because the others are being answered.
MOST = 2 * (PROVEN + UNPROVEN)
#: Seconds for a TLS handshake, and those in which an unproven connection has to send the head of a request, then its
#: body, and to take the answer.
UNPROVEN_SECONDS = 10.0
#: Headers and chunks may be tiny: 4 KiB of them take 20 ms to parse. So a read of more than this, without a token or
#: with one, waits in line, and one connection parses one piece in each turn of the loop.
PARSED_AT_ONCE, PARSED_AT_ONCE_PROVEN = 1024, 16 * 1024
PIECE, PIECE_PROVEN = 4096, 16 * 1024
#: Seconds until accepting is tried again when the system has no more file descriptors.
ACCEPT_PAUSE = 1.0
#: Seconds between two looks whether the client of a request is there.
LOOK_SECONDS = 1.0
#: What a client may take its time with: to begin a request, and to finish its body.
_OWED = (h11.IDLE, h11.SEND_BODY)
#: The key of the ASGI scope that has the connection.
CONNECTION = "penstock.connection"

#: Events of a socket whose peer has closed: only Linux tells of it while there is something to read.
_HUNG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)

T = TypeVar("T")


class _Reading(FlowControl):
    """Reads on only for a request that is not complete: uvicorn would, once or twice for each that has arrived."""

    def __init__(self, transport: asyncio.Transport, may_read: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._may_read = may_read

    def resume_reading(self) -> None:
        """See uvicorn."""
        if self._may_read():
            super().resume_reading()


class _Line:
    """Connections with input to parse: one piece of one of them in each turn of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[HttpConnection] = deque()
        self._scheduled = False

    def add(self, connection: HttpConnection) -> None:
        """Parse a piece of its input when it is its turn."""
        self._waiting.append(connection)
        self._schedule(connection.loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        self._waiting.popleft().parse_piece()
        self._schedule(loop)


class HttpConnection(H11Protocol):
    """One. A request that is not finished in time ends it, and so does an answer that is not taken."""

    #: Seconds for a request; set by ``connection_type``.
    unfinished_seconds = 60.0
    _line = _Line()

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        #: A token that is known was shown on it.
        self.proven = False
        #: It was ended here; the system tells of that in the next turn of the loop.
        self._ended = False
        #: What was read and is not parsed yet, and whether it waits in line.
        self._unparsed = b""
        self._in_line = False
        self._seen: tuple[Any, ...] = ()
        self._since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()
        self._serve = self.app
        self.app = self._run

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """See asyncio."""
        super().connection_made(transport)
        self.flow = _Reading(transport, self._may_read)
        self._make_room()
        self._look()

    def data_received(self, data: bytes) -> None:
        """See asyncio. Small reads are parsed at once, so that a probe is answered whatever others send."""
        self._unparsed += data
        if self._in_line:
            return
        if len(self._unparsed) <= (PARSED_AT_ONCE_PROVEN if self.proven else PARSED_AT_ONCE):
            self._parse(len(self._unparsed))
        else:
            self._get_in_line()

    def parse_piece(self) -> None:
        """Parse the next piece; it is this connection's turn."""
        self._in_line = False
        self._parse(PIECE_PROVEN if self.proven else PIECE)

    def _get_in_line(self) -> None:
        self.flow.pause_reading()
        self._in_line = True
        self._line.add(self)

    def _parse(self, size: int) -> None:
        if self.transport.is_closing():
            return
        part, self._unparsed = self._unparsed[:size], self._unparsed[size:]
        super().data_received(part)
        self.flow.resume_reading()

    def _may_read(self) -> bool:
        """Whether more is to be read. What was read before comes first."""
        if not self._sends():
            return False
        if self._unparsed and not self._in_line:
            self._get_in_line()
        return not self._unparsed

    def handle_events(self) -> None:
        """See uvicorn. What was pipelined is used up before more is read."""
        super().handle_events()
        if self.conn.their_state is h11.IDLE:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._lost.set()
        self._unparsed = b""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    async def until_gone(self) -> None:
        """Returns when the client has closed. Nothing more is read for it: what it pipelines stays in the system."""
        while not self._lost.is_set() and not self._has_hung_up():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._lost.wait()

    async def end(self) -> None:
        """Close it now, and return when that is known. A request on it needs no answer then."""
        self.transport.abort()
        await self._lost.wait()

    def _has_hung_up(self) -> bool:
        """Reading is paused while a request is worked on and more have come, so only the system knows."""
        accepted = self.transport.get_extra_info("socket")
        if accepted is None or accepted.fileno() < 0:
            return True
        looking = select.poll()
        looking.register(accepted.fileno(), _HUNG_UP)
        return bool(looking.poll(0))

    def prove(self) -> bool:
        """It has shown a token that is known. False: all places of such connections are taken by requests."""
        if not self.proven:
            self.proven = self._find_place(self._others(proven=True))
        return self.proven

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        scope[CONNECTION] = self
        await self._serve(scope, receive, send)

    @property
    def _patience(self) -> float:
        return self.unfinished_seconds if self.proven else min(self.unfinished_seconds, UNPROVEN_SECONDS)

    def _look(self) -> None:
        """Now and then: end it if it has owed us the same, or has not taken what we owe, for too long."""
        unsent = self.transport.get_write_buffer_size()
        seen, now = (self.cycle, self.conn.their_state, unsent), self.loop.time()
        if seen != self._seen:
            self._seen, self._since = seen, now
        if self._owes() and now - self._since >= self._patience:
            self._end()
        else:
            self._timer = self.loop.call_later(self._patience / 4, self._look)

    def _owes(self) -> bool:
        """Whether it is the client's turn: to send, to take an answer, or to end TLS as we have."""
        unsent = self.transport.get_write_buffer_size()
        return bool(unsent) or self.transport.is_closing() or self._sends()

    def _sends(self) -> bool:
        return self.conn.their_state in _OWED

    def _end(self) -> None:
        self._ended = True
        self.transport.abort()

    def _make_room(self) -> None:
        """Let the oldest of the unproven connections go if there are too many."""
        unproven = self._others(proven=False)
        owing = [each for each in unproven if each._owes()]
        if len(unproven) >= UNPROVEN and owing:
            oldest_of_most(owing, _address, lambda each: each._since)._end()
        elif len(self.connections) > MOST:
            self._end()

    def _find_place(self, proven: list[HttpConnection]) -> bool:
        """Whether there is a place among them, or one that asks for nothing can make room."""
        if len(proven) < PROVEN:
            return True
        quiet = [each for each in proven if each.conn.their_state is h11.IDLE or each.transport.is_closing()]
        if quiet:
            min(quiet, key=lambda each: each._since)._end()
        return bool(quiet)

    def _others(self, *, proven: bool) -> list[HttpConnection]:
        found = (each for each in self.connections if isinstance(each, HttpConnection) and each is not self)
        return [each for each in found if each.proven == proven and not each._ended]


class Acceptor:
    """Takes connections from a listening socket, and sees to their TLS handshakes. For asyncio's server."""

    def __init__(
        self, listening: socket.socket, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        self._listening = listening
        self._make = make
        self._tls = tls
        #: Socket and address of each connection that is being set up, the oldest first.
        self._handshakes: dict[asyncio.Task[None], tuple[socket.socket, str]] = {}
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Take no more."""
        for task in (self._accepting, *self._handshakes):
            task.cancel()

    async def wait_closed(self) -> None:
        """Until that is done."""
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listening)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE)
                continue
            task = asyncio.create_task(self._set_up(accepted))
            self._handshakes[task] = accepted, address[0] if isinstance(address, tuple) else ""
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))
            if len(self._handshakes) > HANDSHAKES:
                self._make_room()
            await asyncio.sleep(0)  # it does not wait for what has arrived already: others have their turn

    def _make_room(self) -> None:
        """End the oldest handshake of the address that has most. Its own task closes the socket."""
        order = list(self._handshakes)
        oldest = oldest_of_most(order, lambda task: self._handshakes[task][1], order.index)
        accepted, _ = self._handshakes.pop(oldest)
        with suppress(OSError):  # its client has gone
            accepted.shutdown(socket.SHUT_RDWR)

    async def _set_up(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        seconds = UNPROVEN_SECONDS if self._tls is not None else None
        try:
            await loop.connect_accepted_socket(self._make, accepted, ssl=self._tls, ssl_handshake_timeout=seconds)
        except OSError:  # a handshake that failed, or took too long
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise


def oldest_of_most(found: Iterable[T], address: Callable[[T], str], age: Callable[[T], float]) -> T:
    """Of those of the address that has most of them, the one with the lowest ``age``."""
    found = list(found)
    counts = Counter(map(address, found))
    most = max(counts.values())
    return min((each for each in found if counts[address(each)] == most), key=age)


def _address(connection: HttpConnection) -> str:
    return connection.client[0] if connection.client else ""


def connection_type(unfinished_seconds: float) -> type[HttpConnection]:
    """Connections with this patience."""
    return type("TimedConnection", (HttpConnection,), {"unfinished_seconds": unfinished_seconds})
