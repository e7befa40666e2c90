"""Accepts connections and limits the TLS handshakes in progress. uvicorn takes it for an asyncio server."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

#: TLS handshakes in progress.
HANDSHAKES = 200
#: Seconds for a TLS handshake.
HANDSHAKE_SECONDS = 10.0
#: Seconds until accepting is retried when the system is out of file descriptors.
ACCEPT_PAUSE = 1.0

T = TypeVar("T")


class Acceptor:
    """Accepts connections from one listening socket."""

    def __init__(
        self, listening: socket.socket, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        self._listening = listening
        self._make = make
        self._tls = tls
        #: Socket and address of each connection that is being set up, oldest first.
        self._handshakes: dict[asyncio.Task[None], tuple[socket.socket, str]] = {}
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Stop accepting."""
        for task in (self._accepting, *self._handshakes):
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when accepting has stopped."""
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
                self._evict()
            await asyncio.sleep(0)  # sock_accept does not yield while connections are waiting

    def _evict(self) -> None:
        """End the oldest handshake of the address with the most. Its own task closes the socket."""
        order = list(self._handshakes)
        oldest = oldest_of_most(order, lambda task: self._handshakes[task][1], order.index)
        accepted, _ = self._handshakes.pop(oldest)
        with suppress(OSError):  # the client is gone
            accepted.shutdown(socket.SHUT_RDWR)

    async def _set_up(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        seconds = HANDSHAKE_SECONDS if self._tls is not None else None
        try:
            await loop.connect_accepted_socket(self._make, accepted, ssl=self._tls, ssl_handshake_timeout=seconds)
        except OSError:  # the handshake failed or took too long
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise


def oldest_of_most(found: Iterable[T], address: Callable[[T], str], age: Callable[[T], float]) -> T:
    """Among the items of the address that has the most of them, the one with the lowest ``age``."""
    found = list(found)
    counts = Counter(map(address, found))
    most = max(counts.values())
    return min((each for each in found if counts[address(each)] == most), key=age)
