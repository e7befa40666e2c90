"""HTTP connections: limits on their number, deadlines, and which one is evicted for a new one.

A connection is *unauthenticated* until a request on it has carried a valid token. Unauthenticated connections have
limits and deadlines of their own, so clients without a token can only displace each other:

    accepted ──(TLS handshake)──→ unauthenticated ──(a valid token)──→ authenticated
                    │ more than HANDSHAKES  │ more than UNAUTHENTICATED   │ more than AUTHENTICATED
                    ▼                       ▼                             ▼
                the oldest of the address that has the most          an idle one is evicted; if there is
                is evicted                                           none, the request is rejected

A new connection is always accepted, and a request that needs no token is answered even at the limit of authenticated
ones. So a health probe needs no free slot, only the moment in which its request arrives.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.admin.acceptor import oldest_of_most
from penstock.admin.parsing import Input

AUTHENTICATED = 500
UNAUTHENTICATED = 200
#: All connections, when none can be evicted because all are being answered.
MOST = 2 * (AUTHENTICATED + UNAUTHENTICATED)
#: Seconds in which an unauthenticated client has to send the head of a request, then its body, and to take the
#: response.
UNAUTHENTICATED_SECONDS = 10.0
#: Seconds between two checks whether the client of a request is still there.
CHECK_SECONDS = 1.0
#: States of h11 in which the client has to send: to begin a request, and to finish its body.
_CLIENT_SENDS = (h11.IDLE, h11.SEND_BODY)
#: The key of the connection in the ASGI scope.
CONNECTION = "penstock.connection"
#: The socket event for a peer that has closed. Only Linux reports it while data is left to read.
_HUNG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)


class _Flow(FlowControl):
    """Reads on only for an incomplete request. uvicorn also would for the next ones."""

    def __init__(self, transport: asyncio.Transport, may_read: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._may_read = may_read

    @override
    def resume_reading(self) -> None:
        if self._may_read():
            super().resume_reading()


class HttpConnection(H11Protocol):
    """One connection. It is ended if a request is not finished in time, or a response not taken."""

    #: Seconds for a request; set by ``connection_type``.
    unfinished_seconds = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.authenticated = False
        #: Aborted here; the system reports the end in a later turn of the loop.
        self.aborted = False
        #: When the client last made progress.
        self.progress_at = self.loop.time()
        self._progress: tuple[Any, ...] = ()
        self._input = Input(self)
        self._timer: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()
        self._serve = self.app
        self.app = self._run

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.flow = _Flow(transport, self._may_read)
        self._admit()
        self._check_deadline()

    @override
    def data_received(self, data: bytes) -> None:
        self._input.receive(data)

    def parse(self, data: bytes) -> None:
        """Parse a part of the input, and read on if the request is incomplete."""
        if not self.transport.is_closing():
            super().data_received(data)
            self.flow.resume_reading()

    def pause_reading(self) -> None:
        """Stop reading until the input has been parsed."""
        self.flow.pause_reading()

    def _may_read(self) -> bool:
        """Whether to read more. Input that was read before is parsed first."""
        if not self._must_send():
            return False
        self._input.enqueue()
        return not self._input

    @override
    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is h11.IDLE:  # pipelined requests are used up before more is read
            self.flow.resume_reading()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._input.clear()
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    async def until_gone(self) -> None:
        """Return when the client has closed. Nothing is read for this: pipelined requests stay in the socket."""
        while not self._lost.is_set() and not self._has_hung_up():
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._lost.wait()

    async def end(self) -> None:
        """Abort, and return when the connection is lost. A request on it needs no response then."""
        self.transport.abort()
        await self._lost.wait()

    def _has_hung_up(self) -> bool:
        """Asks the system: while a request is processed and more have arrived, nothing is read."""
        accepted = self.transport.get_extra_info("socket")
        if accepted is None or accepted.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(accepted.fileno(), _HUNG_UP)
        return bool(poll.poll(0))

    def authenticate(self) -> bool:
        """Count it as authenticated: it carried a valid token. False if all of those are busy with requests."""
        if not self.authenticated:
            others = self._others(authenticated=True)
            idle = [each for each in others if each.conn.their_state is h11.IDLE or each.transport.is_closing()]
            if len(others) >= AUTHENTICATED and idle:
                min(idle, key=lambda each: each.progress_at).abort()
            self.authenticated = len(others) < AUTHENTICATED or bool(idle)
        return self.authenticated

    def _admit(self) -> None:
        """Evict the oldest unauthenticated connection if there are too many."""
        others = self._others(authenticated=False)
        waiting = [each for each in others if each.waits_for_client()]
        if len(others) >= UNAUTHENTICATED and waiting:
            oldest_of_most(waiting, _address, lambda each: each.progress_at).abort()
        elif len(self.connections) > MOST:
            self.abort()

    def _others(self, *, authenticated: bool) -> list[HttpConnection]:
        found = (each for each in self.connections if isinstance(each, HttpConnection) and each is not self)
        return [each for each in found if each.authenticated == authenticated and not each.aborted]

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        scope[CONNECTION] = self
        await self._serve(scope, receive, send)

    def _check_deadline(self) -> None:
        """Abort if we have waited too long for the client; otherwise check again later."""
        limit = self.unfinished_seconds if self.authenticated else min(self.unfinished_seconds, UNAUTHENTICATED_SECONDS)
        progress, now = (self.cycle, self.conn.their_state, self.transport.get_write_buffer_size()), self.loop.time()
        if progress != self._progress:
            self._progress, self.progress_at = progress, now
        if self.waits_for_client() and now - self.progress_at >= limit:
            self.abort()
        else:
            self._timer = self.loop.call_later(limit / 4, self._check_deadline)

    def waits_for_client(self) -> bool:
        """Whether the client has to send, to take a response, or to end TLS as we have."""
        return bool(self.transport.get_write_buffer_size()) or self.transport.is_closing() or self._must_send()

    def _must_send(self) -> bool:
        return self.conn.their_state in _CLIENT_SENDS

    def abort(self) -> None:
        """End it at once."""
        self.aborted = True
        self.transport.abort()


def _address(connection: HttpConnection) -> str:
    return connection.client[0] if connection.client else ""


def connection_type(unfinished_seconds: float) -> type[HttpConnection]:
    """Connections with this deadline."""
    return type("TimedConnection", (HttpConnection,), {"unfinished_seconds": unfinished_seconds})
