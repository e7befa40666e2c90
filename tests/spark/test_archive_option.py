"""Option ``archive``: rows dropped from the journal are read from the archive, by position, each row once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.flight.calls import Read
from penstock.spark.lake.table_formats import FORMATS
from penstock.spark.pipelines.archive import main as archive_main
from penstock.spark.pipelines.archive import options as archive_options
from penstock.spark.pipelines.replay import Replay, ReplayChoice
from penstock.spark.pipelines.run import BrokerSource, RunControl
from support.queries import batches, once, written
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Many small segments, all of them retained; and the same with most of them dropped.
KEEPING = {"segment_bytes": 32 * 1024}
FORGETTING = {"segment_bytes": 32 * 1024, "retention_bytes": 192 * 1024}


def archive(spark: SparkSession, broker: SparkBroker, lake: Path | str, **options: Any) -> None:
    source = BrokerSource({"endpoint": broker.endpoint})
    archive_main.run(spark, source, str(lake), archive_options.ArchiveOptions(**options), RunControl(once=True))


def _replay(spark: SparkSession, broker: SparkBroker, lake: Path, table: str, like: bytes) -> None:
    """Copy a table's rows into a queue, in order. They are not part of the archive."""
    choice = ReplayChoice(table=table, to="default/again", create=True)
    replay = Replay(spark, BrokerSource({"endpoint": broker.endpoint}), str(lake), "again")
    assert replay.run(choice, None, RunControl()).done
    assert broker.payloads("again") == [like % at for _ in range(6) for at in range(30)]


def rows_in_journal(broker: SparkBroker, start: int = 0) -> list[dict[str, Any]]:
    """The journal's rows, read without Spark."""
    with broker.flight() as flight:
        return [row for batch in flight.get(Read(start=start)) for row in batch.to_pylist()]


def fill(broker: SparkBroker) -> None:
    """Fill two queues, one of them with JSON."""
    for n in range(6):
        broker.publish("a", *[f"a {n} {at}".ljust(4000) for at in range(20)])
        broker.publish("b", *[f'{{"n": {at}}}' for at in range(30)])


def drop_before(broker: SparkBroker, position: int) -> None:
    """Drop the journal before a position, and as little as possible after it."""
    broker.stop()
    broker.configure(journal=FORGETTING)
    broker.start()
    for queue in ("a", "b"):
        broker.take(queue)
    while broker.status().earliest <= position:
        broker.publish("late", b"x" * 2000)


def history(broker: SparkBroker, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows from before the journal was trimmed, and rows since."""
    return before + rows_in_journal(broker, before[-1]["position"] + 1)


def _read(spark: SparkSession, broker: SparkBroker, **options: object) -> list[dict[str, Any]]:
    return [row.asDict() for row in broker.read(spark, **options).orderBy("position").collect()]


def _as_spark(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Times without a zone, as in Spark's Python. Tests run in UTC."""
    return [
        {name: value.replace(tzinfo=None) if name.endswith("_at") and value else value for name, value in row.items()}
        for row in rows
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_over_archive_and_journal(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path, kind: str
) -> None:
    broker, lake = new_broker(journal=KEEPING), tmp_path / "lake"
    fill(broker)
    archive(spark, broker, lake, kind=kind, format="json", schema="n long")
    _replay(spark, broker, lake, "messages", b'{"n": %d}')
    end = broker.status().latest
    broker.publish("a", *[f"later {n}".ljust(900) for n in range(10)])
    before = rows_in_journal(broker)
    drop_before(broker, before[10]["position"])
    assert broker.status().earliest < end
    whole = history(broker, before)
    found = _read(spark, broker, archive=lake, minPartitions=3)
    assert found == _as_spark(whole)
    start, stop = whole[20]["position"], whole[-20]["position"]
    narrow = {"queue": "a", "columns": "payload,position", "startingPosition": start, "endingPosition": stop}
    assert _read(spark, broker, archive=lake, **narrow) == [
        {"payload": row["payload"], "position": row["position"]}
        for row in whole
        if row["queue"] == "a" and start <= row["position"] < stop
    ]
    moment = whole[150]["published_at"]
    since = broker.read(spark, archive=lake, startingTimestamp=moment.isoformat(), columns="position").collect()
    first = next(row["position"] for row in whole if row["published_at"] >= moment)
    assert min(row.position for row in since) == first


def test_a_stream_that_fell_behind_continues(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    broker, lake = new_broker(journal=KEEPING), tmp_path / "lake"
    broker.publish("a", "first")
    once(broker.stream(spark), tmp_path)
    fill(broker)
    archive(spark, broker, lake)
    before = rows_in_journal(broker)
    drop_before(broker, before[30]["position"])
    with pytest.raises(StreamingQueryException, match="the history begins at position"):
        once(broker.stream(spark), tmp_path)
    limits = {"maxMessagesPerTrigger": 120, "minPartitions": 2, "archive": lake}
    query = once(broker.stream(spark, **limits), tmp_path)
    whole = history(broker, before)
    assert written(spark, tmp_path) == [row["payload"] for row in whole]
    assert batches(query)[:2] == [120, 120]
    assert max(batches(query)) == 120
    left = len(whole) - 1
    for progress in query.recentProgress:
        report, left = json.loads(progress.sources[0].latestOffset), left - progress.numInputRows
        assert report["lagMessages"] == left
        assert (report["lagSeconds"] > 0) == (left > 0)


def test_a_gap_between_archive_and_journal(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    broker, lake = new_broker(journal=FORGETTING), tmp_path / "lake"
    options = {"archive": lake, "patience": "1s"}
    with pytest.raises(PySparkException, match=r"option archive: .* run `penstock pipeline archive` first"):
        broker.read(spark, **options).count()
    broker.publish("a", "one", "two")
    archive(spark, broker, lake)
    end = broker.status().latest
    broker.publish_until_trimmed("late", end + 1)
    floor = broker.status().earliest
    with pytest.raises(
        PySparkException,
        match=rf"positions {end} to {floor - 1} are lost: .* has positions 1 to {end - 1}, and the jou",
    ):
        broker.read(spark, **options).count()
    rows = _read(spark, broker, **options, failOnDataLoss="false", columns="position,payload")
    assert [row["payload"] for row in rows[:2]] == [b"one", b"two"]
    assert [row["position"] for row in rows[2:]] == [row["position"] for row in rows_in_journal(broker)]
    other = new_broker("other", journal=FORGETTING)
    other.publish_until_trimmed("late")
    with pytest.raises(PySparkException, match=r"is of journal .* and the broker's is"):
        other.read(spark, **options).count()
