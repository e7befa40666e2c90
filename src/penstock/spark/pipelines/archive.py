"""``archive``: what was published becomes tables in a lake, each message once. See docs/pipelines.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField, StructType

from penstock.journal.arrow import MESSAGES
from penstock.spark.pipelines.fitting import merge
from penstock.spark.pipelines.payloads import Decoding, decode, grown, inferred, pack, unpack
from penstock.spark.pipelines.running import lines_of

#: The columns of the table; those that are folders of the lake come last.
COLUMNS = [name for name in MESSAGES.names if name not in ("namespace", "queue")]
PARTITIONS = ("namespace", "queue", "date", "hour")
#: Rows that are decoded at once, so that a batch of large payloads is not held twice as a whole.
SLICE = 4096


def transform(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Messages with the columns ``value`` (if the format has one) and ``reason``: null where the payload fits."""
    if decoding.type is None:
        return messages
    schema = pa.schema([*MESSAGES, pa.field("value", decoding.type), pa.field("reason", pa.string())])

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(0, batch.num_rows, SLICE):
                part = batch.slice(at, SLICE)
                value, reason = decode(part.column("payload").to_pylist(), decoding)
                yield pa.RecordBatch.from_arrays([*part.columns, value, reason], schema=schema)

    return messages.select(*MESSAGES.names).mapInArrow(work, _spark_schema(schema))


def _spark_schema(schema: pa.Schema) -> StructType:
    """As Spark has it. Fields may be null there even if a payload has to have them: rows that don't fit have none."""
    found = from_arrow_schema(schema)
    return StructType([StructField(field.name, field.dataType, True) for field in found.fields])


def find_schema(messages: DataFrame, known: pa.DataType | None) -> pa.DataType | None:
    """The type of JSON payloads: what is known, and the fields that these have besides."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: pa.DataType | None = None
        for batch in batches:
            more = inferred(batch.column(0).to_pylist(), None)
            if more is not None:
                found = more if found is None else _both(found, more)
        packed = [] if found is None else [pack(found)]
        yield pa.RecordBatch.from_pydict({"type": pa.array(packed, pa.binary())})

    parts = messages.select("payload").mapInArrow(work, "type binary").collect()
    types = [unpack(bytes(row["type"])) for row in parts]
    if not types:
        return known
    return grown(known, reduce(_both, types))


def _both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Two types that were found in parts of one batch: nothing is in files yet."""
    return merge(one, other, firm=False)


def ddl_type(text: str) -> pa.DataType:
    """A schema in Spark's words ("id long, name string") as Arrow's type. Raises ``ValueError``."""
    try:
        found = StructType.fromDDL(text)
        if not isinstance(found, StructType):
            raise ValueError(f"the schema {text!r} is no list of columns, like: id long, name string")
        return to_arrow_type(found, timezone="UTC")
    except PySparkException as error:
        raise ValueError(f"the schema {text!r} can't be understood: {lines_of(error)[0]}") from None
