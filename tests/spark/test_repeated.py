"""A repeated batch has the same parts whatever has changed since it was planned, and each row once."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.flight.calls import ForgetReader, Read
from penstock.spark.consume import ConsumingReader
from penstock.spark.errors import DataLoss, SourceError
from penstock.spark.executor import ReadPart
from penstock.spark.options import Use, parse
from penstock.spark.reader import StreamReaderBase
from penstock.spark.schemas import spark_schema
from penstock.spark.stream import StreamReader
from support.brokers import wait_for
from support.queries import ended
from support.sparks import FORGETFUL, SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT = ReadMaxRows(10**9)


@pytest.fixture
def readers() -> Iterator[list[StreamReaderBase]]:
    """Readers that are stopped at the end."""
    found: list[StreamReaderBase] = []
    yield found
    for reader in found:
        reader.stop()


@pytest.fixture
def reader(broker: SparkBroker, queue: str, readers: list[StreamReaderBase]) -> Callable[..., StreamReaderBase]:
    """Creates readers, as successive drivers would."""

    def make(on: SparkBroker = broker, **options: Any) -> StreamReaderBase:
        known = {"endpoint": on.endpoint, "queue": queue, **options}
        consuming = known.get("mode") == "consume"
        settings = parse({name: str(value) for name, value in known.items()}, Use.STREAMS)
        kind = ConsumingReader if consuming else StreamReader
        readers.append(kind(settings, ["position", "payload"], spark_schema("leased" if consuming else "messages")))
        return readers[-1]

    return make


def tickets(reader: StreamReaderBase, start: dict[str, Any], end: dict[str, Any]) -> list[Read]:
    """The parts, planned after the offsets are in Spark's log."""
    parts = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    assert all(isinstance(part, ReadPart) for part in parts)
    return [part.read for part in parts if isinstance(part, ReadPart)]


def payloads(broker: SparkBroker, parts: list[Read]) -> list[list[bytes]]:
    """The payloads of each part."""
    with broker.flight() as flight:
        return [[row["payload"] for batch in flight.get(part) for row in batch.to_pylist()] for part in parts]


def next_end(reader: StreamReaderBase, start: dict[str, Any]) -> dict[str, Any]:
    """The end of the batch that begins at ``start``, once the reader knows of new rows."""
    ends: list[dict[str, Any]] = []
    wait_for(lambda: ends.append(reader.latestOffset(start, ReadAllAvailable())) or ends[-1] != start)  # type: ignore[func-returns-value]
    return ends[-1]


def test_the_parts_are_unchanged(broker: SparkBroker, queue: str, reader: Callable[..., StreamReaderBase]) -> None:
    broker.publish(queue, *(f"{n:05}" + "x" * 200 for n in range(500)))
    first = reader(minPartitions=2)
    start = first.initialOffset()
    end = next_end(first, start)
    planned = tickets(first, start, end)
    assert len(planned) == 2
    for size in (1, 10, 100, 5_000):
        broker.publish(queue, *["y" * size] * 50)
        for wanted in (1, 2, 3, 7):
            assert tickets(reader(minPartitions=wanted), start, end) == planned
    assert [row for part in payloads(broker, planned) for row in part] == [
        (f"{n:05}" + "x" * 200).encode() for n in range(500)
    ]


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_the_first_batch_begins_at_the_same_position(
    broker: SparkBroker, queue: str, reader: Callable[..., StreamReaderBase], begin: str
) -> None:
    """Spark does not store the start position, but asks for it again."""
    broker.publish(queue)
    first = reader(startingPosition=begin, minPartitions=2)
    start = first.initialOffset()
    broker.publish(queue, *"abcd")
    end = next_end(first, start)
    planned = tickets(first, start, end)
    broker.publish(queue, *"efgh")
    again = reader(startingPosition=begin)
    assert tickets(again, again.initialOffset(), end) == planned
    assert sorted(chain(*payloads(broker, planned))) == [b"a", b"b", b"c", b"d"]


def test_an_empty_batch_has_no_parts(broker: SparkBroker, queue: str, reader: Callable[..., StreamReaderBase]) -> None:
    """A source without new rows, in a query with several sources."""
    broker.publish(queue, "a")
    one = reader()
    start = one.initialOffset()
    end = next_end(one, start)
    assert one.latestOffset(end, ReadAllAvailable()) == end
    assert tickets(one, end, end) == []
    broker.publish(queue, "b")
    assert tickets(one, reader(startingPosition="latest").initialOffset(), start) == []


def test_lost_positions_shift_nothing(
    new_broker: Callable[..., SparkBroker], queue: str, reader: Callable[..., StreamReaderBase]
) -> None:
    broker = new_broker(journal=FORGETFUL)
    broker.publish(queue, *[b"x" * 10_000] * 12)
    first = reader(broker, minPartitions=4)
    start = first.initialOffset()
    end = next_end(first, start)
    planned = tickets(first, start, end)
    broker.take(queue)
    broker.publish_until_trimmed(queue, planned[2].start)
    with pytest.raises(DataLoss, match=r"the history begins at position .*failOnDataLoss=false"):
        tickets(reader(broker, minPartitions=4), start, end)
    left = tickets(reader(broker, failOnDataLoss="false", minPartitions=9), start, end)
    assert [(part.start, part.stop) for part in left] == [(part.start, part.stop) for part in planned]
    assert payloads(broker, left)[:2] == [[], []]


