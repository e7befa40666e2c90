"""A query has the same answer in SQL over HTTP as in Spark."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.client import connect
from support.sparks import SparkBroker
from support.web import Api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = [
    "select queue, count(*) as n, min(position) as first, max(published_at) as last from messages group by queue",
    "select kind, reason, count(*) as n, sum(payload_size) as size from events where queue = 'b' group by 1, 2",
    "select queue, state, count(*) as n, sum(octet_length(payload)) as size from live group by queue, state",
    "select m.queue, e.kind, count(*) as n from messages m join events e on e.message = m.position "
    "where m.position > 5 group by m.queue, e.kind",
    "select id, payload, protocol, priority, retries from messages where queue in ('a', 'c') and position < 20",
]


def plain(value: Any) -> Any:
    """A value of Spark, as the API would return it."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1e6)
    return int(value) if value is not None and not isinstance(value, str) else value


def as_json(value: Any) -> Any:
    """A value of the API, with times as numbers."""
    is_time = isinstance(value, str) and value.endswith("Z") and value[4:5] == "-"
    return round(datetime.fromisoformat(value).timestamp() * 1e6) if is_time else value


def test_answers_equal_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    token = tmp_path / "token"
    options: dict[str, Any] = {"http": "127.0.0.1:0", "admin_token_file": str(token)}
    with SparkBroker(tmp_path / "broker", **options) as broker:
        for name, count in (("a", 7), ("b", 5), ("c", 3)):
            broker.publish(name, *(f"{name}{number}" for number in range(count)))
        with connect(broker.url("kokaq", "/default/b")) as client:
            for _ in range(2):
                message = client.receive(timeout=10)
                assert message is not None
                message.ack()
        api = Api(broker.addresses["http"], token.read_text().strip())
        for view in ("messages", "events", "live"):
            broker.read(spark, view=view).createOrReplaceTempView(view)
        for query in QUERIES:
            ours = [[as_json(value) for value in row] for row in api.do("POST", "sql", {"query": query})["rows"]]
            theirs = [[plain(value) for value in row] for row in spark.sql(query).collect()]
            assert ours, query
            assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), query
