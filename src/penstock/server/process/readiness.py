"""Reporting readiness: the ready file, and systemd."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

#: Keeps systemd from ending a long start.
STILL_STARTING = "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=waiting for room on the disk"

#: A serving broker owns the journal and its listeners accept; a standby waits for another broker's journal.
Role = Literal["serving", "standby"]


class Listening(NamedTuple):
    """The address of a listener."""

    protocol: str
    address: str


class ReadyFile:
    """Written once the process is up, replaced when its role changes, removed when it begins to end."""

    def __init__(self, path: str) -> None:
        """An empty path: no file."""
        self._path = Path(path) if path else None

    def write(self, role: Role, listening: Sequence[Listening]) -> None:
        """Replace the file atomically. Raises OSError."""
        if self._path is not None:
            facts = {"pid": os.getpid(), "role": role, "listeners": [each._asdict() for each in listening]}
            temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            temporary.write_text(json.dumps(facts) + "\n")
            temporary.rename(self._path)

    def remove(self) -> None:
        """Remove the file, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            if self._path is not None:
                self._path.unlink()


def notify(state: str) -> None:
    """Send a state to systemd, if it started us and listens."""
    where = os.environ.get("NOTIFY_SOCKET")
    if where:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + where[1:] if where.startswith("@") else where)
            channel.send(state.encode())
