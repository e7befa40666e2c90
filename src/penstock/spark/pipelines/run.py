"""Shared by all streaming pipelines: their source, how they run, and their progress."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, field
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock.flight.calls import Range, Status
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.errors import SourceError
from penstock.spark.lake.batches import Lake
from penstock.spark.lake.disk import LakeError
from penstock.spark.options import Use, parse
from penstock.spark.registration import load

#: Seconds between two looks at the query.
LOOK_EVERY = 0.2
#: Seconds between two triggers of a pipeline that keeps running.
TRIGGER_SECONDS = 5.0


#: Spark's exceptions, in Python and from Java.
SPARK_ERRORS = (PySparkException, Py4JError)


class PipelineFailed(SourceError):
    """A pipeline failed. What was written is intact: run it again to continue."""


class BrokerSource(Struct, frozen=True):
    """The source of events: options of ``format("penstock")``, by their names there."""

    options: Mapping[str, str]

    def reach(self) -> Range:
        """The broker's readable range. Raises early for a bad option, or if the broker is away."""
        with FlightEndpoint(parse(self.options, Use.READING)) as endpoint:
            return endpoint.ask(Status(), Range)

    def stream(self, spark: SparkSession, **more: object) -> DataFrame:
        """A streaming read. An option of None is left out."""
        parse(self._with(more), Use.STREAM)  # Spark would bury the error in a long text
        return load(spark, spark.readStream.format("penstock").options(**self._with(more)))

    def batch(self, spark: SparkSession, **more: object) -> DataFrame:
        """A batch read."""
        parse(self._with(more), Use.BATCH)
        return load(spark, spark.read.format("penstock").options(**self._with(more)))

    def _with(self, more: Mapping[str, object]) -> dict[str, str]:
        given = {name: str(value) for name, value in more.items() if value is not None}
        return {**self.options, **given}


def start_of(lake: Lake, identity: str) -> int | None:
    """Where a stream starts whose checkpoint is lost; None: as usual. ``identity`` is the broker's journal."""
    position = lake.resume_at()
    last = lake.last()
    if position is not None and last is not None and last.state["identity"] != identity:
        text = "and its checkpoint is gone, so missing messages would go unnoticed"
        raise LakeError(
            f"the lake {lake.root} has messages of another journal than the broker's, {text}: choose another"
        )
    return position


class PipelineProgress(Struct):
    """A pipeline's progress. ``lag_rows``, ``lag_seconds`` and ``total_rows`` are None while they are unknown."""

    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    lag_rows: int | None = None
    lag_seconds: float | None = None
    total_rows: int | None = None
    #: Rows of the same work that earlier runs have done.
    before_rows: int = 0
    #: The current activity, in words, and how many of its Spark tasks are done.
    doing: str = ""
    tasks: int = 0
    tasks_done: int = 0
    done: bool = False

    @property
    def rate(self) -> float:
        """Rows a second since the start."""
        return self.rows / self.seconds if self.seconds else 0.0


class RunControl(Struct):
    """How to run: to the current end, or until stopped; and where to report progress."""

    once: bool = False
    seconds: float = TRIGGER_SECONDS
    stop: threading.Event = field(default_factory=threading.Event)
    report: Callable[[PipelineProgress], None] = lambda progress: None
    #: The pipeline's current activity, for progress reports.
    doing: str = ""


#: Processes a batch, and returns its number of rows.
Each = Callable[[DataFrame, int], int]


def drive(frame: DataFrame, lake: Lake, each: Each, run: RunControl) -> PipelineProgress:
    """Run a stream of batches into the lake until it ends or is stopped. Raises ``PipelineFailed``, or the cause."""
    progress = PipelineProgress()
    began = time.monotonic()
    problems: list[BaseException] = []
    at_work = threading.Lock()

    def batch(found: DataFrame, number: int) -> None:
        with at_work:
            try:
                run.doing = f"batch {number}"
                progress.rows += each(found, number)
                progress.batches += 1
                run.doing = "waiting for more"
            except BaseException as problem:  # Spark would bury it in a long text
                problems.append(problem)
                raise

    run.doing = "planning the first batch"
    trigger: dict[str, Any] = {"availableNow": True} if run.once else {"processingTime": f"{run.seconds} seconds"}
    writer = frame.writeStream.foreachBatch(batch).trigger(**trigger)
    query = writer.option("checkpointLocation", str(lake.checkpoint)).queryName(f"penstock-{lake.name}").start()
    try:
        while query.isActive and not run.stop.wait(LOOK_EVERY):
            progress.seconds = time.monotonic() - began
            take_lag(query.lastProgress, progress)
            take_tasks(frame.sparkSession, progress)
            progress.doing = run.doing
            run.report(progress)
        query.stop() if run.stop.is_set() else query.awaitTermination()
    except StreamingQueryException as error:
        raise explained(problems[0] if problems else error) from None
    finally:
        if query.isActive:
            query.stop()
        with at_work:  # a batch that was stopped in the middle may still be on its way out
            pass
    failure = query.exception()
    if failure is not None:
        raise explained(problems[0] if problems else failure)
    progress.seconds = time.monotonic() - began
    progress.done = not run.stop.is_set()
    progress.doing, progress.tasks, progress.tasks_done = "", 0, 0
    run.report(progress)
    return progress


@contextmanager
def watched(spark: SparkSession, run: RunControl, progress: PipelineProgress) -> Iterator[None]:
    """Report the progress of Spark's work, and stop it on request: what waits for it then raises."""
    began, over = time.monotonic(), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_EVERY):
            progress.seconds = time.monotonic() - began
            take_tasks(spark, progress)
            progress.doing = run.doing
            run.report(progress)
            if run.stop.is_set():
                spark.sparkContext.cancelAllJobs()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        progress.seconds = time.monotonic() - began


def take_tasks(spark: SparkSession, progress: PipelineProgress) -> None:
    """Count the tasks of Spark's active stages, and how many of them are done."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    progress.tasks = sum(stage.numTasks for stage in stages if stage is not None)
    progress.tasks_done = sum(stage.numCompletedTasks for stage in stages if stage is not None)


def explained(problem: BaseException) -> BaseException:
    """The cause in one line: ours if it was ours, else the data source's, else Java's."""
    if not isinstance(problem, SPARK_ERRORS):
        return problem
    lines = lines_of(problem)
    ours = [line for line in lines if line.startswith("penstock.spark.errors.")]
    if ours:
        return PipelineFailed(ours[-1].partition(": ")[2])
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return PipelineFailed(causes[-1] if causes else lines[0])


def lines_of(error: BaseException) -> list[str]:
    """An error's lines, without empty ones: Spark's often begin with one."""
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]


def take_lag(last: Any, progress: PipelineProgress) -> None:
    """Take the data source's report from the query's progress."""
    for source in (last or {}).get("sources", ()):
        try:
            report = json.loads(source.get("latestOffset") or "{}")
        except (TypeError, ValueError):
            continue
        if isinstance(report, dict) and "lagMessages" in report:  # null before the first contact with the broker
            progress.lag_rows, progress.lag_seconds = report["lagMessages"], report["lagSeconds"]
