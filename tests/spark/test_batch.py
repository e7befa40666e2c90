"""Batch reads of a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from penstock.spark import schemas
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_messages(spark: SparkSession, broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, "a", "b", "c")
    found = broker.read(spark, queue=queue)
    assert found.schema == schemas.spark_schema("messages")
    rows = found.orderBy("position").collect()
    assert [bytes(row.payload) for row in rows] == [b"a", b"b", b"c"]
    assert {(row.namespace, row.queue, row.protocol) for row in rows} == {("default", queue, "kokaq")}
    assert len({bytes(row.id) for row in rows}) == 3
