"""The interface for sinks that are not tables: a SQLite database meets the contract of ``archive/sink.py``."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.lake.batches import Lake
from penstock.spark.lake.disk import LakeError
from penstock.spark.pipelines.archive import main as archive_main
from penstock.spark.pipelines.archive.options import ArchiveOptions, open_sink
from penstock.spark.pipelines.archive.sinks import SINKS
from penstock.spark.pipelines.run import BrokerSource, RunControl
from support.archives import ArchiveRun, Killed, messages
from support.sparks import SparkBroker
from support.sqlite_sink import KIND, SqliteSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The points at which a batch is stopped: before or after a call.
STEPS: list[tuple[type, str, bool]] = [
    (SqliteSink, "stage", False),
    (SqliteSink, "stage", True),
    (SqliteSink, "commit", True),
    (Lake, "record", True),
]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINKS, "sqlite", KIND)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[ArchiveRun]:
    yield (found := started(spark, tmp_path, "lake"))
    found.archive.close()


def started(spark: SparkSession, folder: Path, lake: str, query: str = "query-one") -> ArchiveRun:
    return ArchiveRun(spark, folder / lake, query, kind="sqlite", sink={"database": str(folder / "archive.db")})


def rows(folder: Path, table: str = "messages") -> list[Any]:
    with closing(sqlite3.connect(folder / "archive.db")) as database:
        return database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def positions(folder: Path) -> list[int]:
    return sorted(row[0] for table in ("messages", "quarantine") for row in rows(folder, table))


def killed(run: ArchiveRun, number: int, step: tuple[type, str, bool]) -> None:
    place, name, after = step
    real: Callable[..., Any] = getattr(place, name)

    def call(*arguments: Any) -> Any:
        if after:
            real(*arguments)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, call)
        with pytest.raises(Killed):
            run.batch(number)
    run.archive.close()


def test_a_batch_stopped_at_any_step_and_repeated_is_committed_once(run: ArchiveRun, tmp_path: Path) -> None:
    run.batch(0)
    for number, step in enumerate(STEPS, 1):
        killed(run, number, step)
        run.start()
        run.batch(number)
        run.batch(number)
    assert positions(tmp_path) == list(range(50))
    assert rows(tmp_path)[0][1:] == ("q0", b'{"id": 0, "more": "x"}', '{"id":0}', None)
    assert rows(tmp_path, "quarantine")[0][4] == "not JSON: Input data was truncated"
    assert rows(tmp_path, "staged") == []
    last = run.lake.last()
    assert last is not None
    assert (last.state["rows"], last.state["quarantined"], last.done) == (50, 12, True)


def test_the_database_alone_shows_where_to_continue(run: ArchiveRun, tmp_path: Path) -> None:
    """The pipeline's folder is lost, with its ledger and its checkpoint."""
    run.batch(0)
    run.archive.close()
    shutil.rmtree(tmp_path / "lake" / "_penstock")
    run.start()
    assert run.lake.resume_at() == 10
    run.checkpoint("query-two")
    run.archive.batch(messages(run.spark, 10, 10), 0)
    assert positions(tmp_path) == list(range(20))


def test_two_pipelines_on_one_database(run: ArchiveRun, tmp_path: Path) -> None:
    other = started(run.spark, tmp_path, "other", "query-two")
    run.batch(0)
    with pytest.raises(LakeError, match="was written by another pipeline"):
        other.batch(0)
    other.archive.close()
    assert positions(tmp_path) == list(range(10))


def test_a_database_that_was_removed(run: ArchiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline rejects it and closes it."""
    run.batch(0)
    run.archive.close()
    (tmp_path / "archive.db").unlink()
    closed: list[SqliteSink] = []

    def close(sink: SqliteSink) -> None:
        closed.append(sink)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteSink, "close", close)
        with pytest.raises(LakeError, match="has none of the 10 rows of the ledger"):
            run.start()
    for each in closed:
        each.close()
    assert len(closed) == 1


def test_each_kind_has_its_own_flags(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "archive-messages")
    with pytest.raises(ValueError, match="--nosuch is not a flag of kind sqlite"):
        open_sink(lake, ArchiveOptions(sink={"nosuch": "x"}), "sqlite")
    with pytest.raises(ValueError, match="--database is not a flag of kind delta"):
        open_sink(lake, ArchiveOptions(sink={"database": "x"}), "delta")
    with pytest.raises(ValueError, match="kind sqlite needs a database"):
        open_sink(lake, ArchiveOptions(), "sqlite")


def test_from_a_broker(spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    broker, lake = new_broker(), str(tmp_path / "lake")
    options = ArchiveOptions(kind="sqlite", sink={"database": str(tmp_path / "archive.db")})

    def run(options: ArchiveOptions = options) -> int:
        source = BrokerSource({"endpoint": broker.endpoint})
        return archive_main.run(spark, source, lake, options, RunControl(once=True)).rows

    broker.publish("jobs", b"one", b"two")
    assert run() == 2
    broker.publish("jobs", b"three")
    assert run() == 1
    assert run() == 0
    assert [row[2] for row in rows(tmp_path)] == [b"one", b"two", b"three"]
    with pytest.raises(LakeError, match="has been written with kind sqlite, not delta"):
        archive_main.run(
            spark,
            BrokerSource({"endpoint": broker.endpoint}),
            lake,
            ArchiveOptions(kind="delta"),
            RunControl(once=True),
        )
