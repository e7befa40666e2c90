"""Metrics, and the stream of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.admin.exposition import OPEN_METRICS, PLAIN, MetricsText, wants_open_metrics
from penstock.admin.gatekeeper import Caller
from penstock.admin.handlers.broker import BrokerHandlers, disk_of, reasons_of
from penstock.admin.handlers.jobs import may
from penstock.admin.handlers.pipelines import PipelineHandlers
from penstock.admin.handlers.queues import QueueHandlers
from penstock.admin.http import Request, Response
from penstock.admin.jobs import Jobs
from penstock.admin.journal_view import JournalView
from penstock.admin.metrics import (
    MOST_SERIES,
    add_processes,
    broker_metrics,
    queue_metrics,
    silent_metrics,
    standby_metrics,
)
from penstock.admin.mirror import Mirror, dead_by_reason
from penstock.admin.problems import ApiProblem, fail
from penstock.admin.processes import own_processes
from penstock.admin.pulse import Pulse
from penstock.admin.resources.operations import StreamQuery
from penstock.admin.settings import AdminSettings
from penstock.admin.watched_broker import WatchedBroker
from penstock.companions.readers_and_writers import ReaderRow, Readers
from penstock.patterns import fits_queue

if TYPE_CHECKING:
    from penstock.admin.traces import Tracer

#: Concurrent streams. They cost the broker nothing, but this process some CPU.
MOST_STREAMS = 100
#: Samples between two overviews.
OVERVIEW_EVERY = 5


class LiveHandlers:
    """Handles requests for metrics and the stream."""

    def __init__(
        self,
        broker: WatchedBroker,
        pulse: Pulse,
        mirror: Mirror,
        journal: JournalView,
        settings: AdminSettings,
        broker_handlers: BrokerHandlers,
        queue_handlers: QueueHandlers,
        jobs: Jobs,
        pipelines: PipelineHandlers,
        tracer: Tracer | None,
    ) -> None:
        self._broker = broker
        self._pulse = pulse
        self._mirror = mirror
        self._journal = journal
        self._settings = settings
        self._broker_handlers = broker_handlers
        self._queue_handlers = queue_handlers
        self._jobs = jobs
        self._pipelines = pipelines
        self._tracer = tracer
        self._streams = 0
        self._ended = asyncio.Event()

    async def metrics(self, request: Request) -> Response:
        """Metrics of the broker and of all queues together; on standby only its state."""
        write = await self._collect(self._metrics)
        processes = await asyncio.to_thread(own_processes)
        add_processes(write, self._settings.version, self._settings.code, processes)
        return _render(request, write)

    async def _collect(self, collect: Callable[[], Awaitable[MetricsText]]) -> MetricsText:
        """Collect metrics. A broker that is silent or on standby must not fail the scrape: its state is reported."""
        try:
            async with self._pulse.patience():
                return await collect()
        except ApiProblem as error:
            if error.problem.code == "standby":
                return standby_metrics()
            if error.problem.code == "away":
                return silent_metrics(self._pulse.silence)
            raise

    async def _metrics(self) -> MetricsText:
        await self._mirror.ensure_fresh()
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
            self._tracer,
        )

    async def metrics_per_queue(self, request: Request) -> Response:
        """Series of each queue that matches a pattern and that the caller may see."""
        return _render(request, await self._collect(lambda: self._queue_metrics(request)))

    async def _queue_metrics(self, request: Request) -> MetricsText:
        await self._mirror.ensure_fresh()
        figures = self._mirror.figures
        assert figures is not None
        public = self._settings.public_metrics
        found = await self._mirror.select(
            lambda row: (
                fits_queue(request.query.queue, row.namespace, row.name) and (public or request.caller.may_view(row))
            )
        )
        rows = sorted(found, key=lambda row: (row.namespace, row.name))[:MOST_SERIES]
        times = await self._journal.times([row.oldest for row in rows])
        return queue_metrics(rows, times, figures.now, omitted=len(found) - len(rows))

    # The stream

    async def stream(self, request: Request) -> Response:
        """Send events until the client disconnects."""
        query: StreamQuery = request.query
        if query.queue and not _may_see(request.caller, query.queue):
            fail("bad-request", f"there is no queue {query.queue!r} that you may view", field="query.queue")
        if self._streams >= MOST_STREAMS:
            fail("too-many", f"{MOST_STREAMS} streams are open already")
        headers = (("x-accel-buffering", "no"),)
        return Response(stream=self._events(request, query), media="text/event-stream", headers=headers)

    def end(self) -> None:
        """End all streams."""
        self._ended.set()

    async def _caller(self, request: Request, query: StreamQuery) -> Caller | None:
        """The caller with its current rights; None if it lost them. Raises ApiProblem if the broker is away."""
        try:
            caller = await request.current_caller()
        except ApiProblem as error:
            if error.problem.code == "away":
                raise
            return None
        allowed = _may_see(caller, query.queue) if query.queue else caller.may_somewhere("view")
        return caller if allowed else None

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
                        events = await self._collect_events(caller, query, number, seen)
                except ApiProblem as error:
                    yield _event("away", error.problem)
                    number = 0  # begin with an overview when the broker answers again
                else:
                    for event, value in events:
                        yield _event(event, value)
                    number += 1
                await _wait(self._ended, query.every)
        finally:
            self._streams -= 1

    async def _collect_events(
        self, caller: Caller, query: StreamQuery, number: int, seen: dict[str, Any]
    ) -> list[tuple[str, Any]]:
        """Events to send now. ``seen`` is the progress of jobs that the client knows."""
        await self._mirror.ensure_fresh()
        events: list[tuple[str, Any]] = []
        if number % OVERVIEW_EVERY == 0:
            events.append(("overview", await self._broker_handlers.build_overview(caller)))
        if self._mirror.samples and caller.may_everywhere("view"):
            events.append(("sample", self._mirror.samples[-1]))
        if query.queue:
            namespace, _, name = query.queue.partition("/")
            try:
                events.append(("queue", await self._queue_handlers.detail(namespace, name)))
            except ApiProblem as error:
                if error.problem.code != "not-found":
                    raise
        for record in self._jobs.records.values():
            progress = (record.status, record.done)
            if seen.get(record.id) != progress and may(caller, "view", record):
                if number or record.status in ("waiting", "running"):
                    events.append(("job", record.to_resource()))
                seen[record.id] = progress
        return events


def _render(request: Request, write: MetricsText) -> Response:
    """Metrics in the format that the client prefers."""
    vary = (("vary", "accept"),)
    if wants_open_metrics(request.headers.get("accept", "")):
        return Response(body=write.open_metrics(), media=OPEN_METRICS, headers=vary)
    return Response(body=write.plain(), media=PLAIN, headers=vary)


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
