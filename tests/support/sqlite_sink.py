"""A sink of the archive that is not a lake: a SQLite database. CONTRIBUTING.md explains it step by step."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from typing_extensions import override

from penstock.spark.lake.batches import BatchMark, Lake
from penstock.spark.lake.disk import LakeError
from penstock.spark.pipelines.archive.options import ArchiveOptions
from penstock.spark.pipelines.archive.rows import transform
from penstock.spark.pipelines.archive.sink import Batch, Sink, Staged
from penstock.spark.pipelines.archive.sinks import SinkFlag, SinkKind

KIND = SinkKind(
    "sqlite", "SQLite", "support.sqlite_sink:SqliteSink", (SinkFlag("database", "FILE", "The database file."),)
)

_ROW = "position INTEGER, queue TEXT, payload BLOB, value TEXT, reason TEXT"
_COLUMNS = "position, queue, payload, value, reason"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS messages ({_ROW}, PRIMARY KEY (position));
CREATE TABLE IF NOT EXISTS quarantine ({_ROW}, PRIMARY KEY (position));
CREATE TABLE IF NOT EXISTS staged (attempt TEXT, {_ROW}, PRIMARY KEY (attempt, position));
CREATE TABLE IF NOT EXISTS mark (only INTEGER PRIMARY KEY CHECK (only = 1), mark BLOB NOT NULL);
"""


class StagedRows(Staged, frozen=True):
    """Rows in the table ``staged``, with the name of their attempt."""

    attempt: str


class SqliteSink(Sink[StagedRows]):
    """Tables ``messages`` and ``quarantine``, and the mark of the newest batch. All change in one transaction."""

    failures = (sqlite3.Error, OSError)

    def __init__(self, lake: Lake, options: ArchiveOptions) -> None:
        if "database" not in options.sink:
            raise ValueError("kind sqlite needs a database: --database FILE")
        self._place = options.sink["database"]
        self._database = sqlite3.connect(self._place, isolation_level=None, check_same_thread=False)
        self._database.executescript(_SCHEMA)
        self._seen: BatchMark | None = None

    @override
    def open(self, ledger: BatchMark | None, query: str, identity: str) -> BatchMark | None:
        self._seen = mark = self._mark()
        if mark is None and ledger is not None:
            raise LakeError(f"{self._place} has none of the {ledger.state['rows']:,} rows of the ledger: restore it")
        self._database.execute("DELETE FROM staged")
        return mark if ledger is None or (mark is not None and mark.position > ledger.position) else ledger

    def _mark(self) -> BatchMark | None:
        row = self._database.execute("SELECT mark FROM mark").fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=BatchMark)

    @override
    def stage(self, messages: DataFrame, batch: Batch) -> StagedRows:
        place, attempt = self._place, batch.attempt

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            count = {"good": 0, "bad": 0, "position": 0}
            with closing(sqlite3.connect(place, timeout=60)) as database:
                for rows in batches:
                    for row in rows.to_pylist():
                        value = row.get("value")
                        text = None if value is None else msgspec.json.encode(value).decode()
                        stored = attempt, row["position"], row["queue"], row["payload"], text, row.get("reason")
                        # A task may run twice: its rows replace those of its first run.
                        database.execute("INSERT OR REPLACE INTO staged VALUES (?, ?, ?, ?, ?, ?)", stored)
                        count["bad" if row.get("reason") else "good"] += 1
                        count["position"] = max(count["position"], row["position"] + 1)
                database.commit()
            yield pa.RecordBatch.from_pylist([count])

        staged: list[Any] = (
            transform(messages, batch.decoding).mapInArrow(work, "good long, bad long, position long").collect()
        )
        good, bad = (sum(row[name] for row in staged) for name in ("good", "bad"))
        return StagedRows(good, bad, max((row["position"] for row in staged), default=0), attempt)

    @override
    def commit(self, staged: StagedRows, mark: BatchMark) -> list[tuple[str, str]]:
        run = self._database.execute
        run("BEGIN IMMEDIATE")
        with self._database:  # commits, or rolls back for an error
            known = self._mark()
            repeated = known is not None and known.query == mark.query and known.batch >= mark.batch
            if not repeated:
                if known != self._seen:
                    raise LakeError(f"{self._place} was written by another pipeline: run `archive` in one place only")
                for table, rows in (("messages", "reason IS NULL"), ("quarantine", "reason IS NOT NULL")):
                    chosen = f"SELECT {_COLUMNS} FROM staged WHERE attempt = ? AND {rows}"
                    run(f"INSERT INTO {table} ({_COLUMNS}) {chosen}", (staged.attempt,))
                run("INSERT OR REPLACE INTO mark VALUES (1, ?)", (msgspec.json.encode(mark),))
                known = mark
            run("DELETE FROM staged WHERE attempt = ?", (staged.attempt,))
        self._seen = known
        return []

    @override
    def close(self) -> None:
        self._database.close()
