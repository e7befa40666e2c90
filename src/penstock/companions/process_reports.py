"""A companion process's reports to the broker: one JSON value per line.

The broker writes settings to the process's standard input, as one line, and keeps it open; when it ends, the process
ends too, so it never outlives its broker. On standard output the process first writes ``Ready`` or ``Failed``, then
``LogEvent`` for each event that operators should see, and ``Alive`` every second. A process silent for ``HUNG_SECONDS``
hangs; the broker kills and restarts it.
"""

from __future__ import annotations

from typing import Any

import msgspec

#: Seconds between two ``Alive`` lines.
BEAT_SECONDS = 1.0
#: Seconds of silence after which a process counts as hung: many beats, since the machine may be busy.
HUNG_SECONDS = 15.0


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The process accepts calls at this address, such as "grpc://127.0.0.1:8815"."""

    address: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The process can't start, and why. ``passes``: a retry may succeed."""

    reason: str
    passes: bool = False


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, tag="log-event"):
    """An event for the broker's log."""

    level: str
    event: str
    facts: dict[str, Any] = {}


class Alive(msgspec.Struct, frozen=True, kw_only=True, tag="alive"):
    """The process still works: its main loop has had a turn."""


ProcessReport = Ready | Failed | LogEvent | Alive
