"""Spark as a consumer of a real broker's queues."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock.spark.consume import ConsumingReader
from penstock.spark.options import Use, parse
from penstock.spark.schemas import spark_schema
from support.brokers import wait_for
from support.queries import batches, once, running, start, written
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def consume(spark: SparkSession, broker: SparkBroker, queue: str, **options: object) -> DataFrame:
    return broker.stream(spark, queue=queue, mode="consume", readerName=f"reader-{queue}", **options)


def states(spark: SparkSession, broker: SparkBroker, queue: str) -> list[str]:
    return [row.state for row in broker.read(spark, queue=queue, view="live", columns="state").collect()]


def test_consumed_messages_are_acknowledged(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path
) -> None:
    broker.publish(queue, *(str(n) for n in range(10)))
    query = once(consume(spark, broker, queue, maxMessagesPerTrigger=4, minPartitions=2), tmp_path)
    assert batches(query) == [4, 4, 2]
    assert written(spark, tmp_path) == [str(n).encode() for n in range(10)]
    assert states(spark, broker, queue) == []
    kinds = [row.kind for row in broker.read(spark, queue=queue, view="events", columns="kind").collect()]
    assert kinds.count("acknowledged") == 10


def test_leased_messages_are_not_delivered_to_others(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path
) -> None:
    broker.publish(queue, "a", "b", "c")

    def fail(batch: DataFrame, number: int) -> None:
        assert states(spark, broker, queue) == ["out", "out", "ready"]
        assert broker.take(queue) == [b"c"]
        raise RuntimeError("as it should")

    stream = consume(spark, broker, queue, maxMessagesPerTrigger=2)
    checkpoint = str(tmp_path / "out-checkpoint")
    failing = stream.writeStream.foreachBatch(fail).option("checkpointLocation", checkpoint).start()
    with pytest.raises(StreamingQueryException, match="as it should"):
        failing.awaitTermination(60)
    once(stream, tmp_path)
    assert written(spark, tmp_path) == [b"a", b"b"]
    assert states(spark, broker, queue) == []


def test_a_new_checkpoint_begins_with_the_leased_messages(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path
) -> None:
    broker.publish(queue, "a", "b")

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("as it should")

    stream = consume(spark, broker, queue, maxMessagesPerTrigger=2)
    failing = stream.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "lost")).start()
    with pytest.raises(StreamingQueryException, match="as it should"):
        failing.awaitTermination(60)
    broker.publish(queue, "c")
    assert states(spark, broker, queue) == ["out", "out", "ready"]
    once(stream, tmp_path)
    assert written(spark, tmp_path) == [b"a", b"b", b"c"]
    assert states(spark, broker, queue) == []


def test_live_traffic_and_a_broker_that_restarts(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    broker = new_broker()
    broker.publish("jobs", "a")
    with running(start(consume(spark, broker, "jobs"), tmp_path)) as query:
        wait_for(lambda: written(spark, tmp_path) == [b"a"])
        broker.kill()
        broker.start()
        broker.publish("jobs", "b")
        wait_for(lambda: written(spark, tmp_path) == [b"a", b"b"])
        wait_for(lambda: states(spark, broker, "jobs") == [])
        assert query.exception() is None


def test_waiting_messages_are_reported(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path) -> None:
    broker.publish(queue, *"abcde")
    release = threading.Event()

    def hold(batch: DataFrame, number: int) -> None:
        assert release.wait(60)

    stream = consume(spark, broker, queue, maxMessagesPerTrigger=2)
    writer = stream.writeStream.foreachBatch(hold).option("checkpointLocation", str(tmp_path / "held"))

    def seen() -> tuple[str, str, int, int]:
        found = [each for each in broker.readers() if each.reader == f"reader-{queue}"]
        return next(((each.view, each.where, each.lag_rows, each.leased) for each in found), ("", "", 0, 0))

    with running(writer.start()) as query:
        wait_for(lambda: seen() == ("leased", f"default/{queue}", 3, 2))
        release.set()
        wait_for(lambda: states(spark, broker, queue) == [])
        wait_for(lambda: seen() == ("leased", f"default/{queue}", 0, 0))
        reports = [json.loads(progress.sources[0].latestOffset) for progress in query.recentProgress]
        assert {each["lagMessages"] for each in reports if "lagMessages" in each} <= {0, 1, 3, 5}
        assert any("lagSeconds" in each for each in reports)


def test_the_last_acknowledgement_of_a_query_that_ends(broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, *"abc")
    options = {"endpoint": broker.endpoint, "queue": queue, "mode": "consume", "readerName": f"reader-{queue}"}
    reader = ConsumingReader(parse(options, Use.STREAMS), [], spark_schema("leased"))
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    while (stop := reader.latestOffset(start, ReadMaxRows(1))) != start:
        start = stop
    reader.stop()
    [seen] = [each for each in broker.readers() if each.reader == f"reader-{queue}"]
    assert (seen.position, seen.lag_rows, seen.leased) == (start["position"], 0, 0)


def test_a_second_query_of_the_same_name_takes_over(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path
) -> None:
    broker.publish(queue, "a")
    stream = consume(spark, broker, queue)
    with running(start(stream, tmp_path, "first")) as first:
        wait_for(lambda: written(spark, tmp_path, "first") == [b"a"])
        wait_for(lambda: states(spark, broker, queue) == [])
        with running(start(stream, tmp_path, "second")):
            with pytest.raises(StreamingQueryException, match="another"):
                first.awaitTermination(60)
            broker.publish(queue, "b")
            wait_for(lambda: written(spark, tmp_path, "second") == [b"b"])


def test_the_checkpoint_of_another_mode(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path) -> None:
    broker.publish(queue, "a")
    once(broker.stream(spark, queue=queue), tmp_path)
    with pytest.raises(
        StreamingQueryException, match="the checkpoint was written with mode=read, and this query has mode=con"
    ):
        once(consume(spark, broker, queue), tmp_path)


def test_messages_of_an_expired_lease_are_requeued(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path
) -> None:
    broker.publish(queue, "a")

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("as it should")

    stream = consume(spark, broker, queue, leaseTimeout="1s")
    checkpoint = str(tmp_path / "out-checkpoint")
    failing = stream.writeStream.foreachBatch(fail).option("checkpointLocation", checkpoint).start()
    with pytest.raises(StreamingQueryException, match="as it should"):
        failing.awaitTermination(60)
    wait_for(lambda: states(spark, broker, queue) == ["ready"])
    once(consume(spark, broker, queue), tmp_path)  # one second may be too short on a busy machine
    assert written(spark, tmp_path) == [b"a"]
    assert states(spark, broker, queue) == []
