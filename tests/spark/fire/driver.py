"""A Spark driver to be killed: three queries at once, each of which continues where the previous driver stopped.

    read      queue in    → Parquet        mode=read
    copy      queue in    → queue copied   as a stream or in foreachBatch, the same in all lives
    consume   queue work  → Parquet        mode=consume

Run with a ``Life`` as JSON. It writes the file ``started`` when all queries have begun, and ``running`` when each has
completed a batch. With ``finish`` it ends once everything available is processed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Life(msgspec.Struct, frozen=True):
    """How a driver is started. Options and cluster size may differ from the previous driver's."""

    endpoint: str
    folder: str
    finish: bool = False
    #: Whether the copy is made in foreachBatch.
    each: bool = False
    parts: int = 2
    cores: int = 2
    #: Of a cluster; empty: the driver's own threads. Tasks are tried four times in either case.
    master: str = ""
    #: Small batches give more occasions for interruption.
    limit: int = 300


def queries(spark: SparkSession, life: Life) -> dict[str, DataStreamWriter]:
    """The three queries, ready to start."""
    folder = Path(life.folder)
    options = {"endpoint": life.endpoint, "maxMessagesPerTrigger": life.limit, "minPartitions": life.parts}
    source = spark.readStream.format("penstock").options(**options)  # type: ignore[arg-type]
    reading = source.option("queue", "in").option("readerName", "reading").load()
    copying = source.option("queue", "in").option("columns", "payload").option("readerName", "copying").load()
    consuming = source.option("queue", "work").option("mode", "consume").option("readerName", "consuming")
    consumed = consuming.option("columns", "position,payload").load()
    return {
        "read": reading.writeStream.format("parquet").option("path", str(folder / "read")),
        "copy": copies(copying, life),
        "consume": consumed.writeStream.format("parquet").option("path", str(folder / "consume")),
    }


def copies(rows: DataFrame, life: Life) -> DataStreamWriter:
    """The query that copies."""
    target = {"endpoint": life.endpoint, "queue": "copied"}

    def forward(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("penstock").options(**target, writerName="forward", epoch=number)
        writer.mode("append").save()

    if life.each:
        return rows.writeStream.foreachBatch(forward)
    return rows.writeStream.format("penstock").options(**target)


def main(life: Life) -> None:
    """Run until killed, or with ``finish`` until everything is processed."""
    folder, finish = Path(life.folder), life.finish
    conf = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g", "spark.local.dir": str(folder / "local")}
    if life.master:
        more = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.executor.memory": "600m"}
        conf |= {**more, "spark.cores.max": str(life.cores)}
    spark = session("penstock fire", life.master or f"local[{life.cores},4]", conf)
    started = []
    for name, writer in queries(spark, life).items():
        ready = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        started.append((ready.trigger(availableNow=True) if finish else ready).start())
    (folder / "started").touch()
    while not finish and not all(query.lastProgress or query.exception() for query in started):
        time.sleep(0.02)
    (folder / "running").touch()
    for query in started:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Life))
