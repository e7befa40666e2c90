"""The tables as Spark sees them, and which columns of them a query wants."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.flight.views import SCHEMAS as VIEWS
from penstock.spark.errors import BadOption

__all__ = ["VIEWS", "arrow_schema", "check", "spark_schema"]


def spark_schema(view: str, columns: Sequence[str] = ()) -> StructType:
    """The schema of a view, or of some of its columns in the order asked for. Raises BadOption for unknown ones."""
    whole = VIEWS[view]
    unknown = [name for name in columns if name not in whole.names]
    if unknown:
        raise BadOption(f"view {view} has no column {', '.join(unknown)}; it has {', '.join(whole.names)}")
    wanted = pa.schema([whole.field(name) for name in columns]) if columns else whole
    return from_arrow_schema(wanted)


def check(view: str, columns: Sequence[str], wanted: StructType) -> list[str]:
    """The names of the columns that a query's schema asks for. Raises BadOption if it asks for something else.

    ``wanted`` is what ``schema(...)`` of a read was given, or what ``spark_schema`` has told.
    """
    whole = spark_schema(view, columns)
    if not wanted.fields:
        raise BadOption(f"the schema has no columns; view {view} has {', '.join(whole.names)}")
    if columns and wanted.names != whole.names:
        raise BadOption("option columns and the schema that was given name different columns: give one of them")
    types = {field.name: field.dataType for field in whole.fields}
    for field in wanted.fields:
        if field.name not in types:
            raise BadOption(f"view {view} has no column {field.name}; it has {', '.join(whole.names)}")
        if field.dataType != types[field.name]:
            raise BadOption(
                f"column {field.name} of view {view} is {types[field.name].simpleString()}, "
                f"and not {field.dataType.simpleString()}: cast it after reading"
            )
    if len(set(wanted.names)) < len(wanted.names):
        raise BadOption(f"a column is repeated in the schema: {', '.join(wanted.names)}")
    return list(wanted.names)


def arrow_schema(wanted: StructType) -> pa.Schema:
    """What Spark takes a batch of these columns for. It must be exactly this."""
    return to_arrow_schema(wanted, timezone="UTC")
