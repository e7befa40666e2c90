"""What the endpoint's process is told when it starts, and what it says: one JSON value a line.

The broker writes ``Settings`` to the process's standard input and keeps it open; when that ends, the process does too,
so it never outlives its broker. On its standard output the process says ``Ready`` or ``Failed`` first, then ``Said``
for each thing that an operator should know.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the endpoint is to be."""

    #: The URL of the journal: see ``journal.open_journal``.
    journal: str = ""
    #: As in "127.0.0.1:8815", "[::1]:0" or "unix:/run/penstock/flight.sock".
    address: str
    #: PEM files.
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    #: The Unix socket on which the broker answers ``requests``.
    broker_socket: str = ""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """It accepts calls, at this address: "grpc://127.0.0.1:8815"."""

    address: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """It can't start, and why."""

    reason: str


class Said(msgspec.Struct, frozen=True, kw_only=True, tag="said"):
    """A line for the broker's log."""

    level: str
    event: str
    facts: dict[str, Any] = {}


Line = Ready | Failed | Said
