"""One run of the load generator: start the processes, watch the board, collect their results."""

from __future__ import annotations

import time
from contextlib import suppress
from multiprocessing import get_context
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from penstock.bench.worker import (
    CONSUME,
    FIRST_WORKER,
    GO,
    NOT_READY,
    PRODUCE,
    WorkerJob,
    WorkerOutcome,
    consume,
    produce,
)
from penstock.client import aio
from penstock.client.options import TLS, ClientOptions
from penstock.client.protocol import client_protocol
from penstock.client.urls import Address

#: Seconds between two readings of the board, each of which is a point of the plot.
READ_EVERY = 0.05
#: The share of a run that does not count, as connections, caches and windows fill up.
WARM_UP = 0.2
#: Seconds that messages may take to arrive after the last one was sent.
PATIENCE = 30.0
DEFAULT_QUEUE = "penstock-bench"


class BenchPlan(Struct, frozen=True, kw_only=True):
    """The parameters of a run."""

    url: str
    size: int
    producers: int
    consumers: int
    window: int
    in_flight: int
    processes: int
    seconds: float
    count: int | None
    rate: float | None
    one_at_a_time: bool


class Result(Struct, kw_only=True):
    """The result of a run. Latencies are in nanoseconds; ``series`` are seconds and messages so far."""

    plan: BenchPlan
    protocol: str
    sent: int
    received: int
    seconds: float
    rate: float
    latencies: Any
    confirms: Any
    series: list[tuple[float, int]]


class BenchError(Exception):
    """The run failed."""


async def prepare(plan: BenchPlan) -> tuple[Address, ClientOptions]:
    """The address that serves, with a queue, which is created if the protocol needs that; and the URL's options."""
    async with aio.connect(plan.url) as client:
        address = client.address
        if address.queue is None and client_protocol(address.scheme).queue != "none":
            address = replace(address, queue=DEFAULT_QUEUE)
        if client.can("create_queue"):
            await client.create_queue(address.queue, exist_ok=True)
    return address, client.options


def measure(plan: BenchPlan, address: Address, options: ClientOptions) -> Result:
    """Run the plan. Raises BenchError."""
    run = _BenchRun(plan, address, options.tls)
    try:
        return run.run()
    finally:
        run.end()


