"""How fast rows come into Spark, against the same rows made in memory.

1 KB messages; about twice their size of disk in the temporary folder. Beside the rates there are seconds of the
CPU of all processes but the bench itself, which hardly depend on other work of the machine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benches.processes import CpuMeter, Seconds
from benches.spark.ceiling import PARTS, Ceiling

#: Ours, as a share of the rate of rows made in memory.
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

    def __str__(self) -> str:
        return self.name


CASES = (
    Case("batch into noop", "read", batch_into("noop")),
    Case("batch into Parquet", "read", batch_into("parquet")),
    Case("stream into noop", "readStream", stream_into("noop")),
    Case("stream into Parquet", "readStream", stream_into("parquet")),
    Case("batch into noop, without payload", "read", batch_into("noop"), METADATA),
)


class Work(NamedTuple):
    """What is read: all of a broker."""

    address: str
    rows: int
    options: dict[str, str]

    def sources(self, case: Case) -> dict[str, tuple[str, dict[str, str]]]:
        """By what they are called: formats, and their options."""
        given = {"columns": ",".join(case.columns)} if case.columns else {}
        ours = {"endpoint": self.address, "queue": "q", "minPartitions": str(PARTS)} | self.options | given
        return {
            "made in memory": ("ceiling", {"rows": str(self.rows)} | given),
            "penstock": ("penstock", ours),
            "penstock, shortCircuit=false": ("penstock", ours | {"shortCircuit": "false"}),
        }


class Spent(NamedTuple):
    """What a run has taken."""

    seconds: float
    cpu: Seconds

    @property
    def total(self) -> float:
        return sum(used for sort, used in self.cpu.items() if sort != "bench")


def spent(run: Callable[[Any, Path], None], source: Any, meter: CpuMeter) -> Spent:
    with tempfile.TemporaryDirectory() as folder:
        before, began = meter.seconds(), perf_counter()
        run(source, Path(folder))
        seconds = perf_counter() - began
        return Spent(seconds, {sort: used - before.get(sort, 0) for sort, used in meter.seconds().items()})


def compare(spark: SparkSession, meter: CpuMeter, work: Work, cases: Sequence[Case], rounds: int) -> None:
    """All in turns; medians of the rounds, and how far these are apart. Ratios are those of a round."""
    out = sys.stdout.write
    spark.dataSource.register(Ceiling)
    out(f"\n{work.rows:,} rows of 1 KB, {rounds} rounds: medians (lowest to highest); aim: {AIM} of what memory has\n")
    out(_columns("", "rows/s", "ratio", "CPU s", "ratio"))
    for case in cases:
        sources = work.sources(case)
        found: dict[str, list[Spent]] = {name: [] for name in sources}
        for _ in range(rounds + 1):
            for name, (kind, options) in sources.items():
                source = getattr(spark, case.way).format(kind).options(**options)
                found[name].append(spent(case.run, source, meter))
        found = {name: runs[1:] for name, runs in found.items()}  # the first of all have processes to start
        out(f"{case.name}\n")
        for name, runs in found.items():
            out(_line(name, runs, found["made in memory"], work.rows))
            if name == "penstock" and not case.columns:
                out(f"      rate: {_verdict(runs, found['made in memory'])}\n")
        sys.stdout.flush()


def _line(name: str, runs: list[Spent], memory: list[Spent], rows: int) -> str:
    faster = _faster(runs, memory)
    cheaper = [before.total / each.total for before, each in zip(memory, runs, strict=True)]
    rate, cpu = _spread([rows / each.seconds for each in runs], ",.0f"), _spread([each.total for each in runs], ".2f")
    sorts = {sort for each in runs for sort in each.cpu if sort != "bench"}
    used = {sort: statistics.median(each.cpu.get(sort, 0) for each in runs) for sort in sorted(sorts)}
    parts = f"      CPU s: {', '.join(f'{sort} {seconds:.2f}' for sort, seconds in used.items())}\n"
    if runs is memory:
        return _columns(name, rate, "", cpu, "") + parts
    return _columns(name, rate, _spread(faster, ".2f"), cpu, _spread(cheaper, ".2f")) + parts


def _faster(runs: list[Spent], memory: list[Spent]) -> list[float]:
    return [before.seconds / each.seconds for before, each in zip(memory, runs, strict=True)]


def _verdict(runs: list[Spent], memory: list[Spent]) -> str:
    return f"{'met' if statistics.median(_faster(runs, memory)) >= AIM else 'MISSED'} (aim {AIM})"


def _columns(name: str, rate: str, faster: str, cpu: str, cheaper: str) -> str:
    return f"  {name:28}  {rate:26}  {faster:17}  {cpu:17}  {cheaper}".rstrip() + "\n"


def _spread(found: list[float], shape: str) -> str:
    return f"{statistics.median(found):{shape}} ({min(found):{shape}}–{max(found):{shape}})"
