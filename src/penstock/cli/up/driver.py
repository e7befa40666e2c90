"""The pipelines of ``penstock up`` in a process of their own: ``archive`` and ``insight`` share one Spark session.

What comes in and goes out is in ``lines``. It ends when its standard input does: whatever happens to whoever started
it, no Spark is left behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

import msgspec

from penstock.cli.up.lines import Broken, Going, Line, SparkReady, Task
from penstock.spark.errors import SourceError
from penstock.spark.pipelines.archive import main as archive_main
from penstock.spark.pipelines.archive.options import ArchiveOptions
from penstock.spark.pipelines.insight import main as insight_main
from penstock.spark.pipelines.run import BrokerSource, PipelineProgress, RunControl, lines_of
from penstock.spark.session import session


def main() -> int:
    """Run until standard input ends. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started us, who then ends our input
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    stop = threading.Event()
    threading.Thread(target=_watch_input, args=(stop,), daemon=True).start()
    try:
        spark = session("penstock up")
    except SourceError as error:
        _tell(Broken(reason=str(error)))
        return 1
    _tell(SparkReady(spark=spark.version))
    broker = BrokerSource({"endpoint": task.endpoint})
    failures: dict[str, Exception] = {}

    def work(name: str, pipeline: Callable[[RunControl], PipelineProgress]) -> None:
        how = RunControl(seconds=task.seconds, stop=stop, report=lambda progress: _going(name, progress))
        try:
            pipeline(how)
        except Exception as error:  # whatever it is: the other one must stop, and somebody must hear of it
            traceback.print_exc()
            failures[name] = error
        finally:
            stop.set()  # one without the other would be half the truth

    pipelines = {
        "archive": lambda how: archive_main.run(spark, broker, task.lake, ArchiveOptions(pattern="*/*"), how),
        "insight": lambda how: insight_main.run(
            spark, broker, task.lake, insight_main.InsightOptions(pattern="*/*"), how
        ),
    }
    threads = [threading.Thread(target=work, args=each) for each in pipelines.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.stop()
    if failures:
        _tell(broken(failures))
    return 1 if failures else 0


def broken(failures: dict[str, Exception]) -> Broken:
    """At the end: what has happened to which pipeline."""
    reason = "; ".join(f"{name}: {_in_short(error)}" for name, error in failures.items())
    return Broken(reason=reason)


def _in_short(error: Exception) -> str:
    """One line of what may be a page. What Java says begins with a colon, behind a line that says nothing."""
    lines = lines_of(error)
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


def _watch_input(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    stop.set()


def _going(name: str, progress: PipelineProgress) -> None:
    _tell(Going(pipeline=name, rows=progress.rows, lag_rows=progress.lag_rows))


def _tell(line: Line) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the parent is gone: our input has ended too
        pass


if __name__ == "__main__":
    raise SystemExit(main())
