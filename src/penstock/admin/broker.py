"""The HTTP process's end of the private socket to the broker: one question, one answer. See ``requests``.

A question that a broken connection has swallowed is asked again, once, on a new one, if it only looks at things. One
that changes something is not: whoever wanted it is told that the broker is away, and looks.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from struct import Struct
from typing import Any, TypeVar

import msgspec

from penstock.admin import admin_requests as requests
from penstock.admin.problems import problem
from penstock.admin.pulse import GIVE_UP_SECONDS, Pulse

#: Seconds that an answer may take: a commit, on a disk that is very slow.
PATIENCE = 60.0
#: Questions at a time, well below what the broker lets in: more wait for their turn.
AT_A_TIME = 24
#: The longest answer.
FRAME_BYTES = 80 * 2**20

_LENGTH = Struct("<I")
T = TypeVar("T")
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BrokerClient:
    """Asks the broker."""

    def __init__(self, path: str, patience: float = PATIENCE) -> None:
        self._path = path
        self._patience = patience
        #: Gives up on a broker that is silent. Not for the questions that find out whether it is.
        self.pulse: Pulse | None = None
        self._turn = asyncio.Semaphore(AT_A_TIME)
        self._idle: list[Connection] = []

    async def ask(self, request: requests.Asked, kind: type[T]) -> T:
        """The answer, which is of this kind. Raises ApiProblem: the broker's refusal, or that it is away."""
        data = msgspec.msgpack.encode(request)
        changes = hasattr(request, "by")
        patience = self.pulse.patience(GIVE_UP_SECONDS) if self.pulse is not None and not changes else nullcontext()
        async with patience, self._turn:
            answer = await self._ask(data, changes=changes)
        if self.pulse is not None:
            self.pulse.heard()
        return _decoded(answer, kind)

    async def _ask(self, data: bytes, *, changes: bool) -> bytes:
        if self._idle:
            try:
                return await self._answer(self._idle.pop(), data)
            except _NotSent:
                pass  # it was closed while it lay idle
            except (OSError, EOFError):
                if changes:
                    raise problem("away", "the broker went away before it answered: look whether it was done") from None
        try:
            return await self._answer(await asyncio.open_unix_connection(self._path, limit=2**20), data)
        except (OSError, EOFError, TimeoutError):
            raise problem("away", "the broker does not answer; try again") from None

    async def _answer(self, connection: Connection, data: bytes) -> bytes:
        reader, writer = connection
        try:
            async with asyncio.timeout(self._patience):
                if reader.at_eof():
                    raise _NotSent
                writer.writelines([_LENGTH.pack(len(data)), data])
                await writer.drain()
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if size > FRAME_BYTES:
                    raise ConnectionError("a frame is longer than it can be")
                answer = await reader.readexactly(size)
        except BaseException:
            writer.close()
            raise
        self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Let go of the connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


class _NotSent(Exception):
    """The connection had ended before anything was asked on it."""


def _decoded(answer: bytes, kind: type[T]) -> T:
    values: Any = msgspec.msgpack.decode(answer)
    if isinstance(values, dict) and values.get("type") == "refusal":
        refusal = msgspec.convert(values, requests.Refusal)
        raise problem(refusal.code, refusal.text, field=refusal.field)
    if isinstance(values, dict) and "code" in values and "text" in values:
        raise problem("internal", "a fault of the broker, which its log describes")
    return msgspec.msgpack.decode(answer, type=kind)