@pytest.mark.parametrize("change", [{"queue": "other"}, {"view": "events"}, {"mode": "consume", "readerName": "r"}])
def test_a_checkpoint_of_something_else(
    broker: SparkBroker, queue: str, reader: Callable[..., StreamReaderBase], change: dict[str, str]
) -> None:
    broker.publish(queue, "a")
    one = reader()
    start = one.initialOffset()
    end = next_end(one, start)
    other = reader(**change)
    with pytest.raises(SourceError, match=r"the checkpoint (belongs to|was written with) .*, and this query "):
        other.latestOffset(end, ReadAllAvailable())
    with pytest.raises(SourceError, match=r"the checkpoint (belongs to|was written with) .*, and this query "):
        other.partitions(start, end)


def consuming(queue: str, **options: Any) -> dict[str, Any]:
    return {"mode": "consume", "readerName": f"reader-{queue}", **options}


def test_leased_rows_stay_in_their_parts(
    broker: SparkBroker, queue: str, reader: Callable[..., StreamReaderBase]
) -> None:
    broker.publish(queue, *(f"{n:03}" for n in range(100)))
    first = reader(**consuming(queue, minPartitions=2))
    start = first.initialOffset()
    end = first.latestOffset(start, LIMIT)
    planned = payloads(broker, tickets(first, start, end))
    assert list(map(len, planned)) == [50, 50]
    broker.publish(queue, "more")
    for wanted in (1, 3, 7):
        again = reader(**consuming(queue, minPartitions=wanted))
        assert payloads(broker, tickets(again, again.initialOffset(), end)) == planned
        assert again.latestOffset(start, LIMIT)["position"] == end["position"]


def test_leases_that_were_requeued(
    broker: SparkBroker, queue: str, reader: Callable[..., StreamReaderBase], caplog: pytest.LogCaptureFixture
) -> None:
    broker.publish(queue, *"abcd")
    first = reader(**consuming(queue, minPartitions=2))
    start = first.initialOffset()
    end = first.latestOffset(start, LIMIT)
    assert broker.ask(ForgetReader(reader=f"reader-{queue}"), bool)
    assert tickets(reader(**consuming(queue)), start, end) == []
    assert "0 messages are left" in caplog.text


def test_some_leased_messages_are_gone(
    broker: SparkBroker, queue: str, reader: Callable[..., StreamReaderBase], caplog: pytest.LogCaptureFixture
) -> None:
    """The rest is read, each message once."""
    broker.publish(queue, *"abcde")
    first = reader(**consuming(queue))
    start = first.initialOffset()
    end = first.latestOffset(start, LIMIT)
    found = payloads(broker, tickets(reader(**consuming(queue)), start, {**end, "parts": [3, 3, 1]}))
    assert found == [[b"a", b"b", b"c"], [b"d", b"e"]]
    assert "5 messages are left" in caplog.text


def test_lag_is_the_rows_after_the_batch(
    broker: SparkBroker, queue: str, reader: Callable[..., StreamReaderBase]
) -> None:
    broker.publish(queue, *"abcde")
    for options in ({}, consuming(queue)):
        one = reader(**options)
        start, behind = one.initialOffset(), []
        for _ in range(4):
            start = one.latestOffset(start, ReadMaxRows(2))
            behind.append((one.reportLatestOffset() or {})["lagMessages"])
        assert behind == [3, 1, 0, 0]


# In a real Spark

ROWS = 40
Start = Callable[["SparkSession", "DataFrame", SparkBroker, str, Path], "StreamingQuery"]


def to_queue(spark: SparkSession, rows: DataFrame, broker: SparkBroker, queue: str, folder: Path) -> StreamingQuery:
    writer = rows.writeStream.format("penstock").option("endpoint", broker.endpoint).option("queue", queue)
    return writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()


def for_each(spark: SparkSession, rows: DataFrame, broker: SparkBroker, queue: str, folder: Path) -> StreamingQuery:
    def forward(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("penstock").options(endpoint=broker.endpoint, queue=queue, epoch=number)
        writer.option("writerName", f"forward-{queue}").mode("append").save()

    writer = rows.writeStream.foreachBatch(forward).option("checkpointLocation", str(folder))
    return writer.trigger(availableNow=True).start()


def interrupted(rows: DataFrame, go: Path) -> DataFrame:
    """The task that reads the last row fails once the file ``go`` exists."""

    def poison(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if f"{ROWS - 1:03}".encode() in batch.column("payload").to_pylist():
                while not go.exists():
                    time.sleep(0.02)
                raise RuntimeError("as it should")
            yield batch

    return rows.mapInArrow(poison, "payload binary")


@pytest.mark.parametrize(
    ("start", "more"),
    [(to_queue, {}), (for_each, {"mode": "consume", "readerName": "repeated"})],
    ids=["stream", "consume and foreachBatch"],
)
def test_each_row_once_even_if_options_change(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path, start: Start, more: dict[str, str]
) -> None:
    wanted = Counter(f"{n:03}".encode() for n in range(ROWS))
    broker.publish(f"to-{queue}")
    broker.publish(queue)
    where = {} if more else {"startingPosition": broker.status().latest}
    broker.publish(queue, *sorted(map(bytes, wanted)))
    source = broker.stream(spark, queue=queue, columns="payload", minPartitions=2, **more, **where)
    failing = start(spark, interrupted(source, tmp_path / "go"), broker, f"to-{queue}", tmp_path / "checkpoint")
    while failing.isActive and not broker.payloads(f"to-{queue}"):
        time.sleep(0.05)
    (tmp_path / "go").touch()
    with pytest.raises(StreamingQueryException, match="as it should"):
        failing.awaitTermination(60)
    broker.publish(queue, *["later" * 100] * 20)
    source = broker.stream(spark, queue=queue, columns="payload", minPartitions=3, **more)
    ended(start(spark, source, broker, f"to-{queue}", tmp_path / "checkpoint"))
    assert Counter(broker.payloads(f"to-{queue}")) == wanted + Counter([b"later" * 100] * 20)
