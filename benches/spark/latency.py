"""How soon a confirmed message is a row in ``foreachBatch``, and what that time is made of.

A query that is triggered as fast as Spark can (``processingTime`` 0). Messages of 1 KB are published one by one, and
each is confirmed before the next: either when the one before has arrived, so that the query is idle, or at a steady
rate, so that most find a batch at work and wait for the next.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Condition
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benches.rows import SIZE
from benches.spark.timed import Call, TimedSource, calls
from penstock.client import connect

#: Messages a second, for the steady rate.
RATE = 20
#: Messages that come first and are not counted: the first batches start processes.
WARM = 5
#: Seconds that a message may take. After that something is wrong.
PATIENCE = 120.0

#: What the time is made of, in order: each lasts until …
STEPS = (
    "wait for a trigger",  # … latestOffset is asked for the end of the batch that has the message
    "latestOffset",  # … it has answered: the batch is cut into parts here
    "Spark: offset log, plan",  # … partitions has answered
    "Spark: call of foreachBatch",  # … it is called
    "Spark: scheduling of parts",  # … the task begins to read
    "read",  # … it has read
    "Spark: rows to the driver",  # … foreachBatch has the rows
)


class Arrival(NamedTuple):
    """A message in foreachBatch."""

    number: int
    position: int
    #: When foreachBatch was called, and when it had the rows.
    called: float
    got: float


class Arrivals:
    """What a query has handed over."""

    def __init__(self) -> None:
        self._changed = Condition()
        self.found: dict[int, Arrival] = {}

    def take(self, batch: DataFrame, _: int) -> None:
        """For ``foreachBatch``."""
        called = time.monotonic()
        rows = batch.select("position", "payload").collect()
        got = time.monotonic()
        with self._changed:
            for row in rows:
                number = int(bytes(row.payload[:8]))
                self.found[number] = Arrival(number, row.position, called, got)
            self._changed.notify_all()

    def wait_for(self, number: int) -> None:
        """Until a message is there."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self.found, PATIENCE):
                raise TimeoutError(f"message {number} did not come within {PATIENCE:.0f} s")


def measure(spark: SparkSession, addresses: dict[str, str], messages: int, options: dict[str, str]) -> None:
    """Both ways of publishing, one after the other."""
    spark.dataSource.register(TimedSource)
    for steady in (False, True):
        how = f"{RATE} messages a second" if steady else "a message at a time"
        found = durations(spark, addresses, messages, options, steady=steady)
        sys.stdout.write(f"\nconfirmed publish to row in foreachBatch, {how}, {messages} messages; milliseconds\n")
        sys.stdout.write(table(found))
        sys.stdout.flush()


def durations(
    spark: SparkSession, addresses: dict[str, str], messages: int, options: dict[str, str], *, steady: bool
) -> list[list[float]]:
    """Of each message that counts, how long each of the steps took, in seconds."""
    queue = "steady" if steady else "single"
    with tempfile.TemporaryDirectory() as folder, connect(f"kokaq://{addresses['kokaq']}/default/{queue}") as client:
        client.create_queue(exist_ok=True)
        given = {"endpoint": addresses["flight"], "queue": queue, "times": str(Path(folder, "times")), **options}
        arrivals = Arrivals()
        confirmed: list[float] = []
        with running(spark, given, arrivals, Path(folder, "checkpoint")):
            for number in range(WARM + messages):
                client.publish(b"%08d" % number + bytes(SIZE - 8))
                confirmed.append(time.monotonic())
                if steady and number >= WARM:
                    time.sleep(1 / RATE)
                else:
                    arrivals.wait_for(number)
                    time.sleep(Random(number).random() / 10)  # not in step with the query's own pauses
            arrivals.wait_for(WARM + messages - 1)
        noted = calls(Path(folder, "times"))
        return [steps(confirmed[each], arrivals.found[each], noted) for each in range(WARM, WARM + messages)]


@contextmanager
def running(spark: SparkSession, options: dict[str, str], arrivals: Arrivals, checkpoint: Path) -> Iterator[None]:
    """A query that is at work."""
    stream = spark.readStream.format("penstock-timed").options(**options).load()
    writer = stream.writeStream.foreachBatch(arrivals.take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        yield
    finally:
        query.stop()


def steps(confirmed: float, arrival: Arrival, noted: Sequence[Call]) -> list[float]:
    """How long each of the steps took for a message."""
    stop = min(call.stop for call in noted if call.stop > arrival.position)
    batch = {call.what: call for call in noted if call.stop == stop}
    offset, parts, read = batch["latestOffset"], batch["partitions"], batch["read"]
    asked = max(offset.began, confirmed)
    marks = [confirmed, asked, offset.ended, parts.ended, arrival.called, read.began, read.ended, arrival.got]
    return [after - before for before, after in pairwise(marks)]


def table(found: list[list[float]]) -> str:
    """Percentiles of all of it and of each step. Those of steps do not add up; means do."""
    columns = {"all of it": [sum(each) for each in found], **dict(zip(STEPS, zip(*found, strict=True), strict=True))}
    lines = [f"{'':30} {'p50':>8} {'p99':>8} {'mean':>8}\n"]
    for name, seconds in columns.items():
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        values = (cuts[49], cuts[98], statistics.fmean(seconds))
        lines.append(f"{name:30} " + " ".join(f"{each * 1000:8.1f}" for each in values) + "\n")
    return "".join(lines)
