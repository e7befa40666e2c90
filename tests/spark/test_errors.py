"""Errors are reported on the driver, within seconds, with advice."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.brokers import make_certificate
from support.queries import batches, once
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNREACHABLE = "grpc://127.0.0.1:1"


def batch(spark: SparkSession, folder: Path, options: dict[str, Any]) -> None:
    spark.read.format("penstock").options(**options).load().collect()


def stream(spark: SparkSession, folder: Path, options: dict[str, Any]) -> None:
    writer = spark.readStream.format("penstock").options(**options).load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(folder)).start()
    try:
        query.awaitTermination(60)
    finally:
        query.stop()


def write(spark: SparkSession, folder: Path, options: dict[str, Any]) -> None:
    spark.sql("select 'x' as payload").write.format("penstock").options(**options).mode("append").save()


@pytest.mark.parametrize("use", [batch, stream, write])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endpoint": UNREACHABLE, "queue": "x"}, r"no penstock broker answers at grpc://127.0.0.1:1"),
        ({"queu": "x"}, r"penstock has no option 'queu'. Did you mean queue\? Valid here: "),
    ],
    ids=["away", "unknown"],
)
def test_errors_are_reported_within_seconds(
    spark: SparkSession, tmp_path: Path, use: Callable[..., None], options: dict[str, str], says: str
) -> None:
    began = time.monotonic()
    with pytest.raises(Exception, match=says):
        use(spark, tmp_path, options)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("use", [batch, stream, write])
def test_a_missing_queue(spark: SparkSession, broker: SparkBroker, tmp_path: Path, use: Callable[..., None]) -> None:
    with pytest.raises(Exception, match="there is no queue default/nowhere"):
        use(spark, tmp_path, {"endpoint": broker.endpoint, "queue": "nowhere"})


def test_options_that_contradict_each_other_fail_at_load(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="queue and queuePattern contradict each other"):
        spark.read.format("penstock").options(queue="a", queuePattern="b/*").load()


def test_live_cannot_be_streamed(spark: SparkSession, broker: SparkBroker, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="view live shows the current content of queues"):
        stream(spark, tmp_path, {"endpoint": broker.endpoint, "view": "live"})


def test_a_batch_read_cannot_consume(spark: SparkSession, broker: SparkBroker, tmp_path: Path) -> None:
    options = {"endpoint": broker.endpoint, "queue": "x", "mode": "consume", "readerName": "r"}
    with pytest.raises(Exception, match="mode=consume is for streams"):
        batch(spark, tmp_path, options)


def test_a_start_beyond_the_end(spark: SparkSession, broker: SparkBroker, tmp_path: Path) -> None:
    for use in (batch, stream):
        with pytest.raises(Exception, match="startingPosition: 1000000 is after the end of the journal"):
            use(spark, tmp_path, {"endpoint": broker.endpoint, "startingPosition": "1000000"})


def test_tokens(spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    reading = {"token_sha256": hashlib.sha256(b"right").hexdigest(), "may": ["read"], "where": ["default/jobs"]}
    local = {"network": "127.0.0.0/8", "may": ["publish", "consume", "administer"]}
    broker = new_broker(access=[reading, local])
    broker.publish("jobs", "a")
    broker.publish("secret", "b")
    options = {"endpoint": broker.endpoint, "queue": "jobs"}
    assert spark.read.format("penstock").options(**options, token="right").load().count() == 1
    for wrong, says in (
        ({"token": "wr0ng-token"}, "the access rules do not know this token"),
        ({}, "the access rules do not let you read"),
        ({"token": "right", "queue": "secret"}, "the access rules do not let you read default/secret"),
    ):
        for use in (batch, stream):
            with pytest.raises(Exception, match=says) as caught:
                use(spark, tmp_path, {**options, **wrong})
            assert "wr0ng-token" not in str(caught.value)


def test_the_missing_right_is_named(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path
) -> None:
    tokens = {right: hashlib.sha256(right.encode()).hexdigest() for right in ("publish", "consume")}
    rules = [{"token_sha256": digest, "may": [right], "where": ["default/*"]} for right, digest in tokens.items()]
    local = {"network": "127.0.0.0/8", "may": ["publish", "administer"]}
    broker = new_broker(access=[*rules, local], queues={"default/jobs": {}})
    options = {"endpoint": broker.endpoint, "queue": "jobs"}
    write(spark, tmp_path, {**options, "token": "publish"})
    taken = {**options, "mode": "consume", "readerName": "worker", "token": "consume"}
    query = once(spark.readStream.format("penstock").options(**taken).load(), tmp_path)
    assert batches(query) == [1]
    with pytest.raises(Exception, match="the access rules do not let you consume default/jobs"):
        once(spark.readStream.format("penstock").options(**{**taken, "token": "publish"}).load(), tmp_path, "denied")


def test_certificates(spark: SparkSession, new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    files, others = make_certificate(mine), make_certificate(other)
    if files is None or others is None:
        pytest.skip("openssl is not installed")
    certificate, key = files
    broker = new_broker(flight={"address": "127.0.0.1:0", "tls_certificate": str(certificate), "tls_key": str(key)})
    broker.publish("jobs", "a")
    right = {"endpoint": broker.endpoint, "tlsCa": str(certificate), "tlsServerName": "localhost"}
    assert spark.read.format("penstock").options(**right).load().count() == 1
    for wrong in (
        {"tlsCa": str(others[0])},
        {"tlsServerName": "elsewhere.example"},
        {"endpoint": broker.endpoint.replace("grpc+tls", "grpc"), "tlsCa": None, "tlsServerName": None},
    ):
        options = {name: text for name, text in {**right, **wrong}.items() if text is not None}
        with pytest.raises(Exception, match=r"no TLS connection to|no penstock broker answers at"):
            batch(spark, tmp_path, options)


def test_a_failing_stream_shows_no_secret(spark: SparkSession, broker: SparkBroker, queue: str, tmp_path: Path) -> None:
    broker.publish(queue, "a")
    source = broker.stream(spark, queue=queue, columns="payload")
    writer = source.writeStream.format("penstock").options(
        endpoint=broker.endpoint, queue="nowhere", token="s3cret-token"
    )
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="there is no queue default/nowhere") as caught:
        query.awaitTermination(60)
    assert "s3cret-token" not in str(caught.value)
    assert "s3cret-token" not in str(query.lastProgress) + str(query.status)
