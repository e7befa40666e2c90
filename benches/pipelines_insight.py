"""``insight`` over growing batches, and over a growing backlog. Run: .venv/bin/python -m benches.pipelines_insight

All events are of one queue, which is the hardest: it is one part. What a row costs, beyond what
any batch costs, stays the same however many there are; and what a small batch costs does not depend on what waits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from penstock.spark.pipelines.insight_main import Insight, Options
from penstock.spark.pipelines.lake import Lake
from penstock.spark.session import session

SIZES = (10_000, 100_000, 500_000, 1_000_000)
BACKLOGS = (0, 100_000, 1_000_000)
SMALL = 1000
#: Where time starts, and how many events there are in a second of it. Microseconds.
START, STEP = 1_750_000_000_000_000, 1000
#: What a row costs in the largest step of sizes, against the first: 1 is flat.
AIM = 1.3
#: What a small batch costs over the largest backlog, against none.
AIM_BACKLOG = 1.5


def events(first: int, kinds: Sequence[str], messages: np.ndarray) -> pa.Table:
    """Events of one queue, one a millisecond, as the view has them."""
    count = len(messages)
    at = START + STEP * np.arange(first, first + count, dtype="int64")
    ends = np.array([kind == "acknowledged" for kind in kinds])
    time = pa.timestamp("us", tz="UTC")
    size = pa.array(np.full(count, 100, "int32"), mask=ends)
    return pa.table(
        {
            "position": pa.array(np.arange(first, first + count, dtype="int64")),
            "kind": pa.array(kinds), "at": pa.array(at).cast(time), "message": pa.array(messages),
            "namespace": pa.array(["default"] * count), "queue": pa.array(["jobs"] * count),
            "deliveries": pa.array(np.ones(count, "int32"), mask=~ends),
            "delivered_at": pa.array(at - 500, mask=~ends).cast(time),
            "reason": pa.nulls(count, pa.string()), "protocol": pa.array(["phpmq"] * count),
            "peer": pa.array(["127.0.0.1:4000"] * count), "payload_size": size, "count": pa.nulls(count, pa.int64()),
        }
    )  # fmt: skip


def published(first: int, count: int) -> pa.Table:
    """A backlog: nothing of it is taken."""
    return events(first, ["published"] * count, np.arange(first, first + count, dtype="int64"))


def in_and_out(first: int, count: int, oldest: int | None = None) -> pa.Table:
    """Half of the events put a message in, the others take one out: the ``oldest`` and those behind it, or these."""
    half = count // 2
    come = np.arange(first, first + half, dtype="int64")
    gone = come if oldest is None else np.arange(oldest, oldest + half, dtype="int64")
    return events(first, ["published"] * half + ["acknowledged"] * half, np.concatenate([come, gone]))


@contextmanager
def pipeline(spark: SparkSession) -> Iterator[tuple[Insight, Path]]:
    """A lake of its own, and a place for events."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake", "insight")
        with lake.locked():
            lake.prepare()
            yield Insight(spark, lake, Options(report_seconds=0)), Path(folder)


def seconds(spark: SparkSession, insight: Insight, folder: Path, number: int, rows: pa.Table) -> float:
    """What a batch of these events takes, the report included."""
    file = folder / f"events-{number}.parquet"
    pq.write_table(rows, file, row_group_size=100_000)
    frame = spark.read.parquet(str(file))
    started = perf_counter()
    insight.batch(frame, number)
    return perf_counter() - started


def growing_batches(spark: SparkSession, sizes: Sequence[int]) -> bool:
    """Print what a row costs from each size to the next. Returns whether it stays flat."""
    out, before, marginal = sys.stdout.write, (0, 0.0), []
    out("\none batch of one queue\n    events   seconds   µs/event   µs/event beyond the size before\n")
    for size in sizes:
        with pipeline(spark) as (insight, folder):
            took = seconds(spark, insight, folder, 0, in_and_out(1, size))
        more = 1e6 * (took - before[1]) / (size - before[0])
        marginal.append(more)
        out(f"{size:10,} {took:9.2f} {1e6 * took / size:10.1f} {more:10.1f}\n")
        before = size, took
    flat = len(marginal) < 3 or marginal[-1] <= marginal[1] * AIM
    out(f"the last step against the first: aim {AIM}, {'met' if flat else 'MISSED'}\n")
    return flat


def growing_backlog(spark: SparkSession, backlogs: Sequence[int]) -> bool:
    """Print what a small batch costs over each backlog. Returns whether that stays flat."""
    out, found = sys.stdout.write, []
    out(f"\na batch of {SMALL:,} events over a backlog\n   backlog   seconds\n")
    for backlog in backlogs:
        with pipeline(spark) as (insight, folder):
            if backlog:
                seconds(spark, insight, folder, 0, published(1, backlog))
            times = []
            for number in range(1, 4):
                first = backlog + number * SMALL
                oldest = 1 + (number - 1) * SMALL // 2 if backlog else None
                times.append(seconds(spark, insight, folder, number, in_and_out(first, SMALL, oldest)))
        found.append(min(times))
        out(f"{backlog:10,} {found[-1]:9.2f}\n")
    flat = found[-1] <= found[0] * AIM_BACKLOG
    out(f"the largest against none: aim {AIM_BACKLOG}, {'met' if flat else 'MISSED'}\n")
    return flat


def main() -> int:
    """Run both. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, metavar="N")
    parser.add_argument("--backlogs", type=int, nargs="*", default=BACKLOGS, metavar="N")
    options = parser.parse_args()
    spark = session("penstock bench")
    with pipeline(spark) as (insight, folder):  # the first of all pays for Spark's own start
        seconds(spark, insight, folder, 0, in_and_out(1, SMALL))
    done = [growing_batches(spark, options.sizes)] if options.sizes else []
    done += [growing_backlog(spark, options.backlogs)] if options.backlogs else []
    spark.stop()
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
