"""The data folder of a broker whose journal is elsewhere, for what it does not share with other brokers.

    admin.sqlite     audit log, jobs, logins and saved queries of its HTTP process
    broker-socket    the folder of its private socket
    lock             keeps other brokers out of the folder

Messages, queues, readers, writers and tokens, which all brokers of a journal need, are in the journal.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.journal.errors import JournalRefused

LOCK = "lock"


class LocalFolder:
    """Locked until it is closed. It keeps small values, which a power failure may lose."""

    def __init__(self, path: str) -> None:
        """Create the folder if needed. Raises OSError, or JournalRefused if another broker uses it."""
        self._path = Path(path)
        self._path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise JournalRefused(
                f"{path} is in use by another broker: each needs a data folder of its own, also where they share a "
                f"journal; name another one with --data"
            ) from None

    def get(self, name: str) -> bytes | None:
        """The value, or None. Raises OSError."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, value: bytes) -> None:
        """Keep a value. Raises OSError."""
        (self._path / name).write_bytes(value)

    def delete(self, name: str) -> None:
        """Remove a value, if there is one. Raises OSError."""
        (self._path / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock the folder."""
        os.close(self._lock)
