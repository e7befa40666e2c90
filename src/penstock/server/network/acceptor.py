"""Accepting connections: from a listening socket to a session, if configured through a PROXY header and TLS handshake.

We accept ourselves, because limits must hold before a handshake begins, and asyncio reports a connection only after it.
Accepting is also where the system reports that it has run out of file descriptors.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from penstock.server.network.access import Peer, plain_address
from penstock.server.network.proxy_protocol import ProxyError, read_header
from penstock.tls_errors import handshake_reason

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime
    from penstock.server.network.session import Session

#: Networks of proxies.
Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]

#: Connections accepted at once, before the loop has another turn.
BATCH = 64
#: The system is out of file descriptors or memory: try again after this many seconds.
PAUSE = 1.0
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
#: How long a TLS peer may take to close its side.
TLS_CLOSE_SECONDS = 5.0
#: Probes that detect a vanished peer: after TCP_KEEPIDLE idle seconds, every TCP_KEEPINTVL, TCP_KEEPCNT times.
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Acceptor:
    """Makes a session for every incoming connection, or turns it away."""

    def __init__(
        self,
        runtime: Runtime,
        protocol: str,
        sockets: Sequence[socket.socket],
        make: Callable[[], Session[Any]],
        context: ssl.SSLContext | None,
        proxies: Networks | None = None,
    ) -> None:
        """``proxies`` are the networks whose connections begin with a PROXY header; empty: all do. None: none do."""
        self.sockets = sockets
        #: For new connections.
        self.context = context
        self._runtime = runtime
        self._protocol = protocol
        self._make = make
        self._proxies = proxies
        self._arriving: set[asyncio.Task[None]] = set()
        #: Tasks that wait for a PROXY header or a TLS handshake.
        self._unready: set[asyncio.Task[None]] = set()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        for each in sockets:
            runtime.loop.add_reader(each.fileno(), self._accept, each)

    def use(self, context: ssl.SSLContext | None) -> None:
        """Use this TLS context for new connections."""
        self.context = context

    async def close(self) -> None:
        """Stop accepting, and drop connections that wait for a PROXY header or a TLS handshake.

        All others have a session on return. Their tasks are not cancelled: uvloop would close the connection without
        notifying the session.
        """
        for each in self.sockets:
            if each in self._pauses:
                self._pauses.pop(each).cancel()
            else:
                self._runtime.loop.remove_reader(each.fileno())
            each.close()
        await asyncio.sleep(0)  # lets every task start that was created before
        for task in self._unready:
            task.cancel()
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BATCH):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    continue  # this peer has already closed the connection
                self._runtime.count("accept_failures")
                self._runtime.log.error("cannot accept connections", protocol=self._protocol, reason=error.strerror)
                self._pause(listening)
                return
            self._take(connection, address)

    def _pause(self, listening: socket.socket) -> None:
        """Leave connections waiting, instead of failing to accept them again and again."""
        self._runtime.loop.remove_reader(listening.fileno())
        self._pauses[listening] = self._runtime.loop.call_later(PAUSE, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._pauses[listening]
        self._runtime.loop.add_reader(listening.fileno(), self._accept, listening)
        self._accept(listening)

    def _take(self, connection: socket.socket, address: Any) -> None:
        try:
            connection.setblocking(False)
            peer = peer_of(connection, address)
            if connection.family != socket.AF_UNIX:
                _keep_alive(connection)
        except OSError:  # the peer has closed the connection
            connection.close()
            return
        if not (self._is_trusted(peer) and self._runtime.peers.arrive(self._protocol, peer)):
            connection.close()
            return
        arrive = self._arrive if self._proxies is None else self._arrive_by_proxy
        task = self._runtime.loop.create_task(arrive(connection, peer))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    def _is_trusted(self, peer: Peer) -> bool:
        """Whether the peer may connect: if the listener is for certain proxies, whether it is one of them."""
        if not self._proxies:
            return True
        address = plain_address(peer.address)
        if address is not None and any(address in each for each in self._proxies):
            return True
        self._turn_away(peer, "it is not in proxy_from")
        return False

    def _turn_away(self, peer: Peer, reason: str) -> None:
        self._runtime.count("turned_away")
        self._runtime.log.warning("no PROXY header taken", protocol=self._protocol, peer=peer.address, reason=reason)

    @contextmanager
    def _cancelled_by_close(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._unready.add(task)
        try:
            yield
        finally:
            self._unready.discard(task)

    async def _arrive_by_proxy(self, connection: socket.socket, proxy: Peer) -> None:
        client = None
        try:
            with self._cancelled_by_close():
                client = await self._introduced(connection, proxy)
        finally:
            if client is None:
                connection.close()
        if client is not None:
            await self._arrive(connection, client)

    async def _introduced(self, connection: socket.socket, proxy: Peer) -> Peer | None:
        """The client whose connection a proxy forwards, counted instead of the proxy. None: it was turned away."""
        seconds = self._runtime.options.limits.unfinished_seconds
        client, itself = None, False
        try:
            async with asyncio.timeout(seconds):
                client = await read_header(connection)
            itself = client is None
        except TimeoutError:
            self._turn_away(proxy, f"its PROXY header was not whole within {seconds:g} s")
        except (ProxyError, OSError) as error:
            self._turn_away(proxy, str(error))
        finally:
            if not itself:
                self._runtime.peers.leave(proxy)
        if itself:
            return proxy
        return client if client is not None and self._runtime.peers.arrive(self._protocol, client) else None

    async def _arrive(self, connection: socket.socket, peer: Peer) -> None:
        session = self._make()
        session.expect(peer, connection)
        times: dict[str, Any] = {}
        if self.context is not None:
            times = {
                "ssl_handshake_timeout": self._runtime.options.limits.unfinished_seconds,
                "ssl_shutdown_timeout": TLS_CLOSE_SECONDS,
            }
        try:
            with self._cancelled_by_close() if self.context is not None else nullcontext():
                await self._runtime.loop.connect_accepted_socket(lambda: session, connection, ssl=self.context, **times)
        except OSError as error:
            self._runtime.count("failed_handshakes")
            reason = handshake_reason(error, "client")
            self._runtime.log.warning("TLS handshake failed", protocol=self._protocol, peer=peer.address, reason=reason)
        finally:
            if not session.arrived:
                self._runtime.peers.leave(peer)
                connection.close()


def peer_of(connection: socket.socket, address: Any) -> Peer:
    """The address, or user, of the other end."""
    if connection.family != socket.AF_UNIX:
        return Peer(str(address[0]), port=int(address[1]))
    user = None
    if hasattr(socket, "SO_PEERCRED"):
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        user = int(struct.unpack("3i", raw)[1])
    return Peer("unix", user=user)


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
