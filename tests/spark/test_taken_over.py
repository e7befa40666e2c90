"""A broker on PostgreSQL is killed and another takes over: a Spark query continues there, exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.demo.postgresql import Server
from support.flights import Flight
from support.postgres import fresh_schema
from support.queries import once, written
from support.sparks import SparkBroker
from support.web import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def serving(broker: SparkBroker) -> SparkBroker:
    """Wait until the broker serves."""
    eventually(lambda: json.loads(broker.ready.read_text()).get("role") == "serving", 60)
    broker.wait_until_ready()
    return broker


def test_a_stream_continues_at_the_broker_that_took_over(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], postgres: Server, tmp_path: Path
) -> None:
    url = fresh_schema(postgres)
    schema = url.rpartition("=")[2]
    first = serving(new_broker("first", journal={"url": url}))
    second = new_broker("second", journal={"url": url})
    first.publish("q", "a", "b")
    once(first.stream(spark, queue="q", readerName="etl", pinRetention="true"), tmp_path)
    first.publish("q", "c")
    named = f"select encode(value, 'escape') from {schema}.named_values where name = 'readers.json'"
    eventually(lambda: "etl" in str(postgres.execute(named)), 60)
    first.kill()

    serving(second).publish("q", "d")
    with Flight(second.endpoint) as flight:
        [reader] = flight.act("readers")
        assert (reader["reader"], reader["pin"]) == ("etl", True)
    once(second.stream(spark, queue="q", readerName="etl", pinRetention="true"), tmp_path)
    assert written(spark, tmp_path) == [b"a", b"b", b"c", b"d"]
