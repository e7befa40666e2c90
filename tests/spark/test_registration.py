"""Queries of one session share no state that one of them changes while another is serialized."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.run import BrokerSource
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: With this many environment variables, serialization is so slow that a concurrent change is almost certain.
MANY = 3000


def variables(frame: DataFrame) -> Any:
    """The Java map of environment variables of a stream's data source."""
    relation: Any = frame._jdf.queryExecution().analyzed()
    return relation.source().get().source().dataSourceCls().envVars()


@contextmanager
def changing(table: Any) -> Iterator[None]:
    """Keep adding and removing an entry, as Spark does when it starts a streaming query."""
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            table.put("SPARK_BUFFER_SIZE", "65536")
            table.remove("SPARK_BUFFER_SIZE")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_starting_a_query_does_not_disturb_another(
    spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path
) -> None:
    """With one data source for both this fails every time: "Illegal size 3004 of collection, expected 3005"."""
    broker.publish(queue, *[b"x"] * 10)
    source = BrokerSource({"endpoint": broker.endpoint, "queue": f"default/{queue}"})
    starting, other = source.stream(spark), source.stream(spark)
    variables(other).putAll({f"PENSTOCK_TEST_{number}": "" for number in range(MANY)})
    rows: list[int] = []
    with changing(variables(starting)):
        writer = other.writeStream.foreachBatch(lambda frame, _: rows.append(frame.count()))
        query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
    assert rows == [10]


def test_streams_loaded_at_once_have_separate_data_sources(spark: SparkSession, broker: SparkBroker) -> None:
    source, frames = BrokerSource({"endpoint": broker.endpoint}), []
    threads = [threading.Thread(target=lambda: frames.append(source.stream(spark))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jvm: Any = spark._jvm
    assert len({jvm.java.lang.System.identityHashCode(variables(frame)) for frame in frames}) == len(threads)
