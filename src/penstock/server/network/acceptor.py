"""Taking connections in: from a listening socket to a session, through the TLS handshake where there is one.

We accept ourselves, because limits must hold before a handshake has begun: until it is done, asyncio does not tell of
a connection. It is also where the system tells that it has no more file descriptors.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.client.tls_errors import handshake_reason
from penstock.server.network.access import Peer

if TYPE_CHECKING:
    from penstock.server.network.session import Session
    from penstock.server.runtime import Runtime

#: Connections accepted in one go, before others have their turn.
BATCH = 64
#: The system is out of file descriptors or memory: try again after this many seconds.
PAUSE = 1.0
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
#: How long a TLS peer may take to close its side.
TLS_CLOSE_SECONDS = 5.0
#: A peer that is silently gone is noticed: asked after this many idle seconds, this often, this many times.
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Acceptor:
    """Makes a session of every connection that comes in, or turns it away."""

    def __init__(
        self,
        runtime: Runtime,
        protocol: str,
        sockets: Sequence[socket.socket],
        make: Callable[[], Session[Any]],
        context: ssl.SSLContext | None,
    ) -> None:
        self.sockets = sockets
        #: For connections from now on.
        self.context = context
        self._runtime = runtime
        self._protocol = protocol
        self._make = make
        self._arriving: set[asyncio.Task[None]] = set()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        for each in sockets:
            runtime.loop.add_reader(each.fileno(), self._accept, each)

    def close(self) -> None:
        """Accept no more, and forget those who have not arrived."""
        for each in self.sockets:
            if each in self._pauses:
                self._pauses.pop(each).cancel()
            else:
                self._runtime.loop.remove_reader(each.fileno())
            each.close()
        for task in self._arriving:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BATCH):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    continue  # this peer has gone already
                self._runtime.count("accept_failures")
                self._runtime.log.error("can not accept connections", protocol=self._protocol, reason=error.strerror)
                self._pause(listening)
                return
            self._take(connection, address)

    def _pause(self, listening: socket.socket) -> None:
        """Leave them waiting, instead of being told of them again and again."""
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
        except OSError:  # it has gone meanwhile
            connection.close()
            return
        if not self._runtime.arrive(self._protocol, peer):
            connection.close()
            return
        task = self._runtime.loop.create_task(self._arrive(connection, peer))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _arrive(self, connection: socket.socket, peer: Peer) -> None:
        session = self._make()
        session.peer = peer
        times: dict[str, Any] = {}
        if self.context is not None:
            times = {
                "ssl_handshake_timeout": self._runtime.options.limits.unfinished_seconds,
                "ssl_shutdown_timeout": TLS_CLOSE_SECONDS,
            }
        try:
            await self._runtime.loop.connect_accepted_socket(lambda: session, connection, ssl=self.context, **times)
        except OSError as error:
            self._runtime.count("failed_handshakes")
            reason = handshake_reason(error, "client")
            self._runtime.log.warning("TLS handshake failed", protocol=self._protocol, peer=peer.address, reason=reason)
        finally:
            if not session.arrived:
                self._runtime.leave(peer)
                connection.close()


def peer_of(connection: socket.socket, address: Any) -> Peer:
    """What can be told of the other end, before it has said anything."""
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
