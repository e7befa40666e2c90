"""The main loop of the HTTP process. It reads its settings from standard input and exits when that ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any, BinaryIO

import uvicorn
from typing_extensions import override

from penstock.admin.acceptor import Acceptor
from penstock.admin.connections import connection_type
from penstock.admin.service import AdminService, largest_publish
from penstock.admin.settings import AdminSettings
from penstock.companions.process_reports import BEAT_SECONDS, Failed, Ready
from penstock.companions.sockets import listen_unix
from penstock.companions.startup import Reporter, begin, limit_memory, read_settings, wait_for_address

#: Seconds for running requests at the end.
GRACE = 1
#: Seconds until an idle connection is closed, and default of the time limit of a request.
KEEP_ALIVE = 30
UNFINISHED = 60
#: Bytes that the process may allocate, plus six times the largest publish, which is held in several forms.
MEMORY_BYTES = 2**30
#: Connections that may wait for being accepted.
BACKLOG = 256


def main(stdin: BinaryIO, out: BinaryIO) -> int:
    """Serve until ``stdin`` ends. Returns the exit code."""
    begin()
    reporter = Reporter(out, "the HTTP process")
    if (settings := read_settings(stdin, AdminSettings)) is None:
        return 0
    try:
        listening = listen(settings.address)
        config = _config(settings)
        config.load()
    except (OSError, ssl.SSLError) as error:
        reason = f"{error.filename}: {error.strerror}" if getattr(error, "filename", None) else str(error)
        reason = error.strerror or reason if isinstance(error, OSError) and not error.filename else reason
        reporter.report(Failed(reason=f"http cannot listen on {settings.address}: {reason}"))
        return 1
    limit_memory(MEMORY_BYTES + 6 * largest_publish(settings))
    asyncio.run(_serve(settings, config, listening, stdin, reporter))
    return 0


async def _serve(
    settings: AdminSettings, config: uvicorn.Config, listening: socket.socket, stdin: BinaryIO, reporter: Reporter
) -> None:
    service = AdminService(settings, reporter)
    config.loaded_app = service.app
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def wait_for_end() -> None:
        stdin.read()
        loop.call_soon_threadsafe(end)

    def end() -> None:
        server.should_exit = True
        service.stop()

    waiting = loop.run_in_executor(None, wait_for_end)
    reporter.report(Ready(address=_public_address(settings, listening)))
    await service.start()
    beating = asyncio.create_task(_beat(reporter))
    await server.serve(sockets=[listening])
    beating.cancel()
    await service.close()
    if not waiting.done():
        os._exit(0)


async def _beat(reporter: Reporter) -> None:
    """Runs on the loop that serves requests, so that a blocked loop sends no heartbeat."""
    while True:
        reporter.beat()
        await asyncio.sleep(BEAT_SECONDS)


class _Server(uvicorn.Server):
    """Ignores signals: the broker decides when to end."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # our acceptor replaces asyncio's server
        def make() -> asyncio.Protocol:
            kind: Any = self.config.http_protocol_class
            found: asyncio.Protocol = kind(config=self.config, server_state=self.server_state, app_state={})
            return found

        acceptors: Any = [Acceptor(each, make, self.config.ssl) for each in sockets or ()]
        self.servers = acceptors
        self.started = True


def _config(settings: AdminSettings) -> uvicorn.Config:
    tls = {}
    if settings.tls_certificate:
        tls = {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": settings.tls_key or None}
        if settings.tls_client_ca:
            tls |= {"ssl_ca_certs": settings.tls_client_ca}
    return uvicorn.Config(
        _nothing,
        http=connection_type(float(settings.limits.get("unfinished_seconds", UNFINISHED))),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # errors of clients are responses, and would fill the log
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
        **tls,  # type: ignore[arg-type]
    )


async def _nothing(scope: object, receive: object, send: object) -> None:
    """A placeholder for the application."""


def listen(address: str) -> socket.socket:
    """A listening socket. Raises OSError."""
    wait_for_address(address)
    if address.startswith("unix:"):
        return listen_unix(address.removeprefix("unix:"), BACKLOG)
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = found[0]
    listening = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY where the protocol is named
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(where)
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


def _public_address(settings: AdminSettings, listening: socket.socket) -> str:
    """The URL for clients, with the actual port."""
    if settings.address.startswith("unix:"):
        return f"http+{settings.address}"
    scheme = "https" if settings.tls_certificate else "http"
    host = settings.address.rpartition(":")[0]
    return f"{scheme}://{host}:{listening.getsockname()[1]}"
