"""What a process beside the broker says to it: one JSON value a line.

The broker writes settings to the process's standard input, as one line, and keeps it open; when that ends, the process
does too, so it never outlives its broker. On its standard output the process says ``Ready`` or ``Failed`` first, then
``Said`` for each thing that an operator should know.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """It accepts calls, at this address: "grpc://127.0.0.1:8815"."""

    address: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """It can't start, and why. ``passes``: it is worth another try."""

    reason: str
    passes: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True, tag="said"):
    """A line for the broker's log."""

    level: str
    event: str
    facts: dict[str, Any] = {}


Line = Ready | Failed | Said
