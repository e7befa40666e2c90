"""Streaming queries in tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(frame: DataFrame, folder: Path, name: str = "out", **trigger: Any) -> StreamingQuery:
    """Write a stream to Parquet, in a folder of that name."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / f"{name}-checkpoint"))
    writer = writer.trigger(**trigger) if trigger else writer
    return writer.start(str(folder / name))


def once(frame: DataFrame, folder: Path, name: str = "out") -> StreamingQuery:
    """Process the available messages, and stop."""
    return ended(start(frame, folder, name, availableNow=True))


def ended(query: StreamingQuery) -> StreamingQuery:
    """Wait for the query's end, and raise its error."""
    query.awaitTermination(120)
    assert not query.isActive
    return query


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """Run a query, and stop it at the end."""
    try:
        yield query
    finally:
        query.stop()


def written(spark: SparkSession, folder: Path, name: str = "out") -> list[bytes]:
    """The payloads in the order of their positions; each position must be there once."""
    if not list((folder / name / "_spark_metadata").glob("[0-9]*")):
        return []
    wanted = "position bigint, payload binary"
    rows = spark.read.schema(wanted).parquet(str(folder / name)).orderBy("position").collect()
    assert len({row.position for row in rows}) == len(rows)
    return [bytes(row.payload) for row in rows]


def batches(query: StreamingQuery) -> list[int]:
    """The number of rows of each batch."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
