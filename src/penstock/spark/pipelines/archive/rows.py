"""``archive``: what was published becomes tables in a lake, each message once. See docs/pipelines.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField, StructType

from penstock.journal.views.arrow import MESSAGES
from penstock.spark.pipelines.archive.inference import merge
from penstock.spark.pipelines.archive.payloads import Decoding, decode, grown, inferred, pack, unpack
from penstock.spark.pipelines.run import lines_of

#: The columns of the table; those that are folders of the lake come last.
COLUMNS = [name for name in MESSAGES.names if name not in ("namespace", "queue")]
PARTITIONS = ("namespace", "queue", "date", "hour")
#: A folder's name has at most so many bytes. Of a name that needs more, so many characters are kept, and a digest.
MOST_BYTES, KEPT, DIGEST = 255, 40, 32
#: What such a name looks like then.
CUT = f"^(?s:.){{{KEPT}}}~[0-9a-f]{{{DIGEST}}}$"
#: All but the characters that Spark writes as three in the name of a folder.
_PLAIN = r"""[^\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]"""
#: Rows that are decoded at once, so that a batch of large payloads is not held twice as a whole.
SLICE = 4096


def transform(messages: DataFrame, decoding: Decoding) -> DataFrame:
    """Messages with the columns ``value`` (if the format has one) and ``reason``: null where the payload fits."""
    if decoding.format == "raw":
        return messages
    # Before the first field of an inferred schema is found, there is no value, but there may be misfits.
    values = [] if decoding.type is None else [pa.field("value", decoding.type)]
    schema = pa.schema([*MESSAGES, *values, pa.field("reason", pa.string())])

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(0, batch.num_rows, SLICE):
                part = batch.slice(at, SLICE)
                value, reason = decode(part.column("payload").to_pylist(), decoding)
                found = [reason] if value is None else [value, reason]
                yield pa.RecordBatch.from_arrays([*part.columns, *found], schema=schema)

    return messages.select(*MESSAGES.names).mapInArrow(work, _spark_schema(schema))


def folder_name(column: str) -> Column:
    """The names in a column as folders can have them: as they are, but for those that are too long."""
    name = F.col(column)
    size = F.octet_length(name) + 2 * F.octet_length(F.regexp_replace(name, _PLAIN, ""))
    digest = F.substring(F.sha2(name.cast("binary"), 256), 1, DIGEST)
    cut = F.concat(F.substring(name, 1, KEPT), F.lit("~"), digest)
    return F.when(size > MOST_BYTES - len(f"{column}="), cut).otherwise(name)


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
