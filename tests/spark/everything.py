"""Use every feature of the data source once, in any kind of session: read, stream, write, stream out, consume.

    python -m spark.everything MASTER-OR-REMOTE ENDPOINT FOLDER

The broker has 1000 numbers each in queues ``in`` and ``work``. The last line of output is the result.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def new_session(where: str) -> SparkSession:
    """A session with a master or a Connect server."""
    if where.startswith("sc://"):
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(where).getOrCreate()
    from penstock.spark.session import session

    conf = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.executor.memory": "600m"}
    return session("everything", where, conf)


def payloads(found: DataFrame) -> list[str]:
    rows = found.selectExpr("cast(payload as string) as text").collect()
    return sorted((row.text for row in rows), key=int)


def run_once(stream: Any, checkpoint: Path) -> None:
    """Run a stream until it has processed all available rows."""
    query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(200)
    assert query.exception() is None


def main(where: str, endpoint: str, folder: Path) -> dict[str, Any]:
    """Use every feature, and return what was read."""
    spark = new_session(where)
    options = {"endpoint": endpoint}
    found: dict[str, Any] = {}
    whole = spark.read.format("penstock").options(**options, queue="in", minPartitions="4").load()
    found["batch"] = payloads(whole)
    found["filtered"] = whole.filter("queue = 'missing'").count()
    stream = spark.readStream.format("penstock").options(**options, queue="in", maxMessagesPerTrigger="600").load()
    run_once(stream.writeStream.format("parquet").option("path", str(folder / "read")), folder / "read-checkpoint")
    found["stream"] = payloads(spark.read.parquet(str(folder / "read")))
    sink = stream.select("payload").writeStream.format("penstock").options(**options, queue="copied")
    run_once(sink.option("createQueues", "true"), folder / "copy-checkpoint")
    whole.select("payload").write.format("penstock").options(**options, queue="copied").mode("append").save()
    found["copied"] = payloads(spark.read.format("penstock").options(**options, queue="copied").load())
    work = spark.readStream.format("penstock").options(**options, queue="work", mode="consume", readerName="all")
    consuming = work.option("minPartitions", "2").load().writeStream.format("parquet")
    run_once(consuming.option("path", str(folder / "consume")), folder / "consume-checkpoint")
    found["consumed"] = payloads(spark.read.parquet(str(folder / "consume")))
    found["left"] = spark.read.format("penstock").options(**options, queue="work", view="live").load().count()
    spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))) + "\n")
