"""The folder of a broker whose journal lies elsewhere: what is its own, and no other broker's.

    admin.sqlite     audit log, jobs, logins and saved queries of its HTTP process
    broker-socket    where its private socket is
    lock             no other broker may use the folder meanwhile

What all brokers of a journal must know (messages, queues, readers, writers, tokens) is in the journal.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.journal.errors import JournalRefused

LOCK = "lock"


class LocalFolder:
    """One that is ours until it is closed. It keeps small values, of which a power failure leaves nothing to find."""

    def __init__(self, path: str) -> None:
        """It is made if there is none. Raises OSError, or JournalRefused if another broker has it."""
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
        """A value; None if there is none. Raises OSError."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, value: bytes) -> None:
        """Keep a value. Raises OSError."""
        (self._path / name).write_bytes(value)

    def delete(self, name: str) -> None:
        """Forget a value. Raises OSError."""
        (self._path / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Let others have it."""
        os.close(self._lock)
