"""Listeners: TCP, Unix-domain sockets, TLS on either."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
from collections.abc import Callable
from typing import Any

from penstock.server.kokaq import KokaqSession
from penstock.server.options import Address, KokaqListener, Listener, PhpmqListener, SspqListener
from penstock.server.phpmq import PhpmqSession
from penstock.server.runtime import Runtime
from penstock.server.session import Session
from penstock.server.sspq import SspqSession

#: Connections that may wait to be accepted: a restart's storm of clients.
BACKLOG = 1024


class ListenError(Exception):
    """A listener could not be opened. The text says which, and why."""


class Door:
    """One open listener."""

    def __init__(
        self, protocol: str, listener: Listener, server: asyncio.Server, context: ssl.SSLContext | None
    ) -> None:
        self.protocol = protocol
        self.listener = listener
        self.server = server
        self._context = context
        self.address = _real_address(listener, server)

    def reload_certificate(self) -> bool:
        """Read the certificate files again, for connections from now on. False: it has none. Raises ListenError."""
        if self._context is None:
            return False
        _load_certificate(self._context, self.listener)
        return True

    async def close(self) -> None:
        """Accept no more."""
        self.server.close()
        path = Address.parse(self.listener.address).path
        if path and os.path.exists(path):
            os.unlink(path)


async def open_doors(runtime: Runtime) -> list[Door]:
    """Open all listeners of the options, or none."""
    options = runtime.options
    wanted: list[tuple[str, Listener, Callable[[], Session[Any]]]] = []
    wanted += [("phpmq", each, _maker(PhpmqSession, runtime, each)) for each in options.phpmq]
    wanted += [("sspq", each, _maker(SspqSession, runtime, each)) for each in options.sspq]
    wanted += [("kokaq", each, _maker(KokaqSession, runtime, each)) for each in options.kokaq]
    doors: list[Door] = []
    try:
        for protocol, listener, make in wanted:
            doors.append(await _open(protocol, listener, make))
    except BaseException:
        for door in doors:
            await door.close()
        raise
    return doors


def _maker(
    kind: Callable[[Runtime, Any], Session[Any]],
    runtime: Runtime,
    listener: PhpmqListener | SspqListener | KokaqListener,
) -> Callable[[], Session[Any]]:
    return lambda: kind(runtime, listener)


async def _open(protocol: str, listener: Listener, make: Callable[[], Session[Any]]) -> Door:
    loop = asyncio.get_running_loop()
    address = Address.parse(listener.address)
    context = _tls_context(listener)
    try:
        server: asyncio.Server
        if address.path:
            _remove_stale(address.path)
            server = await loop.create_unix_server(make, address.path, ssl=context, backlog=BACKLOG)
            os.chmod(address.path, 0o660)
        else:
            server = await loop.create_server(make, address.host, address.port, ssl=context, backlog=BACKLOG)
    except OSError as error:
        raise ListenError(f"{protocol} can not listen on {address}: {error.strerror or error}") from None
    return Door(protocol, listener, server, context)


def _real_address(listener: Listener, server: asyncio.Server) -> str:
    address = Address.parse(listener.address)
    if address.path:
        return str(address)
    host, port = server.sockets[0].getsockname()[:2]
    return str(Address(host, port))


def _remove_stale(path: str) -> None:
    """A socket file that nobody listens on is left over from a crash."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise ListenError(f"{path} is in the way: it is there and not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise ListenError(f"somebody listens on {path} already")


def _tls_context(listener: Listener) -> ssl.SSLContext | None:
    if not listener.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
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
