"""A Spark driver that is made to be killed: three queries at once, going on where the last driver was.

    read      queue in    → Parquet        mode=read
    copy      queue in    → queue copied
    consume   queue work  → Parquet        mode=consume

Run with the endpoint and a folder. It writes the file ``started`` when all queries have begun, and ``running`` when
each has done a batch. With ``finish`` as third argument it works off what is there, and ends.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Small batches: there is more to be interrupted.
LIMIT = "300"


def queries(spark: SparkSession, endpoint: str, folder: Path) -> dict[str, DataStreamWriter]:
    """The three, ready to start."""
    source = spark.readStream.format("penstock").option("endpoint", endpoint).option("maxMessagesPerTrigger", LIMIT)
    reading = source.option("queue", "in").option("readerName", "reading").load()
    copying = source.option("queue", "in").option("columns", "payload").option("readerName", "copying").load()
    consuming = source.option("queue", "work").option("mode", "consume").option("readerName", "consuming")
    consumed = consuming.option("columns", "position,payload").load()
    sink = copying.writeStream.format("penstock").option("endpoint", endpoint).option("queue", "copied")
    return {
        "read": reading.writeStream.format("parquet").option("path", str(folder / "read")),
        "copy": sink,
        "consume": consumed.writeStream.format("parquet").option("path", str(folder / "consume")),
    }


def main(endpoint: str, folder: Path, *, finish: bool) -> None:
    """Run until killed, or until all is done."""
    conf = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g", "spark.local.dir": str(folder / "local")}
    spark = session("penstock fire", "local[2]", conf)
    started = []
    for name, writer in queries(spark, endpoint, folder).items():
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
    main(sys.argv[1], Path(sys.argv[2]), finish=sys.argv[3:] == ["finish"])
