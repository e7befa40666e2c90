"""The archive without a stream: tests hand it batches as Spark would, and stop it at any step of a commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.journal.views.arrow import MESSAGES
from penstock.spark.lake import files
from penstock.spark.lake.batches import Lake
from penstock.spark.lake.tables import open_table
from penstock.spark.pipelines.archive.main import Archive
from penstock.spark.pipelines.archive.options import ArchiveOptions, lake_of
from penstock.spark.pipelines.archive.table_sink import TableSink
from penstock.spark.schemas import spark_schema
from support.tables import positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = 1_767_268_800.0
SCHEMA = "id long"


class Killed(BaseException):
    """Simulates a kill, so nothing may catch it."""


class ArchiveRun:
    """A pipeline on a lake."""

    def __init__(self, spark: SparkSession, lake: Path | str, query: str = "query-one", **options: Any) -> None:
        self.spark, self.folder, self.now = spark, Path(lake), NOON
        self.place = str(lake)
        self._given: dict[str, Any] = {
            "format": "json", "schema": SCHEMA, "clock": lambda: self.now, "table": "orders", **options
        }  # fmt: skip
        self.start()
        self.checkpoint(query)
        self.start()

    def start(self, **options: Any) -> None:
        """Start as after a kill, knowing only what is in the lake, possibly with new options."""
        self._given |= options
        self.options = ArchiveOptions(**self._given)
        self.lake = lake_of(self.place, self.options)
        self.lake.prepare()
        self.archive = Archive(self.lake, self.options, "journal")

    @property
    def tables(self) -> TableSink:
        assert isinstance(self.archive.sink, TableSink)
        return self.archive.sink

    def checkpoint(self, query: str) -> None:
        self.lake.checkpoint.mkdir(parents=True, exist_ok=True)
        (self.lake.checkpoint / "metadata").write_text(json.dumps({"id": query}))

    def batch(self, number: int, rows: int = 10) -> int:
        return self.archive.batch(messages(self.spark, number * rows, rows), number)

    def planned(self, number: int, end: int, **of: str) -> None:
        """The entry in Spark's offset log for a batch of 10 positions."""
        log = self.lake.checkpoint / "offsets" / str(number)
        log.parent.mkdir(exist_ok=True)
        log.write_text("v1\n{}\n" + json.dumps({"identity": "journal", "position": end, "of": of, "parts": [10]}))

    def killed(self, number: int, step: str) -> None:
        """Run a batch that is killed at one of ``STEPS``."""
        with pytest.MonkeyPatch.context() as patch:
            _kill_at(patch, self, step)
            with pytest.raises(Killed):
                self.batch(number)

    def positions(self) -> list[int]:
        return positions(self.spark, self.folder, "orders", "orders_quarantine")


def messages(spark: SparkSession, start: int, rows: int) -> DataFrame:
    """Messages, every fourth of which goes to quarantine."""
    columns = {field.name: pa.nulls(rows, field.type) for field in MESSAGES}
    numbers = range(start, start + rows)
    columns |= {
        "position": pa.array(numbers, pa.int64()),
        "namespace": pa.array(["default"] * rows),
        "queue": pa.array([f"q{number % 2}" for number in numbers]),
        "payload": pa.array([b"no" if n % 4 == 3 else b'{"id": %d, "more": "x"}' % n for n in numbers]),
        "published_at": pa.array([int(NOON * 1e6) + n for n in numbers]).cast(MESSAGES.field("published_at").type),
    }
    return spark.createDataFrame(pa.table(columns, schema=MESSAGES), spark_schema("messages")).coalesce(1)


STEPS = {
    "before data files": (files, "write", False),
    "after data files, before any commit": (files, "write", True),
    "between the commits of quarantine and table": (open_table, "commit", True),
    "after the commits, before the ledger": (Lake, "record", False),
    "after all, before Spark's checkpoint": (Lake, "record", True),
}


def _kill_at(patch: pytest.MonkeyPatch, run: ArchiveRun, step: str) -> None:
    place, name, after = STEPS[step]
    target = type(run.tables.quarantine) if place is open_table else place
    real: Callable[..., Any] = getattr(target, name)

    def call(*arguments: Any, **more: Any) -> Any:
        if after:
            real(*arguments, **more)
        raise Killed

    patch.setattr(target, name, call)
