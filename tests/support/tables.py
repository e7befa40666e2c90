"""Reads a table of the archive as other programs do: with the format's own libraries, none of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def kind_of(lake: Path, table: str) -> str:
    if (lake / table / "_delta_log").exists():
        return "delta"
    return "iceberg" if (lake / table / "metadata").exists() else "parquet"


def iceberg_table(lake: Path, table: str) -> Any:
    catalogue = SqlCatalog("penstock", uri=f"sqlite:///{lake}/iceberg.db", warehouse=f"file://{lake}")
    try:
        return catalogue.load_table(f"lake.{table}")
    finally:
        catalogue.close()


def by_pandas(lake: Path, table: str, column: str = "position") -> list[Any]:
    folder, kind = lake / table, kind_of(lake, table)
    if kind == "delta":
        frame = DeltaTable(folder).to_pandas(columns=[column])
    elif kind == "iceberg":
        frame = iceberg_table(lake, table).scan().select(column).to_pandas()
    else:
        frame = pd.concat([pd.read_parquet(file, columns=[column]) for file in folder.rglob("*.parquet")])
    values: list[Any] = frame[column].tolist()
    return values


def by_duckdb(lake: Path, table: str, column: str = "position") -> list[Any]:
    kind = kind_of(lake, table)
    with duckdb.connect() as connection:
        if kind == "delta":
            source = "dataset"
            connection.register(source, DeltaTable(lake / table).to_pyarrow_dataset())
        elif kind == "iceberg":
            source = "rows"
            iceberg_table(lake, table).scan().to_duckdb(source, connection)
        else:
            source = f"read_parquet('{lake / table}/**/*.parquet', union_by_name=true)"
        return [row[0] for row in connection.execute(f"select {column} from {source}").fetchall()]


def by_polars(lake: Path, table: str, column: str = "position") -> list[Any]:
    folder, kind = lake / table, kind_of(lake, table)
    if kind == "delta":
        frame = pl.read_delta(str(folder), columns=[column])
    elif kind == "iceberg":
        frame = iceberg_table(lake, table).scan().select(column).to_polars()
    else:
        frame = pl.read_parquet(f"{folder}/**/*.parquet", columns=[column], missing_columns="insert")
    values: list[Any] = frame[column].to_list()
    return values


def frame_by_spark(spark: SparkSession, lake: Path, table: str) -> DataFrame:
    folder, kind = lake / table, kind_of(lake, table)
    reader = spark.read.option("mergeSchema", "true").option("basePath", str(folder))
    if kind == "delta":
        return reader.parquet(*DeltaTable(folder).file_uris())
    if kind == "iceberg":
        return reader.parquet(*(task.file.file_path for task in iceberg_table(lake, table).scan().plan_files()))
    return reader.parquet(str(folder))


def read_table(spark: SparkSession, lake: Path, table: str) -> DataFrame:
    """Like :func:`frame_by_spark`, but with queue names as text, even if they look like numbers."""
    name = "spark.sql.sources.partitionColumnTypeInference.enabled"
    spark.conf.set(name, "false")
    try:
        return frame_by_spark(spark, lake, table)
    finally:
        spark.conf.set(name, "true")


def by_spark(spark: SparkSession, lake: Path, table: str, column: str = "position") -> list[Any]:
    return [row[0] for row in frame_by_spark(spark, lake, table).select(column).collect()]


def positions(spark: SparkSession, lake: Path, *tables: str) -> list[int]:
    """The positions in these tables, after checking that Spark, DuckDB, pandas and polars agree."""
    there = [table for table in tables if (lake / table).exists()]
    expected = sorted(position for table in there for position in by_spark(spark, lake, table))
    for read in (by_duckdb, by_pandas, by_polars):
        assert sorted(position for table in there for position in read(lake, table)) == expected, read.__name__
    return expected
