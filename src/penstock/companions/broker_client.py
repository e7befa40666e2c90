"""Clients of the broker's private socket: one request, one answer. See ``framing``.

``BrokerClient`` blocks, for threads; ``AsyncBrokerClient`` is for an event loop. Both keep idle connections. A request
that was lost with an idle connection is sent once more on a new one, unless it is a ``Change`` that the broker may have
received. Requests raise ``BrokerRefused``, which is the broker's answer, or ``BrokerAway``.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from struct import Struct
from threading import BoundedSemaphore, Lock
from typing import TypeVar

from penstock.companions.framing import LENGTH, Change, Request, decode_answer, framed, size_of_frame

#: Seconds to wait for an answer: it may need a commit on a very slow disk.
PATIENCE = 60.0
#: Concurrent requests of the Flight endpoint, and of the HTTP process; more wait. Together with the SQL workers' they
#: stay below the broker's limit of connections.
AT_A_TIME = 32
ASYNC_AT_A_TIME = 24
#: Idle connections that are kept.
KEPT = 8

#: Process, user and group of a peer, as SO_PEERCRED returns them.
_PEER = Struct("iII")
_AWAY = "the broker does not answer; try again"
_UNCERTAIN = "the broker went away before it answered: check whether the change was made"
T = TypeVar("T")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BrokerAway(Exception):
    """The broker did not answer."""


class BrokerClient:
    """A blocking client. Threads may share one: each concurrent request has its own connection."""

    def __init__(self, path: str, patience: float = PATIENCE) -> None:
        self._path = path
        self._patience = patience
        self._lock = Lock()
        self._turn = BoundedSemaphore(AT_A_TIME)
        self._idle: list[socket.socket] = []

    def ask(self, request: Request, kind: type[T]) -> T:
        """Send a request and decode the answer as ``kind``."""
        frame = b"".join(framed(request))
        with self._turn:
            return decode_answer(self._ask(frame, changes=isinstance(request, Change)), kind)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _ask(self, frame: bytes, *, changes: bool) -> bytearray:
        connection = self._take_idle()
        if connection is not None:
            try:
                return self._answer(connection, frame)
            except OSError:
                if changes:
                    raise BrokerAway(_UNCERTAIN) from None
        try:
            return self._answer(self._connect(), frame)
        except OSError:
            raise BrokerAway(_AWAY) from None

    def _take_idle(self) -> socket.socket | None:
        """An idle connection that the broker has not closed."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None or _is_quiet(connection):
                return connection
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

    def _answer(self, connection: socket.socket, frame: bytes) -> bytearray:
        try:
            connection.sendall(frame)
            answer = _receive(connection, size_of_frame(_receive(connection, LENGTH.size)))
        except BaseException:
            connection.close()
            raise
        with self._lock:
            keep = len(self._idle) < KEPT
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        return answer


class AsyncBrokerClient:
    """A client for one event loop."""

    def __init__(self, path: str, patience: float = PATIENCE) -> None:
        self._path = path
        self._patience = patience
        self._turn = asyncio.Semaphore(ASYNC_AT_A_TIME)
        self._idle: list[Streams] = []

    async def ask(self, request: Request, kind: type[T]) -> T:
        """Send a request and decode the answer as ``kind``."""
        frame = framed(request)
        async with self._turn:
            return decode_answer(await self._ask(frame, changes=isinstance(request, Change)), kind)

    def close(self) -> None:
        """Close the idle connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _ask(self, frame: list[bytes], *, changes: bool) -> bytes:
        streams = self._take_idle()
        if streams is not None:
            try:
                return await self._answer(streams, frame)
            except (OSError, EOFError):
                if changes:
                    raise BrokerAway(_UNCERTAIN) from None
        try:
            return await self._answer(await self._connect(), frame)
        except (OSError, EOFError):
            raise BrokerAway(_AWAY) from None

    def _take_idle(self) -> Streams | None:
        """An idle connection that the broker has not closed."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return None

    async def _connect(self) -> Streams:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=2**20)
        try:
            _check_user(writer.get_extra_info("socket"))
        except BaseException:
            writer.close()
            raise
        return reader, writer

    async def _answer(self, streams: Streams, frame: list[bytes]) -> bytes:
        reader, writer = streams
        try:
            async with asyncio.timeout(self._patience):
                writer.writelines(frame)
                await writer.drain()
                answer = await reader.readexactly(size_of_frame(await reader.readexactly(LENGTH.size)))
        except BaseException:
            writer.close()
            raise
        self._idle.append(streams)
        return answer


def _is_quiet(connection: socket.socket) -> bool:
    """Whether the other end has neither sent anything nor closed the connection."""
    poll = select.poll()  # select() takes no descriptors above 1023
    poll.register(connection, select.POLLIN)
    return not poll.poll(0)


def _check_user(connection: socket.socket) -> None:
    """Raises ConnectionError unless our own user listens there: any user can take an abstract socket name."""
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if user != os.getuid():
        raise ConnectionError("another user listens on the socket")


def _receive(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        got = connection.recv_into(view[at:])
        if not got:
            raise ConnectionError("the broker has hung up")
        at += got
    return data
