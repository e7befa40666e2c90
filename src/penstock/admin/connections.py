"""Connections of HTTP that take their time: who does not finish what it has begun, and who asks for nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: What a client may take its time with: to begin a request, and to finish its body.
_OWED = (h11.IDLE, h11.SEND_BODY)


class HttpConnection(H11Protocol):
    """One. A request that is not finished in time ends it; one that asks for nothing makes room for who does."""

    #: Seconds for a request; set by ``connection_type``.
    unfinished_seconds = 60.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._seen: tuple[Any, Any] = (None, h11.IDLE)
        self._since = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """See asyncio."""
        super().connection_made(transport)
        self._make_room()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Now and then: end it if it has owed us the same for too long."""
        seen, now = (self.cycle, self.conn.their_state), self.loop.time()
        if seen != self._seen:
            self._seen, self._since = seen, now
        if self.conn.their_state in _OWED and now - self._since >= self.unfinished_seconds:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(self.unfinished_seconds / 4, self._look)

    def _make_room(self) -> None:
        """The last places are for who asks for something."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        others = [each for each in self.connections if isinstance(each, HttpConnection) and each is not self]
        quiet = [each for each in others if each.conn.their_state is h11.IDLE and not each.transport.is_closing()]
        if quiet:
            min(quiet, key=lambda each: each._since).transport.abort()


def connection_type(unfinished_seconds: float) -> type[HttpConnection]:
    """Connections with this patience."""
    return type("TimedConnection", (HttpConnection,), {"unfinished_seconds": unfinished_seconds})
