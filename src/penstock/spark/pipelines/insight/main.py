"""Runs ``insight``: events from a broker, tables and the report into a lake.

    insight/queues/date=…/hour=…/minutes.parquet         and the same for dead_letters and talkers
    insight/report.html

The rows of an hour are one file, which is replaced as a whole, so a reader sees each minute once. Rows of minutes that
are still open are shown too, and change until the minute is closed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines.insight import parts
from penstock.spark.pipelines.insight import sums as insight
from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE, PERCENTILES, InsightState, MinuteSums
from penstock.spark.pipelines.insight.report import ReportTables, render
from penstock.spark.pipelines.lake.batches import Decided, Lake, remove, write_whole
from penstock.spark.pipelines.run import BrokerSource, PipelineProgress, RunControl, drive, start_of

_NAMES = {"namespace": pa.string(), "queue": pa.string(), "minute": pa.timestamp("us", tz="UTC")}
_DURATIONS = [f"{name}_p{percent}" for name in ("in_queue", "to_acknowledge") for percent in PERCENTILES]
TABLES = {
    "queues": pa.schema(
        {
            **_NAMES,
            **dict.fromkeys((*COUNTS, "depth", "dead_depth"), pa.int64()),
            **dict.fromkeys(("oldest_seconds", *_DURATIONS), pa.float64()),
        }
    ),
    "dead_letters": pa.schema({**_NAMES, "reason": pa.string(), "messages": pa.int64()}),
    "talkers": pa.schema(
        {
            **_NAMES,
            "protocol": pa.string(),
            "host": pa.string(),
            **dict.fromkeys(("published", "bytes_in", "taken"), pa.int64()),
        }
    ),
}


class InsightOptions(Struct, frozen=True):
    """What can be chosen."""

    pattern: str | None = None
    #: Minutes that ended this much before the newest event are closed. Microseconds.
    delay: int = 2 * MINUTE
    #: The report is made anew after so many seconds at most, and is about so many hours.
    report_seconds: float = 30.0
    report_hours: float = 24.0
    #: Events of a batch: so many fit into Spark's usual memory (1 GB), and it is seen to get on.
    max_events: int | None = 250_000


class Insight:
    """The pipeline on one lake."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        options: InsightOptions,
        identity: str = "",
        how: RunControl | None = None,
    ) -> None:
        """``identity`` is that of the broker's journal; ``how`` is told what is being done."""
        self._how = RunControl() if how is None else how
        self._spark = spark
        self._identity = identity
        self._lake = lake
        self._options = options
        self._reported = float("-inf")
        self._parts = lake.hidden / "state" / "parts"
        self.folder = lake.root / "insight"
        lake.refuse_unknown("insight", [self.folder])

    def batch(self, events: DataFrame, number: int) -> int:
        """Work off one batch: once, however often it comes."""
        attempt = self._lake.begin(number)
        if attempt is None:
            return 0
        self._how.doing = f"batch {number}: reading events"
        events = events.persist()
        try:
            rows = self._work(events, number, attempt)
        finally:
            events.unpersist()
        if time.monotonic() - self._reported >= self._options.report_seconds:
            self.report()
        return rows

    def _work(self, events: DataFrame, number: int, attempt: Path) -> int:
        rows, position, first, last, grains, emptied = insight.seen(events, parts.GRAIN).collect()[0]
        if not rows:
            return 0
        memory = self._memory()
        self._how.doing = f"batch {number}: adding up {rows:,} events"
        until = max(memory.watermark, last)
        touch = parts.Touch(frozenset(grains), frozenset(map(tuple, emptied)), until - insight.PURGED_KEPT)
        choice = parts.choose(memory.parts or [], touch)
        state, standing = self._state(memory, choice), self._standing(choice)
        outcome = insight.transform(events, state, memory.watermark or first, until, standing)
        outcome.lives.persist()
        try:
            ledger = insight.add(memory, outcome, until)
            self._how.doing = f"batch {number}: keeping what is known of messages"
            insight.write_state(outcome.state, parts.GRAIN, choice.ranges, str(attempt / "lives"))
        finally:
            outcome.lives.unpersist()
        self._how.doing = f"batch {number}: writing tables"
        moves = self._stage_tables(ledger, attempt)  # first: closed minutes are not remembered
        memory, more = self._stage_memory(ledger, choice, number, attempt)
        moves += more
        last_state = last_batch.state if (last_batch := self._lake.last()) is not None else {"rows": 0}
        counted = {"rows": last_state["rows"] + int(rows)} if "rows" in last_state else {}
        told = {"folder": _folder(number), "identity": self._identity, **counted}
        self._lake.decide(number, moves, position + 1, told)
        self._forget(_folder(number), memory)
        return int(rows)

    def _memory(self) -> InsightState:
        """What the batch before left."""
        last = self._lake.last()
        if last is None:
            return InsightState(parts=[])
        return msgspec.json.decode((self._folder_of(last) / "memory.json").read_bytes(), type=InsightState)

    def _folder_of(self, last: Decided) -> Path:
        return self._lake.hidden / "state" / str(last.state["folder"])

    def _state(self, memory: InsightState, choice: parts.PartChoice) -> DataFrame:
        """What is known of the messages that the batch is about."""
        files = [str(self._parts / name) for part in choice.replaced for name in part.files]
        last = self._lake.last()
        if memory.parts is None and last is not None:
            files = [str(self._folder_of(last) / "lives")]
        if not files:
            return insight.empty_state(self._spark)
        return self._spark.read.schema(insight.STATE).parquet(*files)

    def _standing(self, choice: parts.PartChoice) -> DataFrame | None:
        """The oldest of all others."""
        found = parts.standing(choice.kept)
        return self._spark.createDataFrame(found, "namespace string, queue string, oldest long") if found else None

    def _stage_memory(
        self, ledger: MinuteSums, choice: parts.PartChoice, number: int, attempt: Path
    ) -> tuple[InsightState, list[tuple[Path, Path]]]:
        """What the next batch needs: the parts that were made anew are moved beside those that stay."""
        memory = ledger.memory(self._options.delay)
        memory.parts = list(choice.kept)
        folder = self._lake.hidden / "state" / _folder(number)
        moves = [(attempt / "memory.json", folder / "memory.json")]
        for made in sorted((attempt / "lives").glob("part=*")):
            low, files = int(made.name.removeprefix("part=")), sorted(made.glob("*.parquet"))
            names = [f"{_folder(number)}-{low}-{at}.parquet" for at in range(len(files))]
            memory.parts.append(parts.describe(low, choice.ranges, files, names))
            moves += [(file, self._parts / name) for file, name in zip(files, names, strict=True)]
        (attempt / "memory.json").write_bytes(msgspec.json.encode(memory))
        return memory, moves

    def _forget(self, current: str, memory: InsightState) -> None:
        for folder in (self._lake.hidden / "state").iterdir():
            if folder.name != current and folder != self._parts:
                remove(folder)
        known = {name for part in memory.parts or () for name in part.files}
        for file in self._parts.iterdir() if self._parts.exists() else ():
            if file.name not in known:
                remove(file)

    def _stage_tables(self, ledger: MinuteSums, attempt: Path) -> list[tuple[Path, Path]]:
        moves = []
        rows: dict[str, Iterable[dict[str, Any]]] = {
            "queues": ledger.queue_rows(),
            "dead_letters": ledger.reason_rows(),
            "talkers": ledger.talker_rows(),
        }
        for name, found in rows.items():
            for hour, new in _by_hour(found).items():
                target = self.folder / name / hour / "minutes.parquet"
                staged = attempt / name / hour / "minutes.parquet"
                staged.parent.mkdir(parents=True)
                pq.write_table(_merged(target, new, TABLES[name]), staged, compression="zstd")
                moves.append((staged, target))
        return moves

    def report(self) -> None:
        """Make the report anew."""
        self._how.doing = "making the report"
        self._reported = time.monotonic()
        tables = ReportTables(*(recent(self.folder / name, self._options.report_hours) for name in TABLES))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "report.html", render(tables, int(time.time() * 1e6)).encode())


