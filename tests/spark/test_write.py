"""Writes into the queues of a real broker."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.client import connect
from penstock.flight.calls import Write
from penstock.spark import endpoint, writers
from penstock.spark.errors import RowsDiffer, SourceError
from penstock.spark.options import SourceSettings, Use, parse
from penstock.spark.writers import BatchWriter
from support.queries import ended
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def save(found: DataFrame, broker: SparkBroker, **options: Any) -> None:
    found.write.format("penstock").option("endpoint", broker.endpoint).options(**options).mode("append").save()


def contents(spark: SparkSession, broker: SparkBroker, queue: str) -> Counter[bytes]:
    return Counter(bytes(row.payload) for row in broker.read(spark, queue=queue, columns="payload").collect())


def test_batch(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    rows = spark.range(25_000).selectExpr("cast(id as string) as payload").repartition(3)
    save(rows, broker, queue=queue, createQueues="true")
    assert contents(spark, broker, queue) == Counter(str(n).encode() for n in range(25_000))


def test_every_column(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue)
    broker.publish(f"{queue}-b")
    rows = spark.sql(
        f"select X'00ff' as payload, 'default/{queue}' as queue, interval 1 hour as ttl, 7 as priority, "
        f"interval 0 second as delay, 'abc' as correlation_id "
        f"union all select X'01', 'default/{queue}-b', null, null, null, null"
    )
    save(rows, broker)
    first = broker.read(spark, queue=queue).collect()[0]
    assert (bytes(first.payload), int(first.priority), bytes(first.correlation_id)) == (b"\x00\xff", 7, b"abc")
    assert (first.expires_at - first.published_at).total_seconds() == 3600
    second = broker.read(spark, queue=f"{queue}-b").collect()[0]
    assert (bytes(second.payload), second.expires_at) == (b"\x01", None)


def test_a_delay(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    save(spark.sql("select 'x' as payload, 3600.0D as delay"), broker, queue=queue, createQueues="true")
    assert broker.read(spark, queue=queue, view="live").collect()[0].state == "delayed"


@pytest.mark.parametrize(
    ("query", "options", "says"),
    [
        ("select 1 as payload", {"queue": "q"}, "column payload is int, and must be binary or string: cast it"),
        ("select 'x' as body", {"queue": "q"}, "a message has no column body. Columns are payload"),
        ("select 'x' as queue", {"queue": "q"}, "there is no column payload"),
        ("select 'x' as payload", {}, "no queue: give option queue, or a column queue"),
        (
            "select 'x' as payload, 'soon' as delay",
            {"queue": "q"},
            "column delay is string, and must be interval or double",
        ),
        ("select 'x' as payload, 'nowhere/x' as queue", {}, "there is no queue nowhere/x"),
    ],
)
def test_tables_that_cannot_be_written(
    spark: SparkSession, broker: SparkBroker, query: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception, match=says):
        save(spark.sql(query), broker, **options)


def test_nothing_is_overwritten(spark: SparkSession, broker: SparkBroker) -> None:
    writer = spark.sql("select 'x' as payload").write.format("penstock").option("endpoint", broker.endpoint)
    with pytest.raises(Exception, match="a queue cannot be overwritten"):
        writer.option("queue", "q").mode("overwrite").save()


def test_a_named_write_counts_once(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    rows = spark.range(10).selectExpr("cast(id as string) as payload")
    for _ in range(2):
        save(rows, broker, queue=queue, createQueues="true", writerName=f"w-{queue}", epoch=3)
    assert sum(contents(spark, broker, queue).values()) == 10
    save(rows, broker, queue=queue, writerName=f"w-{queue}", epoch=4)
    assert sum(contents(spark, broker, queue).values()) == 20


def test_a_named_write_divided_differently_is_rejected(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue)
    rows = spark.range(30).selectExpr("cast(id as string) as payload")
    name = {"queue": queue, "writerName": f"w-{queue}", "epoch": 1}
    save(rows.coalesce(1).repartition(3), broker, **name)
    save(rows.coalesce(1).repartition(3), broker, **name)
    for other in (rows.coalesce(1).repartition(2), rows.coalesce(1).repartition(4), rows.coalesce(1)):
        with pytest.raises(Exception, match=r"differ from those accepted before.*checkRepeats=false"):
            save(other, broker, **name)
    save(rows.coalesce(1), broker, **name, checkRepeats="false")


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ([["a", "b"], ["c", "d"]], [["a"], ["b", "c", "d"]], False),
        ([["a", "b"], ["c"]], [["a", "b", "c"], []], False),
        ([["a"], ["b"]], [["a"], ["x"]], False),
        ([["a", "b"], ["c"]], [["a", "b"]], False),
        ([["a", "b"]], [["a", "b"], ["c"]], True),
        ([["a", "b"]], [[]], True),
    ],
    ids=["moved", "emptied", "changed", "fewer", "the rest", "nothing"],
)
def test_a_matching_retry_counts_as_done(
    broker: SparkBroker, queue: str, first: list[list[str]], second: list[list[str]], fits: bool
) -> None:
    broker.publish(queue)
    options = {"endpoint": broker.endpoint, "queue": queue, "writerName": f"w-{queue}", "epoch": "1"}
    settings = parse(options, Use.WRITE)
    for partition, rows in enumerate(first):
        task(settings, partition, rows)
    writer = BatchWriter(settings, StructType([StructField("payload", StringType())]), overwrite=False)
    with (
        nullcontext()
        if fits
        else pytest.raises(RowsDiffer, match=r"differ from those accepted before.*checkRepeats=false")
    ):
        writer.commit([task(settings, partition, rows) for partition, rows in enumerate(second)])


def task(settings: SourceSettings, partition: int, rows: list[str]) -> writers.TaskWritten:
    name = Write(queue=settings.queue, writer=settings.writer, epoch=1, partition=partition)
    return writers.write(settings, name, iter([pa.record_batch({"payload": pa.array(rows, pa.string())})]))


def test_the_order_of_rows_in_a_chunk_does_not_matter(broker: SparkBroker, queue: str) -> None:
    broker.publish(queue)
    options = {"endpoint": broker.endpoint, "queue": queue, "writerName": f"w-{queue}", "epoch": "1"}
    settings = parse(options, Use.WRITE)
    assert [task(settings, 0, rows).repeated for rows in (["a", "b"], ["b", "a"])] == [0, 1]
    with pytest.raises(RowsDiffer):
        task(settings, 0, ["b", "b"])


def copy(spark: SparkSession, broker: SparkBroker, source: str, target: str, folder: Path, **options: Any) -> None:
    """Copy all available messages of a queue with a stream."""
    stream = broker.stream(spark, queue=source, columns="payload", maxMessagesPerTrigger=4)
    writer = stream.writeStream.format("penstock").option("endpoint", broker.endpoint).option("queue", target)
    writer = writer.option("createQueues", "true").option("checkpointLocation", str(folder / "checkpoint"))
    ended(writer.options(**options).trigger(availableNow=True).start())


def test_a_stream_that_lost_its_last_batch_adds_no_duplicates(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path
) -> None:
    broker.publish(queue, *(str(n) for n in range(10)))
    copy(spark, broker, queue, f"{queue}-copy", tmp_path)
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    broker.publish(queue, "more")
    copy(spark, broker, queue, f"{queue}-copy", tmp_path)
    assert contents(spark, broker, f"{queue}-copy") == Counter([*(b"%d" % n for n in range(10)), b"more"])


def test_a_task_that_runs_after_the_end_adds_nothing(broker: SparkBroker, queue: str) -> None:
    broker.publish(queue)
    settings = parse({"endpoint": broker.endpoint, "queue": queue}, Use.WRITE)
    writer = BatchWriter(settings, StructType([StructField("payload", StringType())]), overwrite=False)
    rows = [pa.record_batch({"payload": ["x"]})]
    name = Write(queue=settings.queue, writer=writer.name, begun=True)
    assert writers.write(settings, name, iter(rows)).rows == 1
    writer.commit([])
    for partition in (0, 1):
        with pytest.raises(SourceError, match="has ended"):
            writers.write(settings, msgspec.structs.replace(name, partition=partition), iter(rows))
    with connect(broker.url("kokaq", f"/default/{queue}")) as client:
        assert [client.pop() is not None for _ in range(2)] == [True, False]


def test_a_write_that_adds_nothing_is_logged(broker: SparkBroker, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    broker.publish(queue)
    options = {"endpoint": broker.endpoint, "queue": queue, "writerName": f"w-{queue}"}
    for epoch, words in ((1, ""), (2, ""), (1, "count as written: that epoch, or a later one"), (3, "")):
        caplog.clear()
        settings = parse({**options, "epoch": str(epoch)}, Use.WRITE)
        writer = BatchWriter(settings, StructType([StructField("payload", StringType())]), overwrite=False)
        name = Write(queue=settings.queue, writer=writer.name, epoch=epoch)
        done = writers.write(settings, name, iter([pa.record_batch({"payload": ["x"]})]))
        writer.commit([done, writers.TaskWritten(writer.name, 1)])
        assert bool(caplog.text) == bool(words)
        assert words in caplog.text


def test_writes_wait_for_a_full_queue(spark: SparkSession, new_broker: Callable[..., SparkBroker]) -> None:
    broker = new_broker(queues={"default/small": {"max_depth": 5}})
    rows = spark.range(3).selectExpr("cast(id as string) as payload").coalesce(1)
    save(rows, broker, queue="small")
    with pytest.raises(Exception, match=r"(?s)full.*Waited for \d+ s"):
        save(rows, broker, queue="small", patience="1s")
    room = threading.Timer(1.0, lambda: broker.take("small"))
    room.start()
    save(rows, broker, queue="small", patience="30s")
    room.join()
    assert sum(contents(spark, broker, "small").values()) == 6


def test_a_broker_that_has_answered_may_take_its_time_with_the_first_chunk(
    broker: SparkBroker, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.publish(queue, "x")
    reach = writers._reach

    def reach_and_halt(settings: SourceSettings) -> None:
        reach(settings)
        monkeypatch.setattr(endpoint, "FIRST_PATIENCE", 0.2)
        monkeypatch.setattr(endpoint, "FIRST_ANSWER_SECONDS", 0.2)
        os.kill(broker.pid, signal.SIGSTOP)
        goes_on.start()

    goes_on = threading.Timer(1.0, lambda: os.kill(broker.pid, signal.SIGCONT))
    monkeypatch.setattr(writers, "_reach", reach_and_halt)
    settings = parse({"endpoint": broker.endpoint, "queue": queue}, Use.WRITE)
    try:
        BatchWriter(settings, StructType([StructField("payload", StringType())]), overwrite=False).abort([])
    finally:
        if goes_on.ident is not None:
            goes_on.join()


def test_a_busy_broker_may_take_its_time_with_the_very_first_answer(
    broker: SparkBroker, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.publish(queue, "x")
    monkeypatch.setattr(endpoint, "FIRST_PATIENCE", 0.2)
    os.kill(broker.pid, signal.SIGSTOP)
    goes_on = threading.Timer(1.0, lambda: os.kill(broker.pid, signal.SIGCONT))
    goes_on.start()
    try:
        writers._reach(parse({"endpoint": broker.endpoint, "queue": queue}, Use.WRITE))
    finally:
        goes_on.join()


def test_the_broker_restarts_during_a_write(spark: SparkSession, new_broker: Callable[..., SparkBroker]) -> None:
    broker = new_broker()
    broker.publish("jobs")

    def restart() -> None:
        broker.kill()
        time.sleep(0.5)
        broker.start()

    restarting = threading.Timer(0.5, restart)
    restarting.start()
    rows = spark.range(200_000).selectExpr("repeat(cast(id as string), 20) as payload").coalesce(1)
    save(rows, broker, queue="jobs")
    restarting.join()
    assert broker.read(spark, queue="jobs", columns="position").count() == 200_000
