"""Interrupts all connections to a journal. A commit waits for a dead synchronous standby until it returns."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from threading import Lock
from typing import Protocol
from weakref import WeakSet

from penstock.journal.postgresql.database import ConnectionLost


class Connection(Protocol):
    """The methods of a connection that are used here."""

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
        """Raise ConnectionLost after an interruption."""
        if self._is_over:
            raise ConnectionLost("the broker is stopping, and sends the database nothing more", denied=True)

    def add(self, connection: Connection) -> None:
        """Register a new connection. After an interruption, close it and raise ConnectionLost."""
        with self._lock:
            if not self._is_over:
                self._connections.add(connection)
                return
        connection.close()
        self.check()

    def interrupt(self) -> None:
        """Make every running and every later statement fail.

        Two threads must not use the driver at a time, so the socket is shut down beneath it.
        """
        with self._lock:
            self._is_over = True
            for connection in self._connections:
                # It may have been closed meanwhile.
                with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as found:
                    found.shutdown(socket.SHUT_RDWR)
