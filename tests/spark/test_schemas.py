"""The schemas of the tables, and the columns that a query may select."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from penstock.spark import schemas
from penstock.spark.errors import BadOption


@pytest.mark.parametrize("view", sorted(schemas.VIEWS))
def test_spark_accepts_our_batches_unchanged(view: str) -> None:
    assert schemas.arrow_schema(schemas.spark_schema(view)).equals(schemas.VIEWS[view])


def test_some_columns() -> None:
    assert schemas.spark_schema("messages", ["payload", "position"]).names == ["payload", "position"]
    with pytest.raises(BadOption, match="view events has no column payload; it has position, kind"):
        schemas.spark_schema("events", ["payload"])


def test_a_given_schema() -> None:
    given = StructType().add("payload", BinaryType()).add("position", LongType())
    assert schemas.check("messages", (), given) == ["payload", "position"]
    assert schemas.check("messages", ("payload", "position"), given) == ["payload", "position"]


@pytest.mark.parametrize(
    ("columns", "given", "says"),
    [
        ((), StructType().add("payload", StringType()), "is binary, and not string: cast it"),
        ((), StructType().add("body", StringType()), "no column body; it has position"),
        ((), StructType(), "no columns"),
        (("position",), StructType().add("payload", BinaryType()), "name different columns"),
        ((), StructType().add("queue", StringType()).add("queue", StringType()), "a column is repeated"),
    ],
)
def test_an_invalid_schema(columns: tuple[str, ...], given: StructType, says: str) -> None:
    with pytest.raises(BadOption, match=says):
        schemas.check("messages", columns, given)