def _folder(number: int) -> str:
    return f"{number:012}"


def _by_hour(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[datetime.fromtimestamp(row["minute"] / 1e6, UTC).strftime("date=%Y-%m-%d/hour=%H")].append(row)
    return found


def _merged(old: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows of an hour: the new ones, and the old ones of other minutes."""
    new = pa.Table.from_pylist(rows, schema=schema)
    if old.exists():
        kept = pq.read_table(old, schema=schema, partitioning=None)
        told = set(zip(*(new.column(name).to_pylist() for name in _NAMES), strict=True))
        before = list(zip(*(kept.column(name).to_pylist() for name in _NAMES), strict=True))
        new = pa.concat_tables([kept.filter(pa.array([key not in told for key in before], pa.bool_())), new])
    return new.sort_by([(name, "ascending") for name in ("minute", "namespace", "queue")])


def recent(folder: Path, hours: float) -> list[dict[str, Any]]:
    """The rows of the last hours that there are."""
    files = sorted(folder.glob("date=*/hour=*/minutes.parquet"))
    found: list[dict[str, Any]] = []
    for file in files[-max(1, round(hours)) - 1 :]:
        table = pq.read_table(file, partitioning=None)
        minutes = table.column("minute").cast(pa.int64())
        found += table.set_column(table.schema.get_field_index("minute"), "minute", minutes).to_pylist()
    newest = max((row["minute"] for row in found), default=0)
    return [row for row in found if row["minute"] > newest - hours * 60 * MINUTE]


def run(
    spark: SparkSession, broker: BrokerSource, folder: str, options: InsightOptions, how: RunControl
) -> PipelineProgress:
    """Run the pipeline."""
    lake = Lake(folder, "insight")
    with lake.locked():
        lake.prepare()
        identity = broker.reach().identity
        pipeline = Insight(spark, lake, options, identity, how)
        more = {"queuePattern": options.pattern, "maxMessagesPerTrigger": options.max_events}
        events = broker.stream(spark, view="events", startingPosition=start_of(lake, identity), **more)
        progress = drive(events, lake, pipeline.batch, how)
        if progress.done or lake.last() is not None:  # stopped in its first batch, it knows nothing that it could show
            pipeline.report()
    return progress
