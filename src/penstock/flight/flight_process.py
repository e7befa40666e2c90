"""The life of the endpoint's process: it reads settings from standard input and ends when that ends."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

import pyarrow.flight as fl

from penstock.companions.process_reports import BEAT_SECONDS, Failed, Ready
from penstock.companions.settings import CompanionSettings
from penstock.companions.startup import Reporter, begin, read_settings, wait_for_address
from penstock.flight.access import MIDDLEWARE, HeaderReader
from penstock.flight.flight_server import Endpoint
from penstock.flight.service import FlightService
from penstock.journal.errors import LogAway

#: Seconds for calls in progress at the end.
GRACE = 1.0


def main(stdin: BinaryIO, out: BinaryIO) -> int:
    """Serve until ``stdin`` ends. Returns the exit code."""
    begin()
    reporter = Reporter(out, "the Flight endpoint")
    if (settings := read_settings(stdin, CompanionSettings)) is None:
        return 0
    try:
        endpoint = start(settings, reporter)
    except Exception as error:
        reporter.report(Failed(reason=_explained(settings, error), passes=isinstance(error, LogAway)))
        return 1
    reporter.report(Ready(address=endpoint.public_address))
    Thread(target=_beat, args=(reporter,), daemon=True).start()
    stdin.read()
    _end(endpoint)
    return 0


def start(settings: CompanionSettings, reporter: Reporter) -> Endpoint:
    """Start an endpoint that accepts calls."""
    wait_for_address(settings.address)
    tls: dict[str, Any] = {}
    if settings.tls_certificate:
        certificate = Path(settings.tls_certificate).read_bytes()
        key = Path(settings.tls_key).read_bytes() if settings.tls_key else certificate
        tls["tls_certificates"] = [fl.CertKeyPair(certificate, key)]
        if settings.tls_client_ca:
            tls["verify_client"] = True
            tls["root_certificates"] = Path(settings.tls_client_ca).read_bytes()
    service = FlightService(settings)
    middleware = {MIDDLEWARE: HeaderReader()}
    return Endpoint(settings.address, service, reporter.fault, middleware=middleware, **tls)


def _beat(reporter: Reporter) -> None:
    """Send heartbeats from a thread: while it runs, so do the threads that answer calls."""
    while True:
        reporter.beat()
        time.sleep(BEAT_SECONDS)


def _explained(settings: CompanionSettings, error: Exception) -> str:
    reason = str(error)
    if "did not start properly" in reason:  # gRPC gives no details
        reason = (
            "check that the certificate is valid and that the key belongs to it"
            if settings.tls_certificate
            else "this machine does not have that address"
        )
    elif isinstance(error, OSError):
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or reason
    return f"flight cannot listen on {settings.address}: {reason}"


def _end(endpoint: Endpoint) -> None:
    """Let calls finish for a moment, then cut off the rest."""
    ending = Thread(target=endpoint.shutdown, daemon=True)
    ending.start()
    ending.join(GRACE)
    sys.stdout.flush()
    os._exit(0)
