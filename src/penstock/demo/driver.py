"""The main module of the process with Spark: ``archive`` and ``insight`` until standard input ends.

It ends with its input, so no Spark is left behind even if the parent is killed. The messages are in ``pipelines``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress

import msgspec

from penstock.demo.pipelines import Failed, Report, SparkReady, Task
from penstock.spark.errors import SourceError
from penstock.spark.pipelines.archive import main as archive_main
from penstock.spark.pipelines.archive.options import ArchiveOptions
from penstock.spark.pipelines.insight import main as insight_main
from penstock.spark.pipelines.run import BrokerSource, RunControl, lines_of
from penstock.spark.session import session


def main() -> int:
    """Run until standard input ends. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes our input
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    stop = threading.Event()
    threading.Thread(target=_watch_input, args=(stop,), daemon=True).start()
    try:
        spark = session("penstock up")
    except SourceError as error:
        _send(Failed(reason=str(error)))
        return 1
    _send(SparkReady(spark=spark.version))
    broker = BrokerSource({"endpoint": task.endpoint})

    def archive() -> None:
        options = ArchiveOptions(pattern="*/*")
        archive_main.run(spark, broker, task.lake, options, RunControl(seconds=task.batch_seconds, stop=stop))

    def insight() -> None:
        options = insight_main.InsightOptions(pattern="*/*")
        insight_main.run(spark, broker, task.lake, options, RunControl(seconds=task.batch_seconds, stop=stop))

    failures = _run_all({"archive": archive, "insight": insight}, stop)
    spark.stop()
    if failures:
        _send(failed(failures))
    return 1 if failures else 0


def _run_all(pipelines: dict[str, Callable[[], object]], stop: threading.Event) -> dict[str, Exception]:
    """Run pipelines until all have ended, which they do together. Returns the errors, by pipeline."""
    failures: dict[str, Exception] = {}

    def run(name: str, pipeline: Callable[[], object]) -> None:
        try:
            pipeline()
        except Exception as error:  # whatever it is, the other pipeline must stop and the parent must learn of it
            traceback.print_exc()
            failures[name] = error
        finally:
            stop.set()

    threads = [threading.Thread(target=run, args=each) for each in pipelines.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def failed(failures: dict[str, Exception]) -> Failed:
    """The report of these errors, by pipeline."""
    return Failed(reason="; ".join(f"{name}: {_summary(error)}" for name, error in failures.items()))


def _summary(error: Exception) -> str:
    """One line of an error that may fill a page: Java's own message, which begins with a colon, or the first line."""
    lines = lines_of(error)
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


def _watch_input(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    stop.set()


def _send(report: Report) -> None:
    with suppress(BrokenPipeError):  # the parent is gone: our input has ended too
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main())
