"""A journal of an older format version, gone on with and read by Spark: old and new rows in one table."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from journals.make import WAITING
from penstock.client import connect
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOURNALS = Path(__file__).parents[1] / "journals"


@pytest.mark.parametrize("version", [1])
def test_old_and_new_rows(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path, version: int
) -> None:
    shutil.copytree(JOURNALS / f"version-{version}", tmp_path / "old" / "data")
    # Its times are fixed, and long ago: nothing of it may be trimmed before it is read.
    broker = new_broker("old", journal={"retention_seconds": 10**9})
    with connect(broker.url("kokaq", "/default/jobs")) as client:
        client.publish(b"new", source_info="billing")
    rows = broker.read(spark).orderBy("position").collect()
    told = {bytes(row.payload): row.source_info for row in rows}
    assert told.keys() == {body for _, body, _ in WAITING} | {b"rejected", b"acknowledged", b"new"}
    assert {body: text for body, text in told.items() if text is not None} == {b"new": "billing"}
    live = broker.read(spark, view="live", queue="jobs").orderBy("position").collect()
    states = {bytes(row.payload): (row.state, row.source_info) for row in live}
    assert states[b"rejected"] == ("dead", None)
    assert states[b"new"] == ("ready", "billing")
    assert broker.read(spark, view="events").where("kind = 'acknowledged'").count() == 1
