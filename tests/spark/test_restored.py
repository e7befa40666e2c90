"""A journal restored from a backup, at another broker: streams go on where they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.journal.backup import restore_backup
from support.queries import once, written
from support.sparks import SparkBroker
from support.web import Api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_goes_on_at_a_restored_broker(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    token = tmp_path / "admin-token"
    first = new_broker("first", http="127.0.0.1:0", admin_token_file=str(token))
    first.publish("q", "a", "b")
    once(first.stream(spark, queue="q"), tmp_path)
    first.publish("q", "c")
    api = Api(first.addresses["http"], token.read_text().strip())
    backup = api.job(api.do("POST", "backups", {"name": "one"}))["detail"]
    first.publish("q", "after the backup")
    first.stop()

    restore_backup(backup, str(tmp_path / "second" / "data"))
    second = new_broker("second")
    second.publish("q", "d")
    once(second.stream(spark, queue="q"), tmp_path)
    assert written(spark, tmp_path) == [b"a", b"b", b"c", b"d"]
