"""Streaming reads of a real broker."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from support.brokers import wait_for
from support.queries import batches, once, running, start, written
from support.sparks import FORGETFUL, SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def test_available_now_continues_where_it_stopped(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path
) -> None:
    broker.publish(queue, "a", "b")
    stream = broker.stream(spark, queue=queue)
    once(stream, tmp_path)
    assert written(spark, tmp_path) == [b"a", b"b"]
    broker.publish(queue, "c")
    once(stream, tmp_path)
    assert written(spark, tmp_path) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("limit", [{"maxMessagesPerTrigger": 4}, {"maxBytesPerTrigger": 40}])
def test_limits(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path, limit: dict[str, int]) -> None:
    broker.publish(queue, *(f"{n:010}" for n in range(10)))
    query = once(broker.stream(spark, queue=queue, **limit), tmp_path)
    assert batches(query) == [4, 4, 2]
    assert len(written(spark, tmp_path)) == 10


def test_both_limits(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path) -> None:
    broker.publish(queue, *["x" * 10] * 4, "y" * 1000, "z")
    stream = broker.stream(spark, queue=queue, maxMessagesPerTrigger=3, maxBytesPerTrigger=100)
    assert batches(once(stream, tmp_path)) == [3, 1, 1, 1]


def test_live_traffic_new_queues_and_lag(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path) -> None:
    broker.publish(f"{queue}-a", "1")
    stream = broker.stream(spark, queuePattern=f"default/{queue}-*", readerName=f"reader-{queue}", pinRetention="true")
    with running(start(stream, tmp_path)) as query:
        wait_for(lambda: written(spark, tmp_path) == [b"1"])
        broker.publish(f"not-{queue}", "no")
        broker.publish(f"{queue}-b", "2")
        wait_for(lambda: written(spark, tmp_path) == [b"1", b"2"])
        wait_for(lambda: "lagMessages" in str(query.lastProgress and query.lastProgress.sources[0].latestOffset))
    reader = next(each for each in broker.readers() if each.reader == f"reader-{queue}")
    assert (reader.view, reader.where, reader.pin) == ("messages", f"default/{queue}-*", True)


def test_a_quiet_queue_makes_no_batches(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path) -> None:
    broker.publish(queue, "1")
    with running(start(broker.stream(spark, queue=queue), tmp_path)) as query:
        wait_for(lambda: written(spark, tmp_path) == [b"1"])
        done = batch(query)
        for n in range(10):
            broker.publish(f"busy-{queue}", str(n))
            time.sleep(0.05)
        broker.publish(queue, "2")
        wait_for(lambda: written(spark, tmp_path) == [b"1", b"2"])
        assert batch(query) <= done + 2


def batch(query: StreamingQuery) -> int:
    """The number of the last batch. Its files exist shortly before Spark reports it."""
    wait_for(lambda: query.lastProgress is not None)
    assert query.lastProgress is not None
    return query.lastProgress.batchId


def test_starting_places(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path) -> None:
    broker.publish(queue, "a", "b")
    rows = broker.read(spark, queue=queue).orderBy("position").collect()
    once(broker.stream(spark, queue=queue, startingPosition=rows[1].position), tmp_path, "number")
    assert written(spark, tmp_path, "number") == [b"b"]
    latest = broker.stream(spark, queue=queue, startingPosition="latest")
    once(latest, tmp_path, "latest")
    assert written(spark, tmp_path, "latest") == []
    broker.publish(queue, "c")
    once(latest, tmp_path, "latest")
    assert written(spark, tmp_path, "latest") == [b"c"]


def test_events_as_a_stream(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path) -> None:
    broker.publish(queue, "a")
    stream = broker.stream(spark, queue=queue, view="events", columns="kind,payload_size,position")
    once(stream, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("position").collect()
    assert [(row.kind, row.payload_size) for row in rows] == [("queue_created", None), ("published", 1)]


def test_the_broker_restarts(spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    broker = new_broker()
    broker.publish("jobs", "a")
    with running(start(broker.stream(spark, queue="jobs"), tmp_path)) as query:
        wait_for(lambda: written(spark, tmp_path) == [b"a"])
        broker.kill()
        time.sleep(0.5)
        broker.start()
        broker.publish("jobs", "b")
        wait_for(lambda: written(spark, tmp_path) == [b"a", b"b"])
        assert query.exception() is None


def test_a_broker_that_stays_away(spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    broker = new_broker()
    broker.publish("jobs", "a")
    with running(start(broker.stream(spark, queue="jobs", patience="1s"), tmp_path)) as query:
        wait_for(lambda: written(spark, tmp_path) == [b"a"])
        broker.kill()
        with pytest.raises(StreamingQueryException, match=r"no penstock broker answers at grpc://.*Waited for \d+ s"):
            query.awaitTermination(60)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_trimmed(spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path, fail: str) -> None:
    broker = new_broker(journal=FORGETFUL)
    broker.publish("jobs", "a")
    stream = broker.stream(spark, queue="jobs", failOnDataLoss=fail)
    once(stream, tmp_path)
    broker.publish_until_trimmed("jobs", broker.status().latest + 1)
    if fail == "true":
        with pytest.raises(StreamingQueryException, match=r"the history begins at position .*failOnDataLoss=false"):
            once(stream, tmp_path)
        return
    once(stream, tmp_path)
    found = written(spark, tmp_path)
    assert found[0] == b"a"
    assert len(found) - 1 == broker.read(spark, queue="jobs").count()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_replaced(spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path, fail: str) -> None:
    broker = new_broker()
    broker.publish("jobs", "a", "b", "c")
    stream = broker.stream(spark, queue="jobs", failOnDataLoss=fail)
    once(stream, tmp_path)
    broker.stop()
    shutil.rmtree(broker.folder / "data")
    broker.start()
    broker.publish("jobs", "d")
    if fail == "true":
        with pytest.raises(StreamingQueryException, match="the broker's data was replaced"):
            once(stream, tmp_path)
        return
    once(stream, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(bytes(row.payload) for row in rows) == [b"a", b"b", b"c", b"d"]


def test_restored_from_a_backup(spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    broker = new_broker()
    broker.publish("jobs", "a")
    broker.stop()
    shutil.copytree(broker.folder / "data", tmp_path / "backup")
    broker.start()
    broker.publish("jobs", *"bcdefghijklm")
    stream = broker.stream(spark, queue="jobs")
    once(stream, tmp_path)
    broker.stop()
    shutil.rmtree(broker.folder / "data")
    shutil.copytree(tmp_path / "backup", broker.folder / "data")
    broker.start()
    with pytest.raises(
        StreamingQueryException, match=r"the journal ends at position \d+, and was read up to \d+ before"
    ):
        once(stream, tmp_path)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_queue_that_is_deleted(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path, fail: str
) -> None:
    broker.publish(queue, "a")
    stream = broker.stream(spark, queue=queue, failOnDataLoss=fail)
    once(stream, tmp_path)
    broker.publish(queue, "b")
    broker.delete(queue)
    if fail == "true":
        with pytest.raises(StreamingQueryException, match=r"there is no queue .*failOnDataLoss=false"):
            once(stream, tmp_path)
        return
    broker.publish(queue, "c")
    once(stream, tmp_path)
    assert written(spark, tmp_path) == [b"a", b"b", b"c"]
