"""Batch reads of a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan
from pyspark.sql.types import BinaryType, LongType, StructType

from penstock.client import connect
from penstock.spark import schemas
from penstock.spark.batch import BatchReader, FilteringReader
from penstock.spark.options import Use, parse
from support.sparks import FORGETFUL, SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def payloads(found: DataFrame) -> list[bytes]:
    return [bytes(row.payload) for row in found.orderBy("position").select("payload").collect()]


def test_messages(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, "a", "b", "c")
    found = broker.read(spark, queue=queue)
    assert found.schema == schemas.spark_schema("messages")
    rows = found.orderBy("position").collect()
    assert [bytes(row.payload) for row in rows] == [b"a", b"b", b"c"]
    assert {(row.namespace, row.queue, row.protocol) for row in rows} == {("default", queue, "kokaq")}
    assert len({bytes(row.id) for row in rows}) == 3


def test_events(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, "a", "b")
    with connect(broker.url("kokaq", f"/default/{queue}")) as client:
        message = client.receive(timeout=5)
        assert message is not None
        message.ack()
    found = broker.read(spark, queue=queue, view="events")
    assert found.schema == schemas.spark_schema("events")
    kinds = [row.kind for row in found.orderBy("position").collect()]
    assert kinds == ["queue_created", "published", "published", "acknowledged"]


def test_live(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, "a", "b")
    with connect(broker.url("kokaq", f"/default/{queue}")) as client:
        assert client.receive(timeout=5) is not None
        found = broker.read(spark, queue=queue, view="live")
        assert found.schema == schemas.spark_schema("live")
        rows = found.orderBy("position").collect()
    assert [(bytes(row.payload), row.state, row.reason) for row in rows] == [(b"a", "out", None), (b"b", "ready", None)]
    assert broker.read(spark, queue=queue, view="live", columns="state").count() == 2
    assert broker.read(spark, view="live").filter("queue = 'missing'").count() == 0


def test_patterns_and_columns(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(f"{queue}-a", "1")
    broker.publish(f"{queue}-b", "2")
    broker.publish(f"other-{queue}", "3")
    found = broker.read(spark, queuePattern=f"default/{queue}-*", columns="queue,payload")
    assert found.columns == ["queue", "payload"]
    assert {(row.queue, bytes(row.payload)) for row in found.collect()} == {(f"{queue}-a", b"1"), (f"{queue}-b", b"2")}


def test_a_schema_chooses_columns(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, "1", "2")
    wanted = StructType().add("payload", BinaryType()).add("position", LongType())
    reader = spark.read.format("penstock").schema(wanted).option("endpoint", broker.endpoint).option("queue", queue)
    assert [bytes(row.payload) for row in reader.load().collect()] == [b"1", b"2"]


def test_ranges_of_positions_and_times(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    for text in "abcd":
        broker.publish(queue, text)
        time.sleep(0.002)
    rows = broker.read(spark, queue=queue).orderBy("position").collect()
    second, third = rows[1], rows[2]
    by_number = broker.read(spark, queue=queue, startingPosition=second.position, endingPosition=third.position)
    assert payloads(by_number) == [b"b"]
    times = [row.published_at.astimezone(UTC).isoformat() for row in rows]
    assert payloads(broker.read(spark, queue=queue, startingTimestamp=times[1], endingTimestamp=times[3])) == [
        b"b",
        b"c",
    ]
    assert payloads(broker.read(spark, queue=queue, startingPosition="latest")) == []
    later = broker.read(spark, queue=queue, endingPosition=10**9, startingTimestamp=times[3])
    assert payloads(later) == [b"d"]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert payloads(broker.read(spark, queue=queue, startingTimestamp=tomorrow)) == []


def test_parts(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, *(f"{n:05}" * 100 for n in range(2000)))
    found = broker.read(spark, queue=queue, minPartitions=4)
    assert found.rdd.getNumPartitions() >= 4
    assert [int(each[:5]) for each in payloads(found)] == list(range(2000))


def test_filters(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, *"abcdef")
    broker.publish(f"{queue}-other", *"xyz")
    whole = broker.read(spark, queuePattern=f"*/{queue}*", pushFilters="true")
    rows = whole.filter(f"queue = '{queue}'").orderBy("position").collect()
    assert [bytes(row.payload) for row in rows] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    third = rows[2].position
    some = whole.filter(
        f"namespace = 'default' and queue = '{queue}' and position > {third} and position < {third + 3}"
    )
    assert payloads(some) == [b"d", b"e"]
    at = rows[0].published_at
    assert whole.filter(whole.published_at >= at).count() == 9
    assert whole.filter(whole.published_at < at).count() == 0
    assert whole.filter("queue = 'missing'").count() == 0
    assert payloads(whole.filter(f"position in ({third}, {third + 1})")) == [b"c", b"d"]
    assert payloads(whole.filter("payload = X'78'")) == [b"x"]


def test_filters_are_pushed_only_in_a_session_that_allows_it(
    spark: SparkSession, broker: SparkBroker, queue: str
) -> None:
    broker.publish(queue, *"abc")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        found = broker.read(spark, queue=queue, pushFilters="true").filter("position > 0")
        with pytest.raises(PySparkException, match=r"'spark\.sql\.python\.filterPushdown\.enabled'"):
            found.count()
        assert broker.read(spark, queue=queue).filter("position > 0").count() == 3
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_table_can_be_used_twice(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    """Spark mixes up filters of a table that accepts them, so ours accepts them only with an option."""
    broker.publish(f"{queue}-a", *"123")
    broker.publish(f"{queue}-b", *"12345")
    whole = broker.read(spark, queuePattern=f"*/{queue}-*")
    one, other = whole.filter(f"queue = '{queue}-a'"), whole.filter(f"queue = '{queue}-b'")
    assert (one.union(other).count(), one.count(), whole.count()) == (8, 3, 8)
    assert one.crossJoin(whole.selectExpr("position as other")).count() == 24


def test_filters_narrow_what_is_read(broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, *"abcdef")
    settings = parse({"endpoint": broker.endpoint, "queue": queue}, Use.BATCH)
    whole = schemas.spark_schema("messages")
    every = BatchReader(settings, list(whole.names), whole)
    rows = [row for part in every.partitions() for batch in every.read(part) for row in batch.to_pylist()]
    reader = FilteringReader(settings, list(whole.names), whole)
    third = rows[2]["position"]
    filters = [GreaterThanOrEqual(("position",), third), LessThan(("position",), third + 2), EqualTo(("queue",), queue)]
    assert list(reader.pushFilters([*filters, timed := GreaterThan(("published_at",), rows[0]["published_at"])])) == [
        timed
    ]
    parts = reader.partitions()
    assert [(part.read.start, part.read.stop) for part in parts] == [(third, third + 2)]  # type: ignore[attr-defined]
    found = [row["payload"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [b"c", b"d"]


def test_plans_contain_no_secrets(
    spark: SparkSession, broker: SparkBroker, queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.publish(queue, "a")
    found = broker.read(spark, queue=queue, token="s3cret-token")
    found.explain("extended")
    assert "s3cret-token" not in capsys.readouterr().out
    assert "s3cret-token" not in found._jdf.queryExecution().toString()


def test_lost_positions_are_reported(spark: SparkSession, new_broker: Callable[..., SparkBroker]) -> None:
    broker = new_broker(journal=FORGETFUL)
    broker.publish_until_trimmed("jobs")
    with pytest.raises(Exception, match=r"the history begins at position \d+ now.*failOnDataLoss=false"):
        broker.read(spark, queue="jobs", startingPosition=1).count()
    left = broker.read(spark, queue="jobs", startingPosition=1, failOnDataLoss="false").count()
    assert left > 0
    assert broker.read(spark, queue="jobs").count() == left


def test_an_ephemeral_broker(spark: SparkSession, tmp_path: Path) -> None:
    with SparkBroker(tmp_path, ephemeral=True) as broker:
        broker.publish("jobs", "first", "second")
        assert payloads(broker.read(spark, queue="jobs")) == [b"first", b"second"]
        assert not (tmp_path / "data").exists()
