"""The endpoint's client of the private socket to the broker: one request, one answer. See ``requests``.

All requests are idempotent, so a request lost with its connection is sent once more on a new one. If the broker does
not answer, the client gets the error ``away``: the supervisor may be about to end this process too.
"""

from __future__ import annotations

import os
import socket
from struct import Struct
from threading import BoundedSemaphore, Lock
from typing import Any, TypeVar

import msgspec

from penstock.flight.calls import Problem
from penstock.flight.flight_requests import FRAME_BYTES, Request
from penstock.flight.problems import Trouble, trouble

#: Seconds to wait for an answer: a commit on a very slow disk.
PATIENCE = 60.0
#: Concurrent requests, well below the broker's limit; more wait for their turn.
AT_A_TIME = 32
#: Idle connections that are kept.
KEPT = 8

_LENGTH = Struct("<I")
#: Process, user and group of a peer, as SO_PEERCRED returns them.
_PEER = Struct("iII")
T = TypeVar("T")


class BrokerClient:
    """Sends requests to the broker. Threads may share one: each request has its own connection."""

    def __init__(self, path: str, patience: float = PATIENCE) -> None:
        self._path = path
        self._patience = patience
        self._lock = Lock()
        self._turn = BoundedSemaphore(AT_A_TIME)
        self._idle: list[socket.socket] = []

    def ask(self, request: Request, kind: type[T]) -> T:
        """Send a request and decode the answer as ``kind``. Raises the broker's Trouble, or ``away``."""
        with self._turn:
            return self._ask(msgspec.msgpack.encode(request), kind)

    def _ask(self, data: bytes, kind: type[T]) -> T:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            try:
                return self._answer(connection, data, kind)
            except OSError:
                pass  # the broker closed it while it was idle
        try:
            return self._answer(self._connect(), data, kind)
        except OSError:
            raise trouble("away", "the broker does not answer; try again") from None

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(self._patience)
            connection.connect(self._path)
            _check_user(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _answer(self, connection: socket.socket, data: bytes, kind: type[T]) -> T:
        try:
            connection.sendall(_LENGTH.pack(len(data)) + data)
            answer = _receive(connection, _LENGTH.unpack(_receive(connection, _LENGTH.size))[0])
        except BaseException:
            connection.close()
            raise
        with self._lock:
            keep = len(self._idle) < KEPT
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        return _decoded(answer, kind)


def _check_user(connection: socket.socket) -> None:
    """Raises ConnectionError unless our own user listens there: any user can take an abstract socket name."""
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if user != os.getuid():
        raise ConnectionError("another user listens on the socket")


def _receive(connection: socket.socket, size: int) -> bytes:
    if size > FRAME_BYTES:
        raise ConnectionError("a frame is longer than it can be")
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        got = connection.recv_into(view[at:])
        if not got:
            raise ConnectionError("the broker has hung up")
        at += got
    return bytes(data)


def _decoded(answer: bytes, kind: type[T]) -> T:
    values: Any = msgspec.msgpack.decode(answer)
    if isinstance(values, dict) and "code" in values and "type" not in values:
        raise Trouble(msgspec.convert(values, Problem))
    return msgspec.convert(values, kind, builtin_types=(bytes,))
