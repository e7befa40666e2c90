"""Reading into Spark, against the same rows made in memory. Run: .venv/bin/python -m benches.spark [--rows N]

The ceiling is a Python data source that yields Arrow batches it has in memory: faster than that, no Python data source
can be. 1 KB messages; about twice their size of disk in the temporary folder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from benches.flight import SIZE, broker, write_journal
from penstock.spark import schemas
from penstock.spark.executor import MOST_ROWS
from penstock.spark.session import session

ROUNDS = 3
PARTS = 2
#: Ours, as a share of the ceiling's rate.
AIM = 0.8
METADATA = ("position", "namespace", "queue", "published_at", "priority")


class Ceiling(DataSource):
    """So many rows of the columns of ``messages``, of which a batch is made once in each task."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> StructType:
        return schemas.spark_schema("messages", _columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(int(self.options["rows"]), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return CeilingStream(int(self.options["rows"]), schema)


def _columns(options: Any) -> tuple[str, ...]:
    return tuple(filter(None, options.get("columns", "").split(",")))


def made(count: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as the broker of the bench has them."""
    row: dict[str, Any] = {"position": 1, "id": b"x" * 16, "namespace": "default", "queue": "q", "retries": None}
    row |= {"published_at": datetime.now(UTC), "expires_at": None, "priority": Decimal(0), "protocol": "phpmq"}
    row |= {"correlation_id": b"", "request_id": b"", "payload": b""}
    size = min(MOST_ROWS, count)
    payloads = [i.to_bytes(4, "big") * (SIZE // 4) for i in range(1000)]
    columns = {name: [row[name]] * size for name in schema.names}
    if "payload" in columns:
        columns["payload"] = [payloads[i % 1000] for i in range(size)]
    batch = pa.RecordBatch.from_pydict(columns, schema=schema)
    for at in range(0, count, size):
        yield batch.slice(0, min(size, count - at))


class CeilingReader(DataSourceReader):
    """In parts of equal size."""

    def __init__(self, rows: int, schema: StructType) -> None:
        self.rows = rows
        self.wanted = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.rows // PARTS) for _ in range(PARTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return made(partition.value, schemas.arrow_schema(self.wanted))


class CeilingStream(DataSourceStreamReader):
    """All of it in one batch."""

    def __init__(self, rows: int, schema: StructType) -> None:
        self.rows = rows
        self.wanted = schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802 - Spark's name
        return {"at": self.rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((end["at"] - start["at"]) // PARTS) for _ in range(PARTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return made(partition.value, schemas.arrow_schema(self.wanted))


def batch_into(sink: str) -> Callable[[Any, Path], None]:
    def run(source: Any, folder: Path) -> None:
        found: DataFrame = source.load()
        found.write.format(sink).mode("overwrite").save(str(folder / "out"))

    return run


def stream_into(sink: str) -> Callable[[Any, Path], None]:
    def run(source: Any, folder: Path) -> None:
        writer = source.load().writeStream.format(sink).option("path", str(folder / "out"))
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    return run


def rate(rows: int, run: Callable[[Any, Path], None], source: Callable[[], Any]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        run(source(), Path(folder))
        return rows / (perf_counter() - began)


def compare(spark: SparkSession, address: str, rows: int) -> None:
    """Both in turns, the best round of each."""
    out = sys.stdout.write
    out(f"{'':34} ceiling rows/s   ours rows/s   ratio\n")
    cases: list[tuple[str, bool, Callable[[Any, Path], None], tuple[str, ...]]] = [
        ("batch into noop", False, batch_into("noop"), ()),
        ("batch into Parquet", False, batch_into("parquet"), ()),
        ("stream into noop", True, stream_into("noop"), ()),
        ("stream into Parquet", True, stream_into("parquet"), ()),
        ("batch into noop, without payload", False, batch_into("noop"), METADATA),
    ]
    for name, streaming, run, columns in cases:
        way = "readStream" if streaming else "read"
        given = {"columns": ",".join(columns)} if columns else {}

        def ceiling(way: str = way, given: dict[str, str] = given) -> Any:
            return getattr(spark, way).format("ceiling").options(rows=str(rows), **given)

        def ours(way: str = way, given: dict[str, str] = given) -> Any:
            source = getattr(spark, way).format("penstock")
            return source.options(endpoint=address, queue="q", minPartitions=str(PARTS), **given)

        rates = [(rate(rows, run, ceiling), rate(rows, run, ours)) for _ in range(ROUNDS)]
        top, mine = (max(each) for each in zip(*rates, strict=True))
        aim = "" if columns else f"  {'met' if mine / top >= AIM else 'MISSED'} (aim {AIM})"
        out(f"{name:34} {top:14,.0f} {mine:13,.0f}   {mine / top:5.2f}{aim}\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.spark")
    parser.add_argument("--rows", type=int, default=500_000, metavar="N", help="messages of 1 KB (default: 500000)")
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        write_journal(folder, rows)
        with broker(folder) as addresses:
            spark = session("bench", f"local[{PARTS}]", {"spark.driver.memory": "2g"})
            spark.dataSource.register(Ceiling)
            address = addresses["flight"]
            compare(spark, address if "://" in address else f"grpc://{address}", rows)
            spark.stop()


if __name__ == "__main__":
    main()
