"""Runs a pipeline: a Spark session, signals, progress, and the report at its end. Spark is started here, not before."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.cli.errors import INTERRUPTED
from penstock.cli.output import note, print_json, say
from penstock.cli.pipeline.progress import ProgressDisplay, ending, progress_display, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.run import PipelineProgress, RunControl


@contextmanager
def started(name: str, flags: dict[str, Any]) -> Iterator[tuple[SparkSession, RunControl]]:
    """A Spark session, and the controls of a run on it. Displays the progress of both."""
    shows = progress_display(flags["as_json"])
    with shows as shown, _session(name, flags, shown) as spark, _running(flags, shown) as run:
        yield spark, run


@contextmanager
def _session(name: str, flags: dict[str, Any], shown: ProgressDisplay) -> Iterator[SparkSession]:
    """A session, stopped at the end: Spark's Java process must not outlive us."""
    from penstock.spark.session import session  # noqa: PLC0415

    logging.getLogger("SQLQueryContextLogger").disabled = True  # it prints every error as a page of JSON
    shown.begin("starting Spark …")
    if os.environ.get("LC_ALL", "") in ("C", "POSIX"):
        os.environ["LC_ALL"] = "C.UTF-8"  # else Java can't create folders for queues with non-ASCII names
    with _quiet():
        spark = session(f"penstock {name}", flags["master"] or _submitted() or "local[*]", flags["confs"])
    try:
        yield spark
    finally:
        spark.stop()


def _submitted() -> str | None:
    """The master of spark-submit, if it started us."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    SparkContext._ensure_initialized()  # the settings of spark-submit are in the JVM that it started
    return SparkConf().get("spark.master")


@contextmanager
def _quiet() -> Iterator[None]:
    """Discard standard error: while Spark starts, it prints a lot before it reads its settings."""
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@contextmanager
def _running(flags: dict[str, Any], shown: ProgressDisplay) -> Iterator[RunControl]:
    """The controls of a run, which Ctrl-C and SIGTERM stop cleanly."""
    from penstock.spark.pipelines.run import RunControl  # noqa: PLC0415

    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield RunControl(once=flags.get("once", True), seconds=flags.get("every", 5.0), stop=stop, report=shown.show)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def finish(progress: PipelineProgress, flags: dict[str, Any], *lines: str) -> int:
    """Print the result, and return the exit code. A stream stopped by a signal has succeeded."""
    once = flags.get("once", True)
    if flags["as_json"]:
        print_json(values(progress))
    else:
        note(ending(progress, once=once))
        say(*lines)
    return 0 if progress.done or not once else INTERRUPTED
