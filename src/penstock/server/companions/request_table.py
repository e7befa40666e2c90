"""Requests of companion processes, from the frame to the answer.

A table maps each type of request to its handler. An answer that promises something waits until that is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any, Protocol, Union

import msgspec
from typing_extensions import override

from penstock.companions.framing import Refusal, RefusalCode, Request
from penstock.core.commands.write import ChunkDiffers, TooManyWriters, WriterError
from penstock.core.queue import Miscounted
from penstock.journal.errors import Fenced, LogFailed
from penstock.server.network.runtime import Runtime
from penstock.server.registry.names import BadName, NotYours
from penstock.server.registry.readers import TooManyReaders

#: Handlers by type of request; each returns the answer, or an awaitable of it.
Handlers = Mapping[type[Request], Callable[[Any], Any]]

#: Codes of exceptions that refuse a request; the first that fits counts.
_CODES: dict[type[Exception], RefusalCode] = {
    TooManyReaders: "refused",
    TooManyWriters: "refused",
    ChunkDiffers: "differs",
    WriterError: "bad-request",
    BadName: "bad-request",
    NotYours: "denied",
}


class RequestRefused(Exception):
    """The answer is a refusal."""

    def __init__(self, code: RefusalCode, text: str, field: str = "") -> None:
        super().__init__(text)
        self.refusal = Refusal(code=code, text=text, field=field)


async def yield_to_peers(runtime: Runtime) -> None:
    """End a turn in the middle of long work: events so far are committed, and peers are served."""
    runtime.touched()
    await asyncio.sleep(0)


class Answers(Protocol):
    """Answers requests on the private socket."""

    def decode(self, frame: bytes) -> Any:
        """The request in a frame. Raises MsgspecError."""

    async def answer(self, request: Any) -> object:
        """The answer to a request, which may be a refusal."""


class RequestTable(Answers):
    """The requests that a serving broker answers."""

    def __init__(self, runtime: Runtime, handlers: Handlers) -> None:
        self._runtime = runtime
        self._handlers = handlers
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Union[tuple(handlers)])  # noqa: UP007

    @override
    def decode(self, frame: bytes) -> Any:
        return self._decoder.decode(frame)

    @override
    async def answer(self, request: Any) -> object:
        try:
            return await self._answer(request)
        except RequestRefused as error:
            return error.refusal
        except (Fenced, LogFailed):
            text = "another broker has taken over before this was done: ask that one whether it was"
            return Refusal(code="standby", text=text)
        except Exception as error:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
            return Refusal(code=code, text=str(error)) if code is not None else self._fault(request, error)

    async def _answer(self, request: Request) -> object:
        log = self._runtime.broker.log
        before = log.next_position
        answer = self._handlers[type(request)](request)
        if isawaitable(answer):
            answer = await answer
        if log.next_position > before:
            await self._runtime.durable()
        return answer

    def _fault(self, request: Request, error: Exception) -> Refusal:
        facts = {"request": type(request).__name__, "error": repr(error)}
        self._runtime.log.error("private socket: a request failed", **facts)
        if isinstance(error, Miscounted):  # the state is wrong: the broker must not go on
            self._runtime.fail(error)
        return Refusal(code="internal", text="a fault of the broker, which its log describes")


class StandbyAnswers(Answers):
    """Refuses every request with the reason why this broker does not serve."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why

    @override
    def decode(self, frame: bytes) -> None:
        pass

    @override
    async def answer(self, request: Any) -> Refusal:
        return Refusal(code="standby", text=self._why())
