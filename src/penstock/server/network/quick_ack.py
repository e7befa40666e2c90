"""Prompt TCP acknowledgements.

Linux sends acknowledgements with the next write, or after 40 ms. A client that leaves Nagle's algorithm on holds back
its next small write until then, so a read that gets no answer must not wait for one. TCP_QUICKACK acknowledges all
bytes that were read, and later ones at once until the next write.
"""

from __future__ import annotations

import socket
from typing import Final

#: 0: this system does not have it.
QUICKACK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)


class QuickAck:
    """The acknowledgements of one connection."""

    def __init__(self) -> None:
        #: The socket of a TCP connection; None for other connections, and on systems without TCP_QUICKACK.
        self._socket: socket.socket | None = None
        #: The system delays acknowledgements, because something was written.
        self.delayed = False
        #: Bytes were read while it does, and nothing was written since.
        self.due = False

    def watch(self, connection: socket.socket) -> None:
        """The connection is this one."""
        if QUICKACK and connection.family != socket.AF_UNIX:
            self._socket = connection

    def note_read(self) -> None:
        """Bytes were read, whose acknowledgement is delayed."""
        self.due = True

    def note_write(self) -> None:
        """Bytes are written, and carry the acknowledgement of those that were read."""
        self.delayed = self._socket is not None
        self.due = False

    def acknowledge(self) -> None:
        """Acknowledge now."""
        self.delayed = self.due = False
        if self._socket is not None:
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
            except OSError:  # it is closed
                self._socket = None
