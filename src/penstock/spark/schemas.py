"""The tables as Spark sees them, and the columns that a query selects."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.flight.views import SCHEMAS as VIEWS
from penstock.spark.errors import BadOption

__all__ = ["VIEWS", "arrow_schema", "check", "spark_schema"]


def spark_schema(view: str, columns: Sequence[str] = ()) -> StructType:
    """The schema of a view, or of some columns in the requested order. Raises BadOption for unknown ones."""
    whole = VIEWS[view]
    unknown = [name for name in columns if name not in whole.names]
    if unknown:
        raise BadOption(f"view {view} has no column {', '.join(unknown)}; it has {', '.join(whole.names)}")
    wanted = pa.schema([whole.field(name) for name in columns]) if columns else whole
    return from_arrow_schema(wanted)


def check(view: str, columns: Sequence[str], wanted: StructType) -> list[str]:
    """The names of the columns in a query's schema. Raises BadOption if the view does not have them like that.

    ``wanted`` is the argument of a read's ``schema(...)``, or the result of ``spark_schema``.
    """
    whole = spark_schema(view, columns)
    if not wanted.fields:
        raise BadOption(f"the schema has no columns; view {view} has {', '.join(whole.names)}")
    if columns and wanted.names != whole.names:
        raise BadOption("option columns and the given schema name different columns: give only one of them")
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
    """The exact Arrow schema that Spark expects for batches of these columns."""
    return to_arrow_schema(wanted, timezone="UTC")
