"""The life of the endpoint's process: told what to be on standard input, over when that ends."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any, BinaryIO

import msgspec
import pyarrow.flight as fl

from penstock.flight.access import MIDDLEWARE, HeaderReader
from penstock.flight.endpoint import Endpoint
from penstock.flight.service import Service
from penstock.flight.settings import Failed, Line, Ready, Said, Settings

#: Less urgent than the broker and its clients: reading must not slow them down.
NICENESS = 19
#: Seconds that calls on their way get at the end.
GRACE = 1.0
#: Seconds that an address in use may take to become free.
FREE_SECONDS = 3.0


class Voice:
    """Says things to the broker. Threads may share one."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = Lock()

    def say(self, line: Line) -> None:
        """One line."""
        with self._lock, suppress(OSError, ValueError):  # nobody listens: the broker is gone, and so are we, soon
            self._out.write(msgspec.json.encode(line) + b"\n")
            self._out.flush()

    def fault(self, error: BaseException) -> None:
        """Something that must not happen has happened."""
        place = "".join(traceback.format_exception(error)[-3:]).strip()
        self.say(Said(level="error", event="a fault of the Flight endpoint", facts={"error": place[-2000:]}))


def main(told: BinaryIO, out: BinaryIO) -> int:
    """Serve until ``told`` ends. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the broker as well, which then tells us
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _be_humble()
    voice = Voice(out)
    line = told.readline()
    if not line:
        return 0
    settings = msgspec.json.decode(line, type=Settings)
    try:
        endpoint = start(settings, voice)
    except Exception as error:
        voice.say(Failed(reason=_explained(settings, error)))
        return 1
    voice.say(Ready(address=endpoint.told_address))
    told.read()
    _end(endpoint)
    return 0


def start(settings: Settings, voice: Voice) -> Endpoint:
    """An endpoint that accepts calls."""
    _wait_for_address(settings.address)
    tls: dict[str, Any] = {}
    if settings.tls_certificate:
        certificate = Path(settings.tls_certificate).read_bytes()
        key = Path(settings.tls_key).read_bytes() if settings.tls_key else certificate
        tls["tls_certificates"] = [fl.CertKeyPair(certificate, key)]
        if settings.tls_client_ca:
            tls["verify_client"] = True
            tls["root_certificates"] = Path(settings.tls_client_ca).read_bytes()
    service = Service(settings)
    middleware = {MIDDLEWARE: HeaderReader()}
    return Endpoint(settings.address, service, voice.fault, middleware=middleware, **tls)


def _wait_for_address(address: str) -> None:
    """Raises OSError with the reason if it can't be listened on, which pyarrow keeps to itself.

    The endpoint of a broker that was killed a moment ago may still be about to end, so it is tried for a while.
    """
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + FREE_SECONDS
    while not address.startswith("unix:"):
        try:
            for family, kind, _, _, where in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
                with socket.socket(family, kind) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(where)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _be_humble() -> None:
    with suppress(OSError):  # where that is forbidden, the broker's own priority must do
        os.nice(NICENESS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # segments are kept open while they are read
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _explained(settings: Settings, error: Exception) -> str:
    reason = str(error)
    if "did not start properly" in reason:  # it says no more
        reason = "is the certificate one, and the key its own?" if settings.tls_certificate else "it is not ours"
    elif isinstance(error, OSError):
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or reason
    return f"flight can not listen on {settings.address}: {reason}"


def _end(endpoint: Endpoint) -> None:
    """Let calls finish for a moment, then go: those that wait longer are cut off."""
    ending = Thread(target=endpoint.shutdown, daemon=True)
    ending.start()
    ending.join(GRACE)
    sys.stdout.flush()
    os._exit(0)