class _BenchRun:
    """The processes of a run, and the board they share. In ``workers`` consumers precede producers."""

    def __init__(self, plan: BenchPlan, address: Address, tls: TLS) -> None:
        self.plan = plan
        self.context = get_context("spawn")
        self.senders, self.receivers = self._places()
        self.board: Any = self.context.RawArray("q", FIRST_WORKER + len(self.senders) + len(self.receivers) + 1)
        self.board[PRODUCE] = self.board[CONSUME] = 1
        for place in (*self.senders, *self.receivers):
            self.board[place] = NOT_READY
        self.job = WorkerJob(
            address=address, tls=tls, place=0, connections=1, window=plan.window, size=plan.size, senders=self.senders
        )
        self.workers: list[tuple[Any, Any]] = []

    def _places(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        senders = min(self.plan.processes, self.plan.producers)
        receivers = min(self.plan.processes, self.plan.consumers)
        first = FIRST_WORKER + senders
        return tuple(range(FIRST_WORKER, first)), tuple(range(first, first + receivers))

    def run(self) -> Result:
        """Start the processes, and wait for the last one."""
        plan = self.plan
        for place, connections in _shares(self.receivers, plan.consumers):
            self._start(consume, replace(self.job, place=place, connections=connections))
        for at, (place, connections) in enumerate(_shares(self.senders, plan.producers)):
            self._start(produce, self._producing(place, connections, at))
        self._get_ready()
        began = time.monotonic()
        self.board[GO] = 1
        series = self._watch(began)
        sent = self._collect(len(self.receivers), len(self.workers))
        if not self.receivers:
            self._drain(sum(each.done for each in sent))
        self._arrive(sum(each.done for each in sent))
        series.append((time.monotonic() - began, self._received()))
        self.board[CONSUME] = 0
        taken = self._collect(0, len(self.receivers))
        return self._result(series, sent, taken)

    def _producing(self, place: int, connections: int, at: int) -> WorkerJob:
        plan, workers = self.plan, len(self.senders)
        count = None if plan.count is None else plan.count // workers + (at < plan.count % workers)
        return replace(
            self.job,
            place=place,
            connections=connections,
            window=1 if plan.one_at_a_time else plan.in_flight,
            count=count,
            rate=None if plan.rate is None else plan.rate / workers,
            in_flight=plan.in_flight if self.receivers else 0,
            receivers=self.receivers,
        )

    def _start(self, target: Any, job: WorkerJob) -> None:
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=target, args=(job, self.board, theirs), daemon=True)
        process.start()
        theirs.close()
        self.workers.append((process, ours))

    def _get_ready(self) -> None:
        """Wait until all processes are connected. Raises BenchError if one fails."""
        while any(self.board[place] == NOT_READY for place in (*self.senders, *self.receivers)):
            for process, pipe in self.workers:
                if pipe.poll() or not process.is_alive():
                    raise BenchError(self._outcome(pipe).error)
            time.sleep(0.01)

    def _watch(self, began: float) -> list[tuple[float, int]]:
        """Read the board until the producers are done, by time or by count."""
        places = self.receivers or self.senders
        series = []
        while True:
            elapsed = time.monotonic() - began
            series.append((elapsed, sum(self.board[place] for place in places)))
            self._check()
            if self.plan.count is None and elapsed >= self.plan.seconds:
                break
            if all(pipe.poll() for _, pipe in self.workers[len(self.receivers) :]):
                break
            time.sleep(READ_EVERY)
        self.board[PRODUCE] = 0
        return series

    def _check(self) -> None:
        """Raise BenchError if a consumer has ended early."""
        for _, pipe in self.workers[: len(self.receivers)]:
            if pipe.poll():
                raise BenchError(self._outcome(pipe).error)

    def _received(self) -> int:
        return sum(self.board[place] for place in self.receivers)

    def _arrive(self, sent: int) -> None:
        """Wait until all messages were received."""
        until = time.monotonic() + PATIENCE
        while self._received() < sent and time.monotonic() < until and self.receivers:
            self._check()
            time.sleep(0.005)

    def _drain(self, sent: int) -> None:
        """Take the messages of a run without consumers: a measurement leaves nothing behind."""
        place = len(self.board) - 1
        self._start(consume, replace(self.job, place=place))
        until = time.monotonic() + PATIENCE
        while self.board[place] < sent and time.monotonic() < until:
            time.sleep(0.01)

    def _collect(self, first: int, last: int) -> list[WorkerOutcome]:
        outcomes = [self._outcome(pipe) for _, pipe in self.workers[first:last]]
        for outcome in outcomes:
            if outcome.error:
                raise BenchError(outcome.error)
        return outcomes

    def _outcome(self, pipe: Any) -> WorkerOutcome:
        try:
            outcome = pipe.recv()
        except EOFError:
            raise BenchError("a process of the load generator has ended without a result") from None
        assert isinstance(outcome, WorkerOutcome)
        return outcome

    def _result(self, series: list[tuple[float, int]], sent: list[WorkerOutcome], taken: list[WorkerOutcome]) -> Result:
        if self.plan.count is not None:
            (at, done), (end, last) = series[0], series[-1]
        else:
            *steady, (end, last) = series[:-1]
            at, done = next(point for point in [*steady, (end, last)] if point[0] >= WARM_UP * end)
        took = max(end - at, 1e-9)
        total = sum(each.done for each in sent)
        return Result(
            plan=self.plan,
            protocol=self.job.address.protocol,
            sent=total,
            received=sum(each.done for each in taken) if self.receivers else total,
            seconds=round(took, 6),
            rate=(last - done) / took,
            latencies=np.concatenate([np.zeros(0, np.int64), *(each.latencies for each in taken)]),
            confirms=np.concatenate([np.zeros(0, np.int64), *(each.latencies for each in sent)]),
            series=series,
        )

    def end(self) -> None:
        """End the processes."""
        self.board[PRODUCE] = self.board[CONSUME] = 0
        for process, pipe in self.workers:
            process.join(2)
            if process.is_alive():
                process.terminate()
            with suppress(OSError):
                pipe.close()


def _shares(places: tuple[int, ...], connections: int) -> list[tuple[int, int]]:
    """Each place with its share of the connections."""
    share, rest = divmod(connections, len(places)) if places else (0, 0)
    return [(place, share + (at < rest)) for at, place in enumerate(places)]
