"""A Python data source that yields rows it makes in memory: faster than that, no Python data source can be.

The rows are those of the bench's broker, value by value, so that what Spark does with them costs the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from benches.rows import BATCH, NOW, payloads
from penstock.journal.views.arrow import ids, timed
from penstock.spark import schemas
from penstock.spark.executor import MOST_ROWS

PARTS = 2

#: What is the same in all rows.
_ROW = {"namespace": "default", "queue": "q", "priority": Decimal(0), "protocol": "phpmq"}
#: What is not, by position.
_MADE: dict[str, Callable[[npt.NDArray[np.int64]], pa.Array]] = {
    "position": pa.array,
    "id": lambda positions: ids(1, positions),
    "published_at": lambda positions: timed(NOW + positions // BATCH),
}


class Ceiling(DataSource):
    """So many rows of the columns of ``messages``."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> StructType:
        return schemas.spark_schema("messages", tuple(filter(None, self.options.get("columns", "").split(","))))

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(int(self.options["rows"]), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return CeilingStream(int(self.options["rows"]), schema)


class CeilingReader(DataSourceReader):
    """In parts of equal size."""

    def __init__(self, rows: int, schema: StructType) -> None:
        self.rows = rows
        self.wanted = schema

    def partitions(self) -> list[InputPartition]:
        return parts(0, self.rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return made(partition, schemas.arrow_schema(self.wanted))


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
        return parts(start["at"], end["at"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return made(partition, schemas.arrow_schema(self.wanted))


def parts(start: int, stop: int) -> list[InputPartition]:
    """Of equal size."""
    cuts = [start + (stop - start) * at // PARTS for at in range(PARTS + 1)]
    return [InputPartition(span) for span in pairwise(cuts)]


def made(part: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as the bench's broker has them. What repeats is made once."""
    start, stop = part.value
    size = min(MOST_ROWS, stop - start)
    values: dict[str, Any] = {name: [_ROW.get(name)] * size for name in schema.names if name not in _MADE}
    if "payload" in values:
        values["payload"] = (payloads() * (size // BATCH + 1))[:size]
    arrays = {name: pa.array(value, schema.field(name).type) for name, value in values.items()}
    for at in range(start, stop, size):
        positions = np.arange(at + 1, at + 1 + size)
        columns = [_MADE[name](positions) if name in _MADE else arrays[name] for name in schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema).slice(0, stop - at)
