"""A heartbeat of the broker, and timeouts for requests while it is silent.

Twice a second the broker is asked for its figures, on a separate connection. Silence is measured in ticks of our own
loop, so that a busy machine that does not schedule this process does not make a healthy broker look hung.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from penstock.admin.admin_requests import BrokerFigures
from penstock.admin.problems import ApiProblem, problem

#: Seconds between two ticks. Every other tick asks.
TICK = 0.25
#: Seconds of silence after which overview, readiness, metrics and the stream report the broker as not responding.
SILENT_SECONDS = 2.0
#: Seconds of silence after which all other read-only requests fail.
GIVE_UP_SECONDS = 10.0


class Pulse:
    """``ask`` asks the broker for its figures, without a timeout."""

    def __init__(self, ask: Callable[[], Awaitable[BrokerFigures]], clock: Callable[[], float] = time.time) -> None:
        self._ask = ask
        self._clock = clock
        #: Seconds since the broker last responded, and when that was.
        self.silence = 0.0
        self.heard_at = clock()
        self._question: asyncio.Task[BrokerFigures] | None = None
        #: Timeouts of requests that wait for the broker, with the silence that they accept.
        self._waiting: dict[asyncio.Timeout, float] = {}

    async def run(self) -> None:
        """Ask until cancelled."""
        ticks = 0
        while True:
            if ticks % 2 == 0:
                self._ask_once()
            await asyncio.sleep(TICK)
            ticks += 1
            self.silence += TICK
            for limit in [limit for limit, seconds in self._waiting.items() if self.silence >= seconds]:
                del self._waiting[limit]
                limit.reschedule(asyncio.get_running_loop().time())

    def heard(self) -> None:
        """Note that the broker has responded."""
        self.silence, self.heard_at = 0.0, self._clock()

    def check(self, seconds: float = SILENT_SECONDS) -> None:
        """Raises ApiProblem if the broker has been silent for this long."""
        if self.silence >= seconds:
            raise self._problem()

    @asynccontextmanager
    async def patience(self, seconds: float = SILENT_SECONDS) -> AsyncIterator[None]:
        """A context for waiting: raises ApiProblem once the broker has been silent for this long."""
        self.check(seconds)
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._waiting[limit] = seconds
                try:
                    yield
                finally:
                    self._waiting.pop(limit, None)
        except TimeoutError:
            if limit.expired():
                raise self._problem() from None
            raise

    async def figures(self) -> BrokerFigures:
        """Current figures. Raises ApiProblem if the broker is silent, on standby, or away."""
        async with self.patience():
            return await asyncio.shield(self._ask_once())

    def _problem(self) -> ApiProblem:
        return problem("away", f"the broker has not answered for {self.silence:.0f} seconds")

    def _ask_once(self) -> asyncio.Task[BrokerFigures]:
        """The question in progress, or a new one. All callers share it."""
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._answer())
            self._question.add_done_callback(_consume_exception)
        return self._question

    async def _answer(self) -> BrokerFigures:
        try:
            figures = await self._ask()
        except ApiProblem as error:
            if error.problem.code != "away":  # a refusal is an answer
                self.heard()
            raise
        self.heard()
        return figures


def _consume_exception(task: asyncio.Task[BrokerFigures]) -> None:
    """Keep asyncio from logging a failure that no request waits for."""
    with suppress(asyncio.CancelledError):
        task.exception()
