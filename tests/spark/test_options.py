"""Options: valid values, contradictions, and errors that list the valid ones."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.spark import values
from penstock.spark.errors import BadOption
from penstock.spark.options import OPTIONS, SourceSettings, Use, parse


def test_all_options_are_optional() -> None:
    assert parse({}, Use.BATCH) == SourceSettings()


def test_names_are_case_insensitive() -> None:
    found = parse({"QUEUEpattern": "default/*", "STARTINGposition": "Latest"}, Use.BATCH)
    assert (found.pattern, found.starting_position) == ("default/*", "latest")


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("endpoint", "grpc://broker", "endpoint", "grpc://broker:8815"),
        ("endpoint", "grpc+tls://[::1]:99/", "endpoint", "grpc+tls://[::1]:99"),
        ("endpoint", "grpc://a, grpc://b:99", "endpoint", "grpc://a:8815,grpc://b:99"),
        ("queue", "jobs", "queue", "default/jobs"),
        ("queue", "shop/orders/new", "queue", "shop/orders/new"),
        ("queuePattern", "*/order-?", "pattern", "*/order-?"),
        ("view", "EVENTS", "view", "events"),
        ("columns", "position, payload", "columns", ("position", "payload")),
        ("startingPosition", "17", "starting_position", 17),
        ("endingPosition", "latest", "ending_position", "latest"),
        ("startingTimestamp", "1970-01-01T00:00:01Z", "starting_timestamp", 1_000_000),
        ("startingTimestamp", "1970-01-01 02:00:01+02:00", "starting_timestamp", 1_000_000),
        ("startingTimestamp", "1970-01-02", "starting_timestamp", 86_400_000_000),
        ("endingTimestamp", "1700000000000", "ending_timestamp", 1_700_000_000_000_000),
        ("minPartitions", "8", "min_partitions", 8),
        ("failOnDataLoss", "false", "fail_on_data_loss", False),
        ("patience", "2 minutes", "patience", 120_000_000),
        ("token", "s3cret", "token", "s3cret"),
    ],
)
def test_values_of_a_batch(name: str, text: str, field: str, value: object) -> None:
    assert getattr(parse({name: text}, Use.BATCH), field) == value


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("maxMessagesPerTrigger", "1000", "max_messages", 1000),
        ("maxBytesPerTrigger", "64m", "max_bytes", 64 * 2**20),
        ("maxBytesPerTrigger", "123", "max_bytes", 123),
        ("readerName", "lake", "reader", "lake"),
    ],
)
def test_values_of_a_stream(name: str, text: str, field: str, value: object) -> None:
    assert getattr(parse({name: text}, Use.STREAMS), field) == value


def test_consume() -> None:
    given = {"mode": "consume", "queue": "jobs", "readerName": "r", "leaseTimeout": "1.5h"}
    found = parse(given, Use.STREAMS)
    assert (found.mode, found.lease_timeout) == ("consume", 5_400_000_000)


def test_writing() -> None:
    found = parse({"queue": "jobs", "createQueues": "true", "checkpointLocation": "/x"}, Use.STREAM_WRITE)
    assert (found.queue, found.create_queues) == ("default/jobs", True)
    found = parse({"queue": "jobs", "writerName": "me", "epoch": "0"}, Use.WRITE)
    assert (found.writer, found.epoch) == ("me", 0)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("endpoint", "http://broker", "an endpoint is as in grpc://broker:8815"),
        ("endpoint", "grpc://a:password@broker", "an endpoint is as in"),
        ("endpoint", "grpc://broker:x", "an endpoint is as in"),
        ("endpoint", "grpc://a,", "several are separated by commas"),
        ("endpoint", "grpc://a,b", "an endpoint is as in"),
        ("endpoint", "grpc://a,grpc://a:8815", "an endpoint is repeated"),
        ("endpoint", "grpc+tls://a,grpc://b", "either all endpoints have TLS"),
        ("queue", "", "it is empty"),
        ("queue", "/x", "namespace/queue"),
        ("queuePattern", "orders-*", "two parts, namespace/queue"),
        ("view", "mesages", "choose one of messages, events, live"),
        ("columns", "a,,b", "comma-separated names"),
        ("columns", "a,b,a", "a is repeated"),
        ("startingPosition", "0", "a number from 1 on"),
        ("startingPosition", "-3", "a number from 1 on"),
        ("startingPosition", "soon", "earliest, latest"),
        ("startingTimestamp", "yesterday", "ISO 8601"),
        ("minPartitions", "0", "at least 1"),
        ("minPartitions", "many", "whole number"),
        ("failOnDataLoss", "no", "choose one of true, false"),
        ("patience", "5", "a number with ms, s, m, h or d"),
        ("patience", "0s", "must be positive"),
        ("mode", "pop", "choose one of read, consume"),
        ("tlsCa", "/nowhere.pem", "can't be read on the driver"),
        ("archive", "hdfs://namenode/lake", "as in s3://bucket/lake"),
        ("archiveTable", "../messages", "a table's name has letters"),
        ("archiveStore", "s3cret", "comma-separated NAME=VALUE pairs are expected, as in"),
    ],
)
def test_bad_values(name: str, text: str, says: str) -> None:
    with pytest.raises(BadOption, match=f"(?s)option {name}.*{says}"):
        parse({name: text}, Use.BATCH)


@pytest.mark.parametrize("text", ["", "x", "0", "5 parsecs", "-1k"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="a size is a number of bytes"):
        values.size(text)


def test_an_unknown_option_is_reported_with_the_valid_ones() -> None:
    with pytest.raises(
        BadOption, match=r"no option 'startPosition'.*Did you mean startingPosition\?.*Valid here: .*que"
    ):
        parse({"startPosition": "1"}, Use.BATCH)


def test_only_options_of_this_use_are_listed() -> None:
    with pytest.raises(BadOption) as caught:
        parse({"nonsense": "1"}, Use.STREAM_WRITE)
    assert "createQueues" in str(caught.value)
    assert "startingPosition" not in str(caught.value)


@pytest.mark.parametrize(
    ("use", "given", "says"),
    [
        (Use.BATCH, {"readerName": "x"}, "readerName is for streaming reads .*, and not for batch reads"),
        (Use.STREAMS, {"endingPosition": "9"}, "endingPosition is for batch reads"),
        (Use.STREAMS, {"mode": "consume", "queue": "q", "readerName": "r", "archive": "/lake"}, "archive is for"),
        (Use.WRITE, {"view": "events"}, "view is for batch reads and streaming reads"),
        (Use.STREAM_WRITE, {"writerName": "a", "epoch": "1"}, "writerName is for batch writes"),
        (Use.STREAMS, {"leaseTimeout": "1h", "mode": "read"}, "leaseTimeout is for .*mode=consume"),
        (Use.STREAMS, {"leaseTimeout": "1h"}, "leaseTimeout is for .*mode=consume"),
        (Use.STREAMS, {"mode": "consume", "queue": "q", "readerName": "r", "view": "events"}, "view is for"),
        (Use.STREAMS, {"mode": "consume", "queue": "q", "readerName": "r", "startingPosition": "1"}, "startingPos"),
    ],
)
def test_options_of_another_use(use: Use, given: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        parse(given, use)


@pytest.mark.parametrize(
    ("use", "given", "says"),
    [
        (Use.BATCH, {"queue": "a", "queuePattern": "*/*"}, "contradict each other"),
        (Use.BATCH, {"startingPosition": "1", "startingTimestamp": "1"}, "contradict each other"),
        (Use.BATCH, {"endingPosition": "1", "endingTimestamp": "1"}, "contradict each other"),
        (Use.BATCH, {"startingPosition": "9", "endingPosition": "8"}, "is behind endingPosition"),
        (Use.BATCH, {"startingPosition": "latest", "endingPosition": "8"}, "contradict each other"),
        (Use.BATCH, {"startingTimestamp": "9", "endingTimestamp": "8"}, "later than endingTimestamp"),
        (Use.BATCH, {"view": "live", "startingPosition": "8"}, "has no positions to begin at"),
        (Use.BATCH, {"tlsServerName": "x"}, "needs an endpoint with TLS"),
        (Use.BATCH, {"mode": "consume"}, "mode=consume is for streams"),
        (Use.BATCH, {"path": "x"}, "has no paths"),
        (Use.STREAMS, {"pinRetention": "true"}, "needs a readerName"),
        (Use.STREAMS, {"mode": "consume", "queue": "q"}, "needs a readerName"),
        (Use.STREAMS, {"mode": "consume", "readerName": "r"}, "needs a queue or a queuePattern"),
        (Use.WRITE, {"writerName": "r"}, "belong together"),
        (Use.WRITE, {"epoch": "1"}, "belong together"),
    ],
)
def test_contradictions(use: Use, given: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        parse(given, use)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"archiveTable": "orders"}, "option archiveTable needs option archive"),
        (
            {"archive": "/lake", "view": "events"},
            r"contains published messages \(view messages\), not events",
        ),
        ({"archive": "/lake", "archiveStore": "key=x"}, "archiveStore is for an archive in an object store"),
        ({"archive": "s3://lake", "archiveStore": "kee=x"}, "no store option 'kee': choose from endpoint"),
        ({"archive": "s3://lake", "archiveStore": "key=x"}, "has a key but no secret"),
    ],
)
def test_contradictions_about_the_archive(given: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    with pytest.raises(BadOption, match=says):
        parse(given, Use.BATCH)


def test_credentials_of_the_archives_store_are_read_on_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("hidden\n")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    store = f"key=me,secret=@{tmp_path}/secret"
    found = parse({"archive": "s3://bucket/lake/", "archiveStore": store}, Use.BATCH)
    assert found.archive == "s3://bucket/lake"
    assert dict(found.archive_store) == {"region": "eu-central-1", "key": "me", "secret": "hidden"}
    assert "hidden" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_folder_is_resolved_on_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse({"archive": "lake"}, Use.BATCH).archive == str(tmp_path / "lake")


def test_tls_files_are_read_on_the_driver(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.write_text("-----BEGIN CERTIFICATE-----\n")
    given = {"endpoint": "grpc+tls://b", "tlsCertificate": str(pem), "tlsKey": str(pem)}
    found = parse(given, Use.BATCH)
    assert found.tls_certificate == found.tls_key == "-----BEGIN CERTIFICATE-----\n"
    pem.write_text("hello")
    with pytest.raises(BadOption, match="is not PEM"):
        parse(given, Use.BATCH)
    with pytest.raises(BadOption, match="belong together"):
        parse({"endpoint": "grpc+tls://b", "tlsKey": "-----BEGIN"}, Use.BATCH)


def test_secrets_are_not_shown() -> None:
    given = {
        "endpoint": "grpc+tls://b",
        "token": "s3cret",
        "tlsCertificate": "-----BEGIN",
        "tlsKey": "-----BEGIN s3cret",
    }
    found = parse(given, Use.BATCH)
    assert "s3cret" not in repr(found)
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert "s3cret" not in repr(again)


def test_every_option_sets_a_field() -> None:
    assert {option.field for option in OPTIONS} == set(SourceSettings.__struct_fields__)
