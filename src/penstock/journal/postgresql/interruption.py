"""Ending what the connections to a journal wait for: a commit waits for a dead synchronous standby until it is back."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from threading import Lock
from typing import Protocol
from weakref import WeakSet

from penstock.journal.postgresql.database import ConnectionLost


class Connection(Protocol):
    """As far as it matters here."""

    def fileno(self) -> int:
        """The descriptor of its socket. Raises an error of the driver if it is closed."""

    def close(self) -> None:
        """Close it."""


class Interruption:
    """All connections to one journal share this. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_over = False
        self._connections: WeakSet[Connection] = WeakSet()

    def check(self) -> None:
        """Raise ConnectionLost if nothing is asked any more."""
        if self._is_over:
            raise ConnectionLost("the broker ends, and asks the database nothing more", denied=True)

    def add(self, connection: Connection) -> None:
        """A connection was made. Raises ConnectionLost if that was too late."""
        with self._lock:
            if not self._is_over:
                self._connections.add(connection)
                return
        connection.close()
        self.check()

    def interrupt(self) -> None:
        """Let every statement that is under way fail, and every later one.

        The driver must not be used in two threads at a time, so the socket is shut down below it.
        """
        with self._lock:
            self._is_over = True
            for connection in self._connections:
                # It may have been closed meanwhile.
                with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as found:
                    found.shutdown(socket.SHUT_RDWR)
