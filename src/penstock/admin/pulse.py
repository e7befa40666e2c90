"""When the broker was last heard from, and giving up on it when it is silent.

Twice a second the broker is asked for its figures, on a connection of its own. Silence is counted in ticks of our own
loop: a machine that gives this process no turn for a while must not make a healthy broker look hung.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from penstock.admin.admin_requests import BrokerFigures
from penstock.admin.problems import ApiProblem, problem

#: Seconds between two ticks. Every other one asks.
TICK = 0.25
#: Seconds of silence after which overview, readiness, metrics and the stream say that the broker does not answer.
SILENT_SECONDS = 2.0
#: Seconds of silence after which every other request that only looks at things gives up.
GIVE_UP_SECONDS = 10.0


class Pulse:
    """``ask`` asks for the figures, however long that takes."""

    def __init__(self, ask: Callable[[], Awaitable[BrokerFigures]], clock: Callable[[], float] = time.time) -> None:
        self._ask = ask
        self._clock = clock
        #: Seconds since the broker was last heard from, and when that was.
        self.silence = 0.0
        self.heard_at = clock()
        self._asked: asyncio.Task[BrokerFigures] | None = None
        #: What waits for the broker, with the silence after which it gives up.
        self._waiting: dict[asyncio.Timeout, float] = {}

    async def run(self) -> None:
        """Listen, for ever."""
        ticks = 0
        while True:
            if ticks % 2 == 0:
                self._question()
            await asyncio.sleep(TICK)
            ticks += 1
            self.silence += TICK
            for limit in [limit for limit, seconds in self._waiting.items() if self.silence >= seconds]:
                del self._waiting[limit]
                limit.reschedule(asyncio.get_running_loop().time())

    def heard(self) -> None:
        """The broker has answered something."""
        self.silence, self.heard_at = 0.0, self._clock()

    def check(self, seconds: float = SILENT_SECONDS) -> None:
        """Raises ApiProblem if the broker is silent for so long."""
        if self.silence >= seconds:
            raise self._problem()

    @asynccontextmanager
    async def patience(self, seconds: float = SILENT_SECONDS) -> AsyncIterator[None]:
        """What waits for the broker. Raises ApiProblem once that is silent for so long, and at once if it is."""
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
        """Of this moment. Raises ApiProblem if the broker is silent, stands by, or is away."""
        async with self.patience():
            return await asyncio.shield(self._question())

    def _problem(self) -> ApiProblem:
        return problem("away", f"the broker has not answered for {self.silence:.0f} seconds")

    def _question(self) -> asyncio.Task[BrokerFigures]:
        """The one that is asked. There is one at a time, however many want to know."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._answered())
            self._asked.add_done_callback(_seen)
        return self._asked

    async def _answered(self) -> BrokerFigures:
        try:
            figures = await self._ask()
        except ApiProblem as error:
            if error.problem.code != "away":  # a refusal is an answer
                self.heard()
            raise
        self.heard()
        return figures


def _seen(task: asyncio.Task[BrokerFigures]) -> None:
    """A question that nobody waits for may fail without a word."""
    with suppress(asyncio.CancelledError):
        task.exception()
