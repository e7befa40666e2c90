"""The child process with Spark: ``archive`` and ``insight`` share one session in it.

Its standard input is one line, the task; it stops when that input ends. Its output has one JSON value per line. All
other lines come from Spark and are ignored.
"""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
from typing_extensions import override

from penstock.demo.processes import ChildProcess, ProcessFailed, RunLock

#: Seconds that Spark may take: a first start on a slow machine.
START_SECONDS = 180.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What to run: pipelines from this Flight endpoint into this lake."""

    endpoint: str
    lake: str
    #: Seconds between two triggers.
    batch_seconds: float


class SparkReady(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Spark runs, and the pipelines begin."""

    spark: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The pipelines can't continue."""

    reason: str


Report = SparkReady | Failed


class PipelinesProcess(ChildProcess):
    """Spark with both pipelines. ``spark`` is its version, empty until it is ready."""

    def __init__(self, task: Task, log: Path, lock: RunLock) -> None:
        super().__init__(["penstock.demo.driver"], log, lock, pipes=True)
        self.spark = ""
        self._reason = ""
        self._reported = threading.Event()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout
        self._input.write(msgspec.json.encode(task) + b"\n")
        self._input.flush()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait(self) -> None:
        """Wait until the pipelines run. Raises ProcessFailed."""
        self._reported.wait(START_SECONDS)
        self.check()
        if not self.spark:
            raise ProcessFailed(f"Spark takes too long to start:{self.log_end()}")

    def check(self) -> None:
        """Raise ProcessFailed if it has ended."""
        if not self.running:
            self._listener.join()
            reason = f" {self._reason}" if self._reason else self.log_end()
            raise ProcessFailed(f"the pipelines have ended:{reason}")

    @override
    def stop(self) -> None:
        self._stop(self._input.close)  # batches that run finish first
        self._listener.join()

    def _listen(self) -> None:
        for line in self._output:
            try:
                report: Report = msgspec.json.decode(line, type=Report)
            except msgspec.DecodeError:
                continue
            if isinstance(report, SparkReady):
                self.spark = report.spark
                self._reported.set()
            else:
                self._reason = report.reason
        self._reported.set()
