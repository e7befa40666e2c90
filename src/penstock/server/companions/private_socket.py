"""The private socket for our own helpers, such as the Flight endpoint: ``flight/flight_requests.py`` has its language.

It lies in a folder of its own that only the broker's user can enter; a note in the data folder says where, so that the
next start removes what a killed broker has left. A broker that keeps nothing can't leave a note, and one that may write
to no temporary folder has no place: their sockets have a name in no file system (an abstract one), which goes with
them. In either case who connects is asked for its user. One
request at a time is answered on each connection; whoever wants more opens more. What can't be understood ends its own
connection, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any, Protocol

import msgspec

from penstock.admin import admin_requests
from penstock.flight import flight_requests as requests
from penstock.flight.calls import Problem
from penstock.server.logs import Logger
from penstock.server.network.acceptor import peer_of

#: Connections at a time: a helper of ours has a few.
MOST_CONNECTIONS = 64
#: Bytes that are read ahead: large requests come in large pieces.
READ_AHEAD = 2**20
#: The system takes no longer paths for sockets.
MOST_PATH = 100
PREFIX = "penstock-"
SOCKET = "socket"
#: The value in the data folder that tells where the socket is. Who starts after a crash removes what was left there.
NOTE = "broker-socket"

_LENGTH = struct.Struct("<I")
_DECODER: msgspec.msgpack.Decoder[requests.Request | admin_requests.Request] = msgspec.msgpack.Decoder(
    requests.Request | admin_requests.Request
)


class Answers(Protocol):
    """Answers requests of companion processes."""

    async def answer(self, request: Any) -> object:
        """The answer, which may be a problem."""

    def failed(self, error: Exception) -> None:
        """An answer has failed, and must not have."""


class Notes(Protocol):
    """What outlives the process: the journal's values can."""

    def get(self, name: str) -> bytes | None:
        """See ValueStore."""

    def put(self, name: str, value: bytes) -> None:
        """See ValueStore."""

    def delete(self, name: str) -> None:
        """See ValueStore."""


class PrivateSocket:
    """The socket and those who are connected to it."""

    def __init__(self, log: Logger, answers: Answers, values: Notes | None = None) -> None:
        """``values`` are where the note is kept; None for a broker that keeps nothing."""
        self._log = log
        #: Who answers from now on.
        self.answers = answers
        self._values = values
        self._folder = ""
        self._name = f"\0{PREFIX}{secrets.token_hex(16)}"
        self._server: asyncio.Server | None = None
        #: The task of each connection, and whether it works on a request.
        self._busy: dict[asyncio.Task[None], bool] = {}
        self._stopping = False

    @property
    def path(self) -> str:
        """Where to connect to."""
        return os.path.join(self._folder, SOCKET) if self._folder else self._name

    async def open(self) -> None:
        """Listen. Raises OSError."""
        if self._values is not None:
            self._clear_note(self._values)
            self._folder = _make_folder()
            if self._folder:
                self._leave_note(self._values)
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=READ_AHEAD)

    async def close(self, seconds: float) -> None:
        """Take no more requests, give the answers that are due, for so long at most, and remove the socket."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for task, busy in self._busy.items():
            if not busy:
                task.cancel()
        if self._busy:
            _, late = await asyncio.wait(self._busy, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._values is not None:
            with contextlib.suppress(OSError):
                self._values.delete(NOTE)

    def _leave_note(self, values: Notes) -> None:
        try:
            values.put(NOTE, self._folder.encode())
        except OSError:
            os.rmdir(self._folder)
            raise

    def _clear_note(self, values: Notes) -> None:
        """Remove what a broker on this journal has left behind when it was killed."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            old = Path((values.get(NOTE) or b"").decode())
            if old.name.startswith(PREFIX) and old.stat().st_uid == os.getuid():
                (old / SOCKET).unlink(missing_ok=True)
                old.rmdir()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy[task] = False
        try:
            if self._may_enter(writer):
                while not self._stopping and await self._one(task, reader, writer):
                    pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            del self._busy[task]
            writer.close()

    def _may_enter(self, writer: asyncio.StreamWriter) -> bool:
        user = peer_of(writer.get_extra_info("socket"), None).user
        if user is not None and user != os.getuid():
            self._log.warning("private socket: not ours", user=user)
        elif len(self._busy) > MOST_CONNECTIONS:
            self._log.warning("private socket: too many connections", limit=MOST_CONNECTIONS)
        else:
            return True
        return False

    async def _one(self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. False: the connection is of no use any more."""
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > requests.FRAME_BYTES:
            return await self._complain(writer, f"a frame has {requests.FRAME_BYTES} bytes at most, not {length}")
        frame = await reader.readexactly(length)
        self._busy[task] = True
        try:
            request = _DECODER.decode(frame)
        except msgspec.MsgspecError as error:
            return await self._complain(writer, f"this is not a request: {error}")
        del frame
        answer: object
        answers = self.answers
        try:
            answer = await answers.answer(request)
        except Exception as error:
            facts = {"request": type(request).__name__, "error": repr(error)}
            self._log.error("private socket: a request failed", **facts)
            answers.failed(error)
            answer = Problem(code="internal", text="the broker could not do this; its log has more")
        await self._send(writer, answer)
        self._busy[task] = False
        return True

    async def _complain(self, writer: asyncio.StreamWriter, text: str) -> bool:
        self._log.warning("private socket: bad request", reason=text)
        await self._send(writer, Problem(code="bad-request", text=text))
        return False

    async def _send(self, writer: asyncio.StreamWriter, answer: object) -> None:
        data = msgspec.msgpack.encode(answer)
        writer.writelines([_LENGTH.pack(len(data)), data])
        await writer.drain()


def _make_folder() -> str:
    """A temporary folder for the socket; empty where none can be made, or only with paths too long for a socket."""
    for place in (None, "/tmp"):
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
            if len(os.path.join(folder, SOCKET)) <= MOST_PATH:
                return folder
            os.rmdir(folder)
    return ""
