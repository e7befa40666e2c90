"""Metrics, and the stream of live figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.admin.access import Caller
from penstock.admin.handlers.broker import BrokerHandlers, disk_of, reasons_of
from penstock.admin.handlers.jobs import may
from penstock.admin.handlers.pipelines import PipelineHandlers
from penstock.admin.handlers.queues import QueueHandlers
from penstock.admin.http import Answer, Request
from penstock.admin.jobs import Jobs
from penstock.admin.journal import JournalView
from penstock.admin.metrics import (
    MOST_SERIES,
    OPEN_METRICS,
    PLAIN,
    MetricsText,
    Traced,
    add_processes,
    broker_metrics,
    queue_metrics,
    silent_metrics,
    standby_metrics,
    wants_open_metrics,
)
from penstock.admin.mirror import Mirror, dead_by_reason
from penstock.admin.problems import ApiProblem, fail
from penstock.admin.processes import own_processes
from penstock.admin.pulse import Pulse
from penstock.admin.resources.operations import StreamQuery
from penstock.admin.settings import AdminSettings
from penstock.admin.watched_broker import WatchedBroker
from penstock.endpoint.readers_and_writers import ReaderRow, Readers
from penstock.patterns import fits_queue

if TYPE_CHECKING:
    from penstock.admin.traces import Tracer

#: Streams at a time: each costs the broker nothing, but this process some work.
MOST_STREAMS = 100
#: Samples between two overviews.
OVERVIEW_EVERY = 5


class LiveHandlers:
    """Handles what is asked for again and again."""

    def __init__(
        self,
        broker: WatchedBroker,
        pulse: Pulse,
        mirror: Mirror,
        journal: JournalView,
        settings: AdminSettings,
        whole: BrokerHandlers,
        queues: QueueHandlers,
        jobs: Jobs,
        pipelines: PipelineHandlers,
        tracer: Tracer | None,
    ) -> None:
        self._broker = broker
        self._pulse = pulse
        self._mirror = mirror
        self._journal = journal
        self._settings = settings
        self._whole = whole
        self._queues = queues
        self._jobs = jobs
        self._pipelines = pipelines
        self._tracer = tracer
        self._streams = 0
        self._ended = asyncio.Event()
        self.handlers: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "metrics": self.metrics,
            "metrics-per-queue": self.metrics_per_queue,
            "stream": self.stream,
        }

    async def metrics(self, request: Request) -> Answer:
        """The broker and all queues together; of one that stands by, no more than that."""
        write = await self._or_why_not(self._metrics)
        processes = await asyncio.to_thread(own_processes)
        add_processes(write, self._settings.version, self._settings.code, processes)
        return _written(request, write)

    async def _or_why_not(self, wanted: Callable[[], Awaitable[MetricsText]]) -> MetricsText:
        """What is wanted; of a broker that stands by or does not answer, that it does: a scrape must not fail then."""
        try:
            async with self._pulse.patience():
                return await wanted()
        except ApiProblem as error:
            if error.problem.code == "standby":
                return standby_metrics()
            if error.problem.code == "away":
                return silent_metrics(self._pulse.silence)
            raise

    async def _metrics(self) -> MetricsText:
        await self._mirror.fresh()
        figures, totals = self._mirror.figures, self._mirror.totals()
        assert figures is not None
        times = await self._journal.times([totals.oldest])
        readers = await self._broker.ask(Readers(), list[ReaderRow])
        journal = await self._journal.facts()
        return broker_metrics(
            figures,
            totals,
            self._mirror.counted,
            dead_by_reason(self._mirror.rows.values()),
            times.get(totals.oldest, 0),
            readers,
            disk_of(self._settings),
            journal,
            reasons_of(figures),
            await asyncio.to_thread(self._pipelines.found),
            self._traced(),
        )

    def _traced(self) -> Traced | None:
        tracer = self._tracer
        return Traced(tracer.sent, tracer.refused, tracer.skipped) if tracer is not None else None

    async def metrics_per_queue(self, request: Request) -> Answer:
        """Series for each queue of a pattern, as far as the caller may see them."""
        return _written(request, await self._or_why_not(lambda: self._queue_metrics(request)))

    async def _queue_metrics(self, request: Request) -> MetricsText:
        await self._mirror.fresh()
        figures = self._mirror.figures
        assert figures is not None
        everybody = self._settings.public_metrics
        found = await self._mirror.chosen(
            lambda row: (
                fits_queue(request.query.queue, row.namespace, row.name)
                and (everybody or request.caller.may("view", row.namespace, row.name))
            )
        )
        rows = sorted(found, key=lambda row: (row.namespace, row.name))[:MOST_SERIES]
        times = await self._journal.times([row.oldest for row in rows])
        return queue_metrics(rows, times, figures.now, omitted=len(found) - len(rows))

    # The stream

    async def stream(self, request: Request) -> Answer:
        """Events until the client goes."""
        query: StreamQuery = request.query
        if query.queue and not _may_see(request.caller, query.queue):
            fail("bad-request", f"{query.queue!r} is no queue that you may see", field="query.queue")
        if self._streams >= MOST_STREAMS:
            fail("too-many", f"there are {MOST_STREAMS} streams already")
        headers = (("x-accel-buffering", "no"),)
        return Answer(stream=self._events(request, query), media="text/event-stream", headers=headers)

    def end(self) -> None:
        """All streams end."""
        self._ended.set()

    async def _caller(self, request: Request, query: StreamQuery) -> Caller | None:
        """Who looks, with the rights of this moment; None: nobody who may. Raises ApiProblem if the broker is away."""
        try:
            caller = await request.caller_now()
        except ApiProblem as error:
            if error.problem.code == "away":
                raise
            return None
        may_look = _may_see(caller, query.queue) if query.queue else caller.may_somewhere("view")
        return caller if may_look else None

    async def _events(self, request: Request, query: StreamQuery) -> AsyncGenerator[bytes, None]:
        self._streams += 1
        seen: dict[str, Any] = {}
        number = 0
        try:
            yield b"retry: 2000\n\n"
            while not self._ended.is_set():
                try:
                    async with self._pulse.patience():
                        caller = await self._caller(request, query)
                        if caller is None:
                            break
                        news = await self._news(caller, query, number, seen)
                except ApiProblem as error:
                    yield _event("away", error.problem)
                    number = 0  # how it is comes first when the broker is heard again
                else:
                    for event, value in news:
                        yield _event(event, value)
                    number += 1
                await _wait(self._ended, query.every)
        finally:
            self._streams -= 1

    async def _news(
        self, caller: Caller, query: StreamQuery, number: int, seen: dict[str, Any]
    ) -> list[tuple[str, Any]]:
        await self._mirror.fresh()
        news: list[tuple[str, Any]] = []
        if number % OVERVIEW_EVERY == 0:
            news.append(("overview", await self._whole.overview(caller)))
        if self._mirror.samples and caller.may_everywhere("view"):
            news.append(("sample", self._mirror.samples[-1]))
        if query.queue:
            namespace, _, name = query.queue.partition("/")
            try:
                news.append(("queue", await self._queues.detail(namespace, name)))
            except ApiProblem as error:
                if error.problem.code != "not-found":
                    raise
        for record in self._jobs.records.values():
            told = (record.status, record.done)
            if seen.get(record.id) != told and may(caller, "view", record):
                if number or record.status in ("waiting", "running"):
                    news.append(("job", record.told()))
                seen[record.id] = told
        return news


def _written(request: Request, write: MetricsText) -> Answer:
    """In the format that the client prefers."""
    vary = (("vary", "accept"),)
    if wants_open_metrics(request.headers.get("accept", "")):
        return Answer(body=write.open_metrics(), media=OPEN_METRICS, headers=vary)
    return Answer(body=write.plain(), media=PLAIN, headers=vary)


def _may_see(caller: Caller, full_name: str) -> bool:
    namespace, slash, name = full_name.partition("/")
    return bool(namespace and slash and name) and caller.may("view", namespace, name)


async def _wait(ended: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        pass


def _event(name: str, value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))
