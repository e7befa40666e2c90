"""Listeners: TCP, Unix-domain sockets, TLS on either."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.companions.sockets import listen_unix
from penstock.protocols import Protocol, ProtocolError, protocols
from penstock.server.network.acceptor import Acceptor, Networks
from penstock.server.network.runtime import Runtime
from penstock.server.network.session import Session
from penstock.server.options.listener_options import ListenAddress, Listener

#: Connections that may wait to be accepted: a restart's storm of clients.
BACKLOG = 1024


class ListenError(Exception):
    """A listener could not be opened. The text says which, and why."""


class OpenListener:
    """One open listener."""

    def __init__(self, protocol: str, listener: Listener, acceptor: Acceptor) -> None:
        self.protocol = protocol
        self.listener = listener
        self.acceptor = acceptor
        self.address = _real_address(listener, acceptor.sockets)

    def reload_certificate(self) -> bool:
        """Read the certificate files again, for connections from now on. False: it has none. Raises ListenError.

        The new context replaces the old one only when all files were read, so an invalid file changes nothing.
        """
        if self.acceptor.context is None:
            return False
        self.acceptor.use(_tls_context(self.listener))
        return True

    async def close(self) -> None:
        """Stop accepting connections, and remove the socket file."""
        await self.acceptor.close()
        path = ListenAddress.parse(self.listener.address).path
        if path and os.path.exists(path):
            os.unlink(path)


def load_sessions() -> None:
    """Import the session modules: a standby has the time for it, a broker that takes over does not."""
    for protocol in protocols().values():
        _session_type(protocol)


async def open_listeners(runtime: Runtime) -> list[OpenListener]:
    """Open all listeners of the options, or none."""
    opened: list[OpenListener] = []
    try:
        for protocol in protocols().values():
            for listener in runtime.options.listeners(protocol.name):
                make = partial(_session_type(protocol), runtime, listener)
                opened.append(await _open(runtime, protocol.name, listener, make))
    except BaseException:
        for each in opened:
            await each.close()
        raise
    return opened


def _session_type(protocol: Protocol) -> Callable[[Runtime, Any], Session[Any]]:
    """The class of a protocol's sessions."""
    found = protocol.part("session")
    if not (isinstance(found, type) and issubclass(found, Session) and found.protocol == protocol.name):
        raise ProtocolError(
            f"{protocol.title}: {protocol.session!r} is not a session of the protocol {protocol.name!r}"
        )
    return found


async def _open(runtime: Runtime, protocol: str, listener: Listener, make: Callable[[], Session[Any]]) -> OpenListener:
    address = ListenAddress.parse(listener.address)
    context = _tls_context(listener)
    try:
        sockets = [listen_unix(address.path, BACKLOG)] if address.path else await _listen_tcp(address)
    except OSError as error:
        raise ListenError(f"{protocol} cannot listen on {address}: {error.strerror or error}") from None
    if listener.proxy_protocol and not (listener.proxy_from or address.is_local):
        text = "any peer that can connect can claim another address: name the load balancers in proxy_from"
        runtime.log.warning(text, protocol=protocol, address=str(address))
    return OpenListener(protocol, listener, Acceptor(runtime, protocol, sockets, make, context, _proxies(listener)))


def _proxies(listener: Listener) -> Networks | None:
    """The networks of proxies that must introduce connections, or None."""
    if not listener.proxy_protocol:
        return None
    return [ipaddress.ip_network(each) for each in listener.proxy_from]


async def _listen_tcp(address: ListenAddress) -> list[socket.socket]:
    """A socket for each address of the host name. With port 0, all of them get the same free port."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            listening = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((where[0], port, *where[2:]))
            listening.listen(BACKLOG)
            port = listening.getsockname()[1]
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def _real_address(listener: Listener, sockets: Sequence[socket.socket]) -> str:
    address = ListenAddress.parse(listener.address)
    if address.path:
        return str(address)
    host, port = sockets[0].getsockname()[:2]
    return str(ListenAddress(host, port))


def _tls_context(listener: Listener) -> ssl.SSLContext | None:
    if not listener.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a peer could keep us busy with it
    # A publisher of PHPMQ or SSPQ never reads. Session tickets would stay unread in its receive buffer, and when it
    # closes a connection with unread bytes, its system discards bytes that it has not sent yet: lost messages.
    context.num_tickets = 0
    _load_certificate(context, listener)
    if listener.tls_client_ca:
        try:
            context.load_verify_locations(listener.tls_client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ListenError(f"tls_client_ca {listener.tls_client_ca}: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_certificate(context: ssl.SSLContext, listener: Listener) -> None:
    try:
        context.load_cert_chain(listener.tls_certificate, listener.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise ListenError(
            f"tls_certificate {listener.tls_certificate}, tls_key {listener.tls_key or '(in the same file)'}: {error}"
        ) from None
