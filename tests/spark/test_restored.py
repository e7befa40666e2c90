"""A journal restored from a backup at another broker: streams continue where they stopped, and losses are reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from penstock.journal.backup import restore_backup
from support.queries import once, written
from support.sparks import SparkBroker
from support.web import Api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_continues_at_a_restored_broker(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    token = tmp_path / "admin-token"
    first = new_broker("first", http="127.0.0.1:0", admin_token_file=str(token))
    first.publish("q", "a", "b")
    once(first.stream(spark, queue="q"), tmp_path)
    first.publish("q", "c")
    api = Api(first.addresses["http"], token.read_text().strip())
    backup = api.job(api.do("POST", "backups", {"name": "one"}))["detail"]
    first.publish("q", *(f"lost {number}" for number in range(20)))
    once(first.stream(spark, queue="q"), tmp_path, "ahead")
    first.stop()

    restore_backup(backup, str(tmp_path / "second" / "data"))
    second = new_broker("second")
    second.publish("q", "d")
    once(second.stream(spark, queue="q"), tmp_path)
    assert written(spark, tmp_path) == [b"a", b"b", b"c", b"d"]
    second.publish("q", *(f"new {number}" for number in range(40)))
    with pytest.raises(StreamingQueryException, match=r"positions \d+ to \d+ are lost: .*a restore has"):
        once(second.stream(spark, queue="q"), tmp_path, "ahead")
    once(second.stream(spark, queue="q", failOnDataLoss="false"), tmp_path, "ahead")
    rows = written(spark, tmp_path, "ahead")
    assert rows == [
        *(b"a", b"b", b"c"),
        *(b"lost %d" % number for number in range(20)),
        b"d",
        *(b"new %d" % number for number in range(40)),
    ]
