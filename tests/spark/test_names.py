"""Missing queues."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.spark.batch import BatchReader
from penstock.spark.consume import ConsumingReader
from penstock.spark.errors import NoQueue
from penstock.spark.options import Use, parse
from penstock.spark.schemas import spark_schema
from penstock.spark.stream import StreamReader
from penstock.spark.writers import BatchWriter
from support.sparks import SparkBroker


def batch(options: dict[str, str]) -> None:
    BatchReader(parse(options, Use.BATCH), [], spark_schema("messages")).partitions()


def stream(options: dict[str, str]) -> None:
    StreamReader(parse(options, Use.STREAMS), [], spark_schema("messages")).initialOffset()


def consume(options: dict[str, str]) -> None:
    settings = parse({**options, "mode": "consume", "readerName": "r"}, Use.STREAMS)
    ConsumingReader(settings, [], spark_schema("leased")).initialOffset()


def write(options: dict[str, str]) -> None:
    BatchWriter(parse(options, Use.WRITE), StructType([StructField("payload", BinaryType())]), overwrite=False)


ALL = pytest.mark.parametrize("use", [batch, stream, consume, write])


def error_of(broker: SparkBroker, use: Callable[[dict[str, str]], None], **options: str) -> str:
    with pytest.raises(NoQueue) as caught:
        use({"endpoint": broker.endpoint, **options})
    return str(caught.value)


@ALL
def test_a_typo(broker: SparkBroker, queue: str, use: Callable[[dict[str, str]], None]) -> None:
    broker.publish(f"orders-{queue}", "a")
    text = error_of(broker, use, queue=f"ordres-{queue}")
    assert text.startswith(f"there is no queue default/ordres-{queue} (penstock at {broker.endpoint})")
    assert f"There is default/orders-{queue}" in text
    assert "failOnDataLoss" not in text
    assert ("createQueues=true" in text) == (use is write)


@ALL
def test_the_wrong_namespace(broker: SparkBroker, queue: str, use: Callable[[dict[str, str]], None]) -> None:
    broker.publish(f"here-{queue}", "a")
    assert f"There is default/here-{queue}" in error_of(broker, use, queue=f"somewhere/here-{queue}")


@ALL
def test_a_pattern(broker: SparkBroker, queue: str, use: Callable[[dict[str, str]], None]) -> None:
    broker.publish(queue, "a")
    text = error_of(broker, use, queue="default/*")
    assert ("use queuePattern=default/*" in text) == (use is not write)
    assert "failOnDataLoss" not in text


def test_only_names_that_the_caller_may_see(new_broker: Callable[..., SparkBroker]) -> None:
    allow = [
        {"token_sha256": hashlib.sha256(b"letmein").hexdigest(), "may": ["read"], "where": ["default/open*"]},
        {"network": "127.0.0.0/8", "may": ["publish", "consume", "administer"]},
    ]
    broker = new_broker(access=allow)
    for name in ("open-1", "secret-1"):
        broker.publish(name, "a")
    assert "secret" not in error_of(broker, batch, queue="default/open-2", token="letmein").partition(")")[2]
