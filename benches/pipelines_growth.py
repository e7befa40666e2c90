"""All pipelines over growing input, and ``insight`` over a backlog. Run: .venv/bin/python -m benches.pipelines_growth

What a row costs does not grow, however many there are. All rows are of one queue, or in one
file, which is the hardest: it is one part.
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

from benches.flight import broker, write_journal
from penstock.spark.lake.batches import Lake
from penstock.spark.pipelines.archive import main as archive_main
from penstock.spark.pipelines.archive.options import ArchiveOptions
from penstock.spark.pipelines.decode import main as decode
from penstock.spark.pipelines.insight.main import Insight, InsightOptions
from penstock.spark.pipelines.replay import Replay, ReplayChoice
from penstock.spark.pipelines.run import BrokerSource, RunControl
from penstock.spark.session import session
from penstock.wire import sspq

SIZES = (10_000, 100_000, 500_000)
BACKLOGS = (0, 100_000, 1_000_000, 5_000_000)
SMALL = 1000
#: Small batches of each sort.
REPEATED = 3
#: Events of a batch while a backlog is made: what the pipeline takes at most.
BATCH = 250_000
#: Where time starts, and how many events there are in a second of it. Microseconds.
START, STEP = 1_750_000_000_000_000, 1000
#: What a row of the largest input costs, against one of the size before. What any run costs makes it less than 1.
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


def in_and_out(first: int, count: int, gone: np.ndarray | None = None) -> pa.Table:
    """Half of the events put a message in, the others take one out: those that are named, or these."""
    half = count // 2
    come = np.arange(first, first + half, dtype="int64")
    messages = np.concatenate([come, come if gone is None else gone])
    return events(first, ["published"] * half + ["acknowledged"] * half, messages)


def taken(number: int, backlog: int, *, spread: bool) -> np.ndarray | None:
    """The messages that a small batch takes: the oldest, or some from all over the backlog. No two batches the same."""
    half = SMALL // 2
    if not backlog:
        return None
    if not spread:
        return np.arange(1 + number * half, 1 + (number + 1) * half, dtype="int64")
    kept = 2 * REPEATED * half  # the oldest are others'
    return kept + number + 2 * REPEATED * np.arange(half, dtype="int64") * ((backlog - kept) // (2 * REPEATED * half))


@contextmanager
def pipeline(spark: SparkSession) -> Iterator[tuple[Insight, Path]]:
    """A lake of its own, and a place for events."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake", "insight")
        with lake.locked():
            lake.prepare()
            yield Insight(spark, lake, InsightOptions(report_seconds=0)), Path(folder)


def seconds(spark: SparkSession, insight: Insight, folder: Path, number: int, rows: pa.Table) -> float:
    """What a batch of these events takes, the report included."""
    file = folder / f"events-{number}.parquet"
    pq.write_table(rows, file, row_group_size=100_000)
    frame = spark.read.parquet(str(file))
    started = perf_counter()
    insight.batch(frame, number)
    return perf_counter() - started


def cost_of_insight(spark: SparkSession, size: int) -> dict[str, float]:
    """One batch of this many events."""
    with pipeline(spark) as (insight, folder):
        return {"insight": seconds(spark, insight, folder, 0, in_and_out(1, size))}


def cost_of_archive_and_replay(spark: SparkSession, size: int) -> dict[str, float]:
    """So many messages from a broker into a lake, and from there into a queue."""
    with tempfile.TemporaryDirectory() as folder:
        write_journal(f"{folder}/data", size)
        with broker(f"{folder}/data") as addresses:
            source, lake = BrokerSource({"endpoint": addresses["flight"]}), f"{folder}/lake"
            options = ArchiveOptions(queue="default/q")
            archived = archive_main.run(spark, source, lake, options, RunControl(once=True))
            choice = ReplayChoice(to="default/again", create=True)
            replayed = Replay(spark, source, lake, "bench").run(choice, None, RunControl())
    assert archived.rows == replayed.rows == size
    return {"archive": archived.seconds, "replay": replayed.seconds}


def cost_of_decode(spark: SparkSession, size: int) -> dict[str, float]:
    """A capture of this many frames."""
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "capture.bin"
        capture.write_bytes(sspq.encode([sspq.Send(3, (b"x" * 100,) * size)]))
        done = decode.run(spark, [str(capture)], decode.DecodeOptions("sspq", "to_server"), f"{folder}/frames")
    assert done.frames == size
    return {"decode": done.seconds}


COSTS = (cost_of_insight, cost_of_archive_and_replay, cost_of_decode)


def growing_input(spark: SparkSession, sizes: Sequence[int]) -> bool:
    """Print what a row costs from each size to the next. Returns whether it stays flat for all."""
    found: dict[str, list[float]] = {}
    for cost in COSTS:
        for size in sizes:
            for name, took in cost(spark, size).items():
                found.setdefault(name, []).append(took)
    flat = [show_growth(name, sizes, took) for name, took in found.items()]
    return all(flat)


def show_growth(name: str, sizes: Sequence[int], took: Sequence[float]) -> bool:
    """Print a table of one pipeline. Returns whether a row of the largest costs no more than one of the size before."""
    out = sys.stdout.write
    out(f"\n{name}\n      rows   seconds    µs/row\n")
    rows = [1e6 * each / size for size, each in zip(sizes, took, strict=True)]
    for size, each, row in zip(sizes, took, rows, strict=True):
        out(f"{size:10,} {each:9.2f} {row:9.1f}\n")
    flat = len(rows) < 2 or rows[-1] <= rows[-2] * AIM
    out(f"a row of the largest against the size before: aim {AIM}, {'met' if flat else 'MISSED'}\n")
    return flat


def growing_backlog(spark: SparkSession, backlogs: Sequence[int]) -> bool:
    """Print what a small batch costs over each backlog. Returns whether that stays flat.

    Once the oldest messages are taken, and once some from all over the backlog, as with priorities.
    """
    out, found = sys.stdout.write, []
    out(f"\na batch of {SMALL:,} events over a backlog\n")
    out("   backlog  the oldest  from all over   the backlog itself\n")
    for backlog in backlogs:
        with pipeline(spark) as (insight, folder):
            made = 0.0
            for number, first in enumerate(range(1, backlog + 1, BATCH)):
                made += seconds(spark, insight, folder, number, published(first, min(BATCH, backlog + 1 - first)))
            times: dict[bool, list[float]] = {False: [], True: []}
            for number in range(2 * REPEATED):
                spread, first = number % 2 == 1, backlog + 1 + number * SMALL
                gone = taken(number, backlog, spread=spread)
                rows = in_and_out(first, SMALL, gone)
                times[spread].append(seconds(spark, insight, folder, backlog + number, rows))
        found.append(max(map(min, times.values())))
        oldest, spread_out, message = min(times[False]), min(times[True]), 1e6 * made / max(1, backlog)
        out(f"{backlog:10,} {oldest:9.2f} s {spread_out:11.2f} s {message:9.1f} µs a message\n")
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
    for cost in COSTS if options.sizes else COSTS[:1]:  # the first of all pays for Spark's own start
        cost(spark, SMALL)
    done = [growing_input(spark, options.sizes)] if options.sizes else []
    done += [growing_backlog(spark, options.backlogs)] if options.backlogs else []
    spark.stop()
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
