"""Runs ``insight``: events from a broker, tables and the report into a lake."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.lake.batches import BatchMark, Lake
from penstock.spark.lake.disk import LakeError, remove, write_whole
from penstock.spark.pipelines.insight import sums, tables
from penstock.spark.pipelines.insight.messages import MessageStore, read_changes, write_changes
from penstock.spark.pipelines.insight.minutes import MINUTE, InsightState
from penstock.spark.pipelines.insight.report import ReportTables, render
from penstock.spark.pipelines.run import BrokerSource, PipelineProgress, RunControl, drive, start_of

#: Files of a batch in its folder of the state: the open minutes, and its changes of the database.
_OPEN, _CHANGES = "memory.json", "changes.arrow"


class InsightOptions(Struct, frozen=True):
    """The pipeline's options."""

    pattern: str | None = None
    #: Minutes that ended this much before the newest event are closed. Microseconds.
    delay: int = 2 * MINUTE
    #: The report is rendered at most once in this many seconds, and covers this many hours.
    report_seconds: float = 30.0
    report_hours: float = 24.0
    #: Events of a batch: they fit into Spark's default memory (1 GB), and progress stays visible.
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
        """``identity`` is that of the broker's journal; ``how`` receives the current activity."""
        self._how = RunControl() if how is None else how
        self._spark = spark
        self._identity = identity
        self._lake = lake
        self._options = options
        self._reported = float("-inf")
        self._state = lake.hidden / "state"
        self.folder = lake.root / "insight"
        lake.refuse_unknown("insight", [self.folder])

    def batch(self, events: DataFrame, number: int) -> int:
        """Process a batch: once, however often it comes."""
        attempt = self._lake.begin(number)
        if attempt is None:
            return 0
        self._how.doing = f"batch {number}: adding up events"
        state = self._open_minutes()
        parts = sums.collect(sums.transform(events, state))
        rows = sum(partial.rows for partial, _ in parts)
        if rows:
            self._how.doing = f"batch {number}: writing what {rows:,} events have changed"
            self._take(state, parts, number, attempt)
        if time.monotonic() - self._reported >= self._options.report_seconds:
            self.report()
        return rows

    def _take(self, state: InsightState, parts: sums.Parts, number: int, attempt: Path) -> None:
        """Write a batch, decide it, and update the database."""
        folder = self._state / attempt.name
        last = self._lake.last()
        database = self._state / "messages.db"
        if last is None:
            remove(database)  # it belongs to tables that were removed
        with MessageStore.opened(database) as store:
            self._catch_up(store, last)
            found = sums.add(state, parts, store)
            moves = tables.stage(found.ledgers, attempt, self.folder)  # before ``close`` drops minutes
            (attempt / _OPEN).write_bytes(msgspec.json.encode(found.ledgers.close(self._options.delay)))
            write_changes(attempt / _CHANGES, found.changes, store.applied)
            moves += [(attempt / name, folder / name) for name in (_OPEN, _CHANGES)]
            position = max(partial.position for partial, _ in parts) + 1
            self._lake.decide(number, moves, position, self._ledger_state(last, parts, folder.name))
            store.commit(folder.name)
        self._forget(folder)

    def _ledger_state(self, last: BatchMark | None, parts: sums.Parts, folder: str) -> dict[str, object]:
        """What the ledger records beside the files."""
        before = last.state["rows"] if last is not None else 0
        rows = before + sum(partial.rows for partial, _ in parts)
        return {"folder": folder, "identity": self._identity, "rows": rows}

    def _open_minutes(self) -> InsightState:
        """The state after the previous batch."""
        last = self._lake.last()
        if last is None:
            return InsightState()
        return msgspec.json.decode((self._folder_of(last) / _OPEN).read_bytes(), type=InsightState)

    def _folder_of(self, last: BatchMark) -> Path:
        return self._state / str(last.state["folder"])

    def _catch_up(self, store: MessageStore, last: BatchMark | None) -> None:
        """Bring the database up to the last decided batch, whichever process decided it."""
        wanted = "" if last is None else str(last.state["folder"])
        if store.applied == wanted or last is None:
            return
        changes, before = read_changes(self._folder_of(last) / _CHANGES)
        if store.applied != before:
            raise LakeError(
                f"the database in {self._state} does not match the last batch: it is of {store.applied or 'none'!r},"
                f" and not of {before!r}. Restore {self._lake.hidden} as a whole, or remove it and {self.folder}, and"
                " run again: tables are then made from the whole journal"
            )
        store.apply(changes)
        store.commit(wanted)

    def _forget(self, current: Path) -> None:
        """Remove the state of earlier batches."""
        for each in self._state.iterdir():
            if each.is_dir() and each != current:
                remove(each)

    def report(self) -> None:
        """Render the report."""
        self._how.doing = "rendering the report"
        self._reported = time.monotonic()
        state, hours = self._open_minutes(), self._options.report_hours
        unit = min(state.finer, default=MINUTE)
        names = ("queues", "dead_letters", "talkers", tables.BY_STEP[unit])
        queues, dead, talkers, steps = (tables.Recent(self.folder, name, hours) for name in names)
        found = ReportTables(queues, dead, talkers, steps, unit)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "report.html", render(found, int(time.time() * 1e6), self.folder).encode())


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
        if progress.done or lake.last() is not None:  # stopped in its first batch, it has no rows to show
            pipeline.report()
    return progress
