"""Reading into Spark, against the same rows made in memory. Run: .venv/bin/python -m benches.spark [--rows N]

``ceiling`` is what is compared with. 1 KB messages; about twice their size of disk in the temporary folder. Beside the
rates there are seconds of the processor, of all processes together: these hardly depend on what else a machine does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benches.ceiling import PARTS, Ceiling
from benches.flight import broker, write_journal
from benches.processes import Seconds, cpu_seconds
from penstock.spark.session import session

ROUNDS = 3
#: Ours, as a share of the ceiling's rate.
AIM = 0.8
METADATA = ("position", "namespace", "queue", "published_at", "priority")


def batch_into(sink: str) -> Callable[[Any, Path], None]:
    def run(source: Any, folder: Path) -> None:
        found: DataFrame = source.load()
        found.write.format(sink).mode("overwrite").save(str(folder / "out"))

    return run


def stream_into(sink: str) -> Callable[[Any, Path], None]:
    def run(source: Any, folder: Path) -> None:
        writer = source.load().writeStream.format(sink).option("path", str(folder / "out"))
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    return run


class Case(NamedTuple):
    """A way of reading."""

    name: str
    way: str
    run: Callable[[Any, Path], None]
    columns: tuple[str, ...] = ()


CASES = (
    Case("batch into noop", "read", batch_into("noop")),
    Case("batch into Parquet", "read", batch_into("parquet")),
    Case("stream into noop", "readStream", stream_into("noop")),
    Case("stream into Parquet", "readStream", stream_into("parquet")),
    Case("batch into noop, without payload", "read", batch_into("noop"), METADATA),
)


class Spent(NamedTuple):
    """What a run has taken."""

    seconds: float
    cpu: Seconds

    @property
    def total(self) -> float:
        return sum(self.cpu.values())

    def __str__(self) -> str:
        return ", ".join(f"{sort} {used:.2f}" for sort, used in sorted(self.cpu.items()) if used >= 0.005)


def spent(run: Callable[[Any, Path], None], source: Any) -> Spent:
    with tempfile.TemporaryDirectory() as folder:
        before, began = cpu_seconds(), perf_counter()
        run(source, Path(folder))
        seconds = perf_counter() - began
        return Spent(seconds, {sort: used - before.get(sort, 0) for sort, used in cpu_seconds().items()})


def compare(
    spark: SparkSession, address: str, rows: int, cases: tuple[Case, ...], rounds: int, options: dict[str, str]
) -> None:
    """Both in turns, the best round of each."""
    out = sys.stdout.write
    out(f"{'':34} ceiling rows/s   ours rows/s   ratio   CPU s ceiling    ours   ratio\n")
    for case in cases:
        given = {"columns": ",".join(case.columns)} if case.columns else {}
        found: tuple[list[Spent], list[Spent]] = ([], [])
        for _ in range(rounds):
            ceiling = getattr(spark, case.way).format("ceiling").options(rows=str(rows), **given)
            found[0].append(spent(case.run, ceiling))
            ours = getattr(spark, case.way).format("penstock")
            ours = ours.options(endpoint=address, queue="q", minPartitions=str(PARTS), **given, **options)
            found[1].append(spent(case.run, ours))
        top, mine = (rows / min(each.seconds for each in runs) for runs in found)
        least = [min(runs, key=lambda each: each.total) for runs in found]
        cpu = [each.total for each in least]
        aim = "" if case.columns else f"  {'met' if mine / top >= AIM else 'MISSED'} (aim {AIM})"
        out(f"{case.name:34} {top:14,.0f} {mine:13,.0f}   {mine / top:5.2f}")
        out(f"{cpu[0]:16.2f} {cpu[1]:7.2f}   {cpu[0] / cpu[1]:5.2f}{aim}\n")
        out(f"    ceiling: {least[0]}\n    ours:    {least[1]}\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.spark")
    parser.add_argument("--rows", type=int, default=500_000, metavar="N", help="messages of 1 KB (default: 500000)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of each (default: {ROUNDS})")
    parser.add_argument("--case", default="", metavar="TEXT", help="only what has this in its name")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the data source")
    told = parser.parse_args()
    cases = tuple(case for case in CASES if told.case in case.name)
    options = dict(each.split("=", 1) for each in told.option)
    with tempfile.TemporaryDirectory() as folder:
        write_journal(folder, told.rows)
        with broker(folder) as addresses:
            spark = session("bench", f"local[{PARTS}]", {"spark.driver.memory": "2g"})
            spark.dataSource.register(Ceiling)
            address = addresses["flight"]
            address = address if "://" in address else f"grpc://{address}"
            compare(spark, address, told.rows, cases, told.rounds, options)
            spark.stop()


if __name__ == "__main__":
    main()
