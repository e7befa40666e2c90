"""What the process tells those who started it: the ready file, and systemd."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

#: For systemd, which would end a start that takes long.
STILL_STARTING = "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=waiting for room on the disk"

#: serving: it owns the journal, and its listeners accept. standby: another broker does.
Role = Literal["serving", "standby"]


class Listening(NamedTuple):
    """Where something listens."""

    protocol: str
    address: str


class ReadyFile:
    """Written as soon as the process is up, replaced when its role changes, removed when it begins to end."""

    def __init__(self, path: str) -> None:
        """An empty path: nobody wants one."""
        self._path = Path(path) if path else None

    def write(self, role: Role, listening: Sequence[Listening]) -> None:
        """Say what the process does. Whoever reads it sees the old file or the new one. Raises OSError."""
        if self._path is not None:
            told = {"pid": os.getpid(), "role": role, "listeners": [each._asdict() for each in listening]}
            temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            temporary.write_text(json.dumps(told) + "\n")
            temporary.rename(self._path)

    def remove(self) -> None:
        """The process ends."""
        with contextlib.suppress(FileNotFoundError):
            if self._path is not None:
                self._path.unlink()


def notify(state: str) -> None:
    """Tell systemd, if it started us and wants to know."""
    where = os.environ.get("NOTIFY_SOCKET")
    if where:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + where[1:] if where.startswith("@") else where)
            channel.send(state.encode())
