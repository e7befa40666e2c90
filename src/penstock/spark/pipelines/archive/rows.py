"""``archive``: published messages become tables in a lake, each message once. See docs/pipelines.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField, StructType

from penstock.journal.views.arrow import MESSAGES
from penstock.spark.lake.files import Divide
from penstock.spark.pipelines.archive.inference import merge
from penstock.spark.pipelines.archive.payloads import Decoding, decode, grown, inferred, pack, unpack
from penstock.spark.pipelines.run import lines_of

#: The table's columns; those that name folders of the lake come last.
COLUMNS = [name for name in MESSAGES.names if name not in ("namespace", "queue")]
PARTITIONS = ("namespace", "queue", "date", "hour")
#: Rows decoded at a time, so that a batch of large payloads is not held twice.
SLICE = 4096


def transform(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Messages with the columns ``value`` (if the format has one) and ``reason``: null if the payload fits."""
    if decoding.format == "raw":
        return messages
    # Before an inferred schema has its first field, there is no value, but there may be misfits.
    values = [] if decoding.type is None else [pa.field("value", decoding.type)]
    schema = pa.schema([*MESSAGES, *values, pa.field("reason", pa.string())])

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(0, batch.num_rows, SLICE):
                part = batch.slice(at, SLICE)
                value, reason = decode(part.column("payload").to_pylist(), decoding)
                decoded = [reason] if value is None else [value, reason]
                yield pa.RecordBatch.from_arrays([*part.columns, *decoded], schema=schema)

    return messages.select(*MESSAGES.names).mapInArrow(work, _spark_schema(schema))


def columns(decoding: Decoding) -> tuple[pa.Schema, pa.Schema]:
    """The columns of the table and of its quarantine."""
    known = [MESSAGES.field(name) for name in COLUMNS]
    value = [] if decoding.type is None else [pa.field("value", decoding.type)]
    folders = [pa.field(name, pa.string()) for name in PARTITIONS]
    reason = [pa.field("reason", pa.string())]
    return pa.schema([*known, *_nullable(value), *folders]), pa.schema([*known, *reason, *folders])


def _nullable(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Nullable in tables, even if payloads must have them."""
    return list(to_arrow_schema(_spark_schema(pa.schema(list(fields))), timezone="UTC"))


def divider(decoding: Decoding, hour: str, table: str, quarantine: str) -> Divide:
    """Split messages into rows of the table and of its quarantine, with date and hour (as in ``2026-01-31/23``)."""
    date, _, of_day = hour.partition("/")

    def divide(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        for at in range(0, batch.num_rows, SLICE):
            rows = batch.slice(at, SLICE)
            if decoding.format == "raw":
                yield table, _with(rows, {"date": date, "hour": of_day})
                continue
            value, reason = decode(rows.column("payload").to_pylist(), decoding)
            more = {"date": date, "hour": of_day, "reason": reason} | ({} if value is None else {"value": value})
            whole = _with(rows, more)
            fits = reason.is_null()
            yield table, whole.filter(fits)
            yield quarantine, whole.filter(pc.invert(fits))

    return divide


def _with(rows: pa.RecordBatch, more: Mapping[str, str | pa.Array]) -> pa.RecordBatch:
    """Rows with more columns; a text is repeated in all rows."""
    arrays = [
        pa.repeat(pa.scalar(each, pa.string()), rows.num_rows) if isinstance(each, str) else each
        for each in more.values()
    ]
    return pa.RecordBatch.from_arrays([*rows.columns, *arrays], names=[*rows.schema.names, *more])


def _spark_schema(schema: pa.Schema) -> StructType:
    """The schema for Spark, nullable even if payloads must have the fields: rows that don't fit lack them."""
    converted = from_arrow_schema(schema)
    return StructType([StructField(field.name, field.dataType, True) for field in converted.fields])


def find_schema(messages: DataFrame, known: pa.DataType | None) -> pa.DataType | None:
    """The type of JSON payloads: the known type with the new fields of these."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        merged: pa.DataType | None = None
        for batch in batches:
            more = inferred(batch.column(0).to_pylist(), None)
            if more is not None:
                merged = more if merged is None else _both(merged, more)
        packed = [] if merged is None else [pack(merged)]
        yield pa.RecordBatch.from_pydict({"type": pa.array(packed, pa.binary())})

    parts = messages.select("payload").mapInArrow(work, "type binary").collect()
    types = [unpack(bytes(row["type"])) for row in parts]
    if not types:
        return known
    return grown(known, reduce(_both, types))


def _both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The common type of two parts of one batch: nothing is in files yet."""
    return merge(one, other, firm=False)


def ddl_type(text: str) -> pa.DataType:
    """A Spark DDL schema ("id long, name string") as an Arrow type. Raises ``ValueError``."""
    try:
        schema = StructType.fromDDL(text)
        if not isinstance(schema, StructType):
            raise ValueError(f"the schema {text!r} is no list of columns, like: id long, name string")
        return to_arrow_type(schema, timezone="UTC")
    except PySparkException as error:
        raise ValueError(f"the schema {text!r} can't be understood: {lines_of(error)[0]}") from None
