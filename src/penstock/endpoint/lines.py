"""What a process beside the broker says to it: one JSON value a line.

The broker writes settings to the process's standard input, as one line, and keeps it open; when that ends, the process
does too, so it never outlives its broker. On its standard output the process says ``Ready`` or ``Failed`` first, then
``Said`` for each thing that an operator should know, and ``Alive`` every second: one that has nothing to say for
``HUNG_SECONDS`` hangs, and the broker kills it and starts another one.
"""

from __future__ import annotations

from typing import Any

import msgspec

#: Seconds between two ``Alive``.
BEAT_SECONDS = 1.0
#: Seconds of silence after which a process counts as hung: many beats, as the machine may be busy with others.
HUNG_SECONDS = 15.0


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


class Alive(msgspec.Struct, frozen=True, kw_only=True, tag="alive"):
    """It still works: whatever does its work has had a turn."""


Line = Ready | Failed | Said | Alive
