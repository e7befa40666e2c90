"""The SQL models of ``examples/dbt`` over real tables: DuckDB and Spark return the same rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import jinja2
from deltalake import DeltaTable

from penstock.client import connect
from penstock.spark.pipelines.archive import main as archive_main
from penstock.spark.pipelines.archive import options as archive_options
from penstock.spark.pipelines.insight import main as insight_main
from penstock.spark.pipelines.run import BrokerSource, RunControl
from support.sparks import SparkBroker
from support.tables import frame_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODELS = Path(__file__).parents[2] / "examples" / "dbt" / "models"
#: In the order in which they refer to each other.
ORDER = ("queue_days", "queue_hours", "dead_letter_days", "daily_balance")
INSIGHT = ("queues", "dead_letters")


def _sql(name: str) -> str:
    """A model as dbt would send it, with sources and models as views of their own names."""
    text = (MODELS / f"{name}.sql").read_text()
    return str(jinja2.Template(text).render(source=lambda schema, table: table, ref=lambda model: model))


def _by_duckdb(lake: Path) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("messages", DeltaTable(lake / "messages").to_pyarrow_dataset())
        for name in INSIGHT:
            files = f"read_parquet('{lake}/insight/{name}/**/*.parquet')"
            connection.execute(f"create view {name} as select * from {files}")
        for name in ORDER:
            connection.execute(f"create view {name} as {_sql(name)}")
        return {name: sorted(connection.execute(f"select * from {name}").fetchall(), key=str) for name in ORDER}


def _by_spark(spark: SparkSession, lake: Path) -> dict[str, list[tuple[Any, ...]]]:
    frame_by_spark(spark, lake, "messages").createOrReplaceTempView("messages")
    for name in INSIGHT:
        spark.sql(f"create temporary view {name} using parquet options (path '{lake}/insight/{name}')")
    for name in ORDER:
        spark.sql(_sql(name)).createOrReplaceTempView(name)
    try:
        return {name: sorted(map(tuple, spark.table(name).collect()), key=str) for name in ORDER}
    finally:
        for name in ("messages", *INSIGHT, *ORDER):
            spark.catalog.dropTempView(name)


def _plain(rows: list[tuple[Any, ...]]) -> list[list[str]]:
    """Rows with times without zone and plain numbers, because the engines have different types for sums."""
    return [[re.sub(r"\+00:00$", "", str(value)).removesuffix(".0") for value in row] for row in rows]


def test_duckdb_and_spark_agree_on_the_models(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    assert {path.stem for path in MODELS.glob("*.sql")} == set(ORDER)
    broker, lake = new_broker(), tmp_path / "lake"
    broker.publish("jobs", *["x" * 10] * 40)
    broker.publish("more", *["y"] * 5)
    broker.take("more")
    with connect(broker.url("phpmq", "/refused")) as client:
        client.publish(b"no")
        for message in client.consume(idle=0.3):
            message.reject()
    source = BrokerSource({"endpoint": broker.endpoint})
    archive_main.run(spark, source, str(lake), archive_options.ArchiveOptions(), RunControl(once=True))
    insight_main.run(spark, source, str(lake), insight_main.InsightOptions(), RunControl(once=True))
    found = _by_duckdb(lake)
    assert {name: _plain(rows) for name, rows in _by_spark(spark, lake).items()} == {
        name: _plain(rows) for name, rows in found.items()
    }
    assert _sums(found["queue_days"], 3, 4) == {"jobs": (40, 400), "more": (5, 5), "refused": (1, 2)}
    assert _sums(found["queue_hours"], 3, 5) == {"jobs": (40, 0), "more": (5, 5), "refused": (1, 0)}
    assert _sums(found["dead_letter_days"], 4, 4) == {"refused": (1, 1)}
    assert _sums(found["daily_balance"], 3, 4) == {"jobs": (40, 40), "more": (5, 5), "refused": (1, 1)}


def _sums(rows: list[tuple[Any, ...]], one: int, other: int) -> dict[str, tuple[int, int]]:
    """Sums of two columns by queue, over all hours and days of the test, without empty queues."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        before = found.get(row[1], (0, 0))
        found[row[1]] = (before[0] + row[one], before[1] + row[other])
    return {queue: sums for queue, sums in found.items() if any(sums)}
