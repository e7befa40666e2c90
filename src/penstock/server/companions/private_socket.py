"""The private Unix socket on which companion processes ask the broker: see ``companions.framing``.

The socket is in a temporary folder that only the broker's user can enter. A note in the data folder names it, so that
the next start can remove what a killed broker left. Without a data folder for the note, or a temporary folder for the
socket, the socket has an abstract name, which vanishes with it. Either way the user of each peer is checked.

Each connection has one request at a time; clients open several. A frame that is no request ends its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.companions.framing import LENGTH, Refusal, framed, size_of_frame
from penstock.server.companions.request_table import Answers
from penstock.server.logs import Logger
from penstock.server.network.acceptor import peer_of

#: Connections at a time: a companion process has a few.
MOST_CONNECTIONS = 64
#: Bytes to read ahead: large requests come in large pieces.
READ_AHEAD = 2**20
#: The longest path that the system accepts for a socket.
MOST_PATH = 100
PREFIX = "penstock-"
SOCKET = "socket"
#: The value in the data folder that names the socket's folder.
NOTE = "broker-socket"


class NoteStore(Protocol):
    """The part of a ``ValueStore`` that keeps the note."""

    def get(self, name: str) -> bytes | None:
        """The value, or None."""

    def put(self, name: str, value: bytes) -> None:
        """Keep a value, durably on return."""

    def delete(self, name: str) -> None:
        """Remove a value, if there is one."""


class PrivateSocket:
    """The socket and its connections."""

    def __init__(self, log: Logger, answers: Answers, notes: NoteStore | None = None) -> None:
        """``notes`` keeps the note; None for a broker that keeps nothing."""
        self._log = log
        self._answers = answers
        self._notes = notes
        self._folder = ""
        self._name = f"\0{PREFIX}{secrets.token_hex(16)}"
        self._server: asyncio.Server | None = None
        #: The task of each connection, and whether it works on a request.
        self._busy: dict[asyncio.Task[None], bool] = {}
        self._stopping = False

    @property
    def path(self) -> str:
        """The name to connect to."""
        return os.path.join(self._folder, SOCKET) if self._folder else self._name

    def answer_with(self, answers: Answers) -> None:
        """Answer later requests with these."""
        self._answers = answers

    async def open(self) -> None:
        """Listen. Raises OSError."""
        if self._notes is not None:
            self._clear_note(self._notes)
            self._folder = _make_folder()
            if self._folder:
                self._leave_note(self._notes)
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=READ_AHEAD)

    async def close(self, seconds: float) -> None:
        """Take no more requests, wait up to ``seconds`` for answers in progress, and remove the socket."""
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
        if self._notes is not None:
            with contextlib.suppress(OSError):
                self._notes.delete(NOTE)

    def _leave_note(self, notes: NoteStore) -> None:
        try:
            notes.put(NOTE, self._folder.encode())
        except OSError:
            os.rmdir(self._folder)
            raise

    def _clear_note(self, notes: NoteStore) -> None:
        """Remove what a broker on this journal left behind when it was killed."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            old = Path((notes.get(NOTE) or b"").decode())
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
        """Answer one request. False: the connection must end."""
        head = await reader.readexactly(LENGTH.size)
        try:
            size = size_of_frame(head)
        except ConnectionError as error:
            return await self._reject(writer, str(error))
        frame = await reader.readexactly(size)
        self._busy[task] = True
        answers = self._answers
        try:
            request = answers.decode(frame)
        except msgspec.MsgspecError as error:
            return await self._reject(writer, f"this is not a request: {error}")
        del frame
        await _send(writer, await answers.answer(request))
        self._busy[task] = False
        return True

    async def _reject(self, writer: asyncio.StreamWriter, text: str) -> bool:
        self._log.warning("private socket: bad request", reason=text)
        await _send(writer, Refusal(code="bad-request", text=text))
        return False


async def _send(writer: asyncio.StreamWriter, answer: object) -> None:
    writer.writelines(framed(answer))
    await writer.drain()


def _make_folder() -> str:
    """A temporary folder for the socket; empty if none can be made, or only with too long a path."""
    for place in (None, "/tmp"):
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
            if len(os.path.join(folder, SOCKET)) <= MOST_PATH:
                return folder
            os.rmdir(folder)
    return ""
