"""Short-circuit reads: the same rows from mapped files as through Flight, and the fallback to Flight."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.flight.calls import Range, Read, Share, Shared, Status
from penstock.flight.machine import machine
from penstock.journal import shared_extents
from penstock.journal.views import selection
from penstock.spark import executor, local, schemas
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.errors import BadOption, DataLoss, Denied, NoQueue
from penstock.spark.executor import ReadPart, fetch
from penstock.spark.options import Use, parse
from support.brokers import wait_for
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Small, so that a part spans several segments.
SEGMENTS = {"segment_bytes": 64 * 1024}
TEXTS = [f"{n:05}".encode() * 20 for n in range(3000)]


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkBroker]:
    """A broker with several segments of two queues, some of whose messages were consumed."""
    with SparkBroker(tmp_path_factory.mktemp("some"), journal=SEGMENTS) as live:
        for at in range(0, len(TEXTS), 500):
            live.publish("jobs", *TEXTS[at : at + 500])
            live.publish("others", b"not these")
        live.take("others")
        yield live


@pytest.fixture(autouse=True)
def fresh_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_refused", {})
    monkeypatch.setattr(executor, "_kept", {})


def whole(broker: SparkBroker, **values: Any) -> Read:
    status = broker.status()
    given: dict[str, Any] = {"queue": "default/jobs", "start": status.earliest, "stop": status.latest, **values}
    return Read(identity=status.identity, **given)


def rows(broker: SparkBroker, read: Read, **options: str) -> list[dict[str, Any]]:
    settings = parse({"endpoint": broker.endpoint, **options}, Use.BATCH)
    wanted = schemas.arrow_schema(schemas.spark_schema(read.view, read.columns))
    batches = list(fetch(settings, ReadPart(read), wanted))
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, wanted).to_pylist()
    return found


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """The reads that went through Flight."""
    found: list[Read] = []
    get = FlightEndpoint.get

    def note(self: FlightEndpoint, read: Read) -> Iterator[pa.RecordBatch]:
        found.append(read)
        return get(self, read)

    monkeypatch.setattr(FlightEndpoint, "get", note)
    return found


def before_opening(monkeypatch: pytest.MonkeyPatch, before: Callable[[int, str], None]) -> None:
    """Call ``before`` before each file is opened, with its number from 1 and its path."""
    opened: list[str] = []

    class Os:
        @staticmethod
        def open(path: str, flags: int) -> int:
            opened.append(path)
            before(len(opened), path)
            return os.open(path, flags)

    monkeypatch.setattr(shared_extents, "os", Os)


READS: list[dict[str, Any]] = [
    {},
    {"columns": ["payload"]},
    {"columns": ["queue", "position"]},
    {"queue": "", "pattern": "default/*"},
    {"queue": ""},
    {"queue": "", "view": "events"},
    {"view": "events", "columns": ["kind", "message"]},
    {"start": 700, "stop": 1901},
    {"start": 1203, "stop": 1204, "queue": ""},
]


@pytest.mark.parametrize("given", READS, ids=lambda given: " ".join(f"{key}={value}" for key, value in given.items()))
def test_rows_equal_those_of_flight(some: SparkBroker, tickets: list[Read], given: dict[str, Any]) -> None:
    read = whole(some, **given)
    found = rows(some, read)
    assert tickets == [], "nothing came through Flight"
    assert found
    assert found == rows(some, read, shortCircuit="false")
    assert len(tickets) == 1


def test_a_journal_in_memory(new_broker: Callable[..., SparkBroker], tickets: list[Read]) -> None:
    broker = new_broker("memory", ephemeral=True)
    broker.publish("jobs", *TEXTS[:100])
    assert [row["payload"] for row in rows(broker, whole(broker))] == TEXTS[:100]
    assert tickets == []


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_files_that_cannot_be_opened(
    some: SparkBroker, tickets: list[Read], monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    opened = []

    def refuse(_: int, path: str) -> None:
        opened.append(path)
        raise error(path)

    before_opening(monkeypatch, refuse)
    for _ in range(2):
        assert [row["payload"] for row in rows(some, whole(some))] == TEXTS
    assert (len(opened), len(tickets)) == (1, 2), "files are not retried for a while"


def test_a_file_removed_during_a_read(some: SparkBroker, tickets: list[Read], monkeypatch: pytest.MonkeyPatch) -> None:
    def go(number: int, path: str) -> None:
        if number == 3:
            raise FileNotFoundError(path)

    before_opening(monkeypatch, go)
    monkeypatch.setattr(selection, "GOOD_ROWS", 500)
    assert [row["payload"] for row in rows(some, whole(some))] == TEXTS, "each row once"
    [ticket] = tickets
    assert ticket.start > some.status().earliest, "rows already read are not read again"


def test_trimmed_rows_are_reported_as_through_flight(
    new_broker: Callable[..., SparkBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = new_broker("forgetful", journal={"segment_bytes": 64 * 1024, "retention_bytes": 64 * 1024})
    broker.publish("jobs", *TEXTS[:500])
    broker.take("jobs")
    read = whole(broker)

    def trim(number: int, path: str) -> None:
        if number == 1:
            broker.publish_until_trimmed("others", read.stop)
            broker.take("others")
            wait_for(lambda: not Path(path).exists(), "the file stays")  # it is removed after readers are notified

    before_opening(monkeypatch, trim)
    with pytest.raises(DataLoss, match=r"the history begins at position \d+ now|retention has removed them"):
        rows(broker, read)
    with pytest.raises(DataLoss, match="the history begins at position"):
        rows(broker, read)  # the endpoint reports it before it names a file


def test_live_rows_are_the_same_either_way(some: SparkBroker, tickets: list[Read]) -> None:
    read = whole(some, view="live", start=0, stop=0)
    found = rows(some, read)
    assert [row["payload"] for row in found] == TEXTS
    assert found == rows(some, read, shortCircuit="false")
    assert len(tickets) == 2, "the endpoint computes it; it is in no file"


def test_parts_read_while_the_broker_appends_and_trims(
    new_broker: Callable[..., SparkBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = new_broker("moving", journal={"segment_bytes": 64 * 1024, "retention_bytes": 64 * 1024})
    broker.publish("jobs", *TEXTS)
    monkeypatch.setattr(selection, "GOOD_ROWS", 100)
    status = broker.status()
    cuts = [status.earliest + (status.latest - status.earliest) * each // 4 for each in range(5)]
    reads = {
        (view, short): parts(broker, view, cuts, short) for view in ("messages", "events") for short in (True, False)
    }
    found = {name: [next(each) for each in begun] for name, begun in reads.items()}
    broker.publish_until_trimmed("others", cuts[2])
    for name, begun in reads.items():
        found[name] += [batch for each in begun for batch in each]
    earliest = broker.status().earliest
    for view in ("messages", "events"):
        one, other = (
            [at for batch in found[view, short] for at in batch.column(0).to_pylist()] for short in (True, False)
        )
        assert len(set(one)) == len(one)
        assert len(set(other)) == len(other)
        assert max(one) == max(other) > cuts[-2]  # the last event may not be a message
        assert {at for at in one if at >= earliest} == {at for at in other if at >= earliest}


def parts(broker: SparkBroker, view: str, cuts: list[int], short: bool) -> list[Iterator[pa.RecordBatch]]:
    """Iterators over several parts, none of them begun."""
    options = {"endpoint": broker.endpoint, "shortCircuit": str(short), "failOnDataLoss": "false"}
    settings = parse(options, Use.BATCH)
    wanted = schemas.arrow_schema(schemas.spark_schema(view, ["position"]))
    given: dict[str, Any] = {"queue": "", "view": view, "accept_loss": True, "columns": ["position"]}
    reads = [whole(broker, start=start, stop=stop, **given) for start, stop in pairwise(cuts)]
    return [fetch(settings, ReadPart(read), wanted) for read in reads]


@pytest.mark.parametrize("what", ["identity", "checksum"])
def test_an_extent_is_not_confused_with_another(
    some: SparkBroker, tickets: list[Read], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    real = FlightEndpoint.ask

    def ask(self: FlightEndpoint, action: Any, answer: type[Any]) -> Any:
        found = real(self, action, answer)
        if answer is not Shared:
            return found
        if what == "identity":
            return Shared(here=True, identity="0" * 16, extents=found.extents)
        [first, *rest] = found.extents
        first = type(first)(**{name: getattr(first, name) for name in first.__struct_fields__} | {"checksum": 1})
        return Shared(here=True, identity=found.identity, extents=[first, *rest])

    monkeypatch.setattr(FlightEndpoint, "ask", ask)
    assert [row["payload"] for row in rows(some, whole(some))] == TEXTS
    assert len(tickets) == 1


def test_another_machine_gets_no_paths(some: SparkBroker, tickets: list[Read], monkeypatch: pytest.MonkeyPatch) -> None:
    read = whole(some)
    elsewhere = Share(queue=read.queue, start=read.start, stop=read.stop, machine="elsewhere")
    assert some.ask(elsewhere, Shared) == Shared(here=False)
    monkeypatch.setattr(local, "machine", lambda: "elsewhere")
    assert [row["payload"] for row in rows(some, read)] == TEXTS
    monkeypatch.setattr(local, "machine", machine)
    assert [row["payload"] for row in rows(some, read)] == TEXTS
    assert len(tickets) == 2, "the second part does not ask again"


def test_rights_are_the_same_as_at_the_endpoint(new_broker: Callable[..., SparkBroker], tickets: list[Read]) -> None:
    rules = [
        {"token_sha256": hashlib.sha256(token.encode()).hexdigest(), "may": ["read"], "where": [where]}
        for token, where in (("mine", "default/jobs"), ("all", "*"))
    ]
    open_to_all = {"may": ["publish", "consume", "administer", "create"], "where": ["*"]}
    broker = new_broker("ruled", access=[*rules, open_to_all])
    broker.publish("jobs", b"mine")
    broker.publish("secret", b"theirs")
    stop = 100

    def texts(token: str, **given: Any) -> list[bytes]:
        read = Read(**{"start": 1, "stop": stop, "accept_loss": False, **given})
        return [row["payload"] for row in rows(broker, read, token=token)]

    asking = FlightEndpoint(parse({"endpoint": broker.endpoint, "token": "all"}, Use.BATCH))
    stop = asking.ask(Status(), Range).latest
    asking.close()
    assert texts("mine", queue="default/jobs") == [b"mine"]
    assert texts("mine", pattern="default/*") == texts("mine") == [b"mine"]
    assert texts("all") == [b"mine", b"theirs"]
    assert tickets == []
    with pytest.raises(Denied, match="do not let you read default/secret"):
        texts("mine", queue="default/secret")
    with pytest.raises(Denied, match="do not know this token"):
        texts("unknown", queue="default/jobs")
    with pytest.raises(NoQueue, match="there is no queue default/gone"):
        texts("all", queue="default/gone")
    assert tickets == []


def test_the_option() -> None:
    assert parse({}, Use.BATCH).short_circuit
    assert not parse({"shortcircuit": "FALSE"}, Use.STREAM).short_circuit
    with pytest.raises(BadOption, match=r"option shortCircuit: .*maybe"):
        parse({"shortCircuit": "maybe"}, Use.BATCH)
    with pytest.raises(BadOption, match="option shortCircuit is for"):
        parse({"shortCircuit": "true", "queue": "q"}, Use.WRITE)


def test_a_connection_is_kept_for_the_next_part(some: SparkBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    read = whole(some, columns=["position"])
    made: list[FlightEndpoint] = []
    connected = FlightEndpoint._connected

    def note(self: FlightEndpoint) -> Any:
        if self._client is None:
            made.append(self)
        return connected(self)

    monkeypatch.setattr(FlightEndpoint, "_connected", note)
    for _ in range(3):
        rows(some, read)
        rows(some, read, shortCircuit="false")
    assert len(made) == 2, "one for each set of options"
    settings = parse({"endpoint": some.endpoint}, Use.BATCH)
    wanted = schemas.arrow_schema(schemas.spark_schema(read.view, read.columns))
    unfinished = fetch(settings, ReadPart(read), wanted)
    next(unfinished)
    assert isinstance(unfinished, Generator)
    unfinished.close()
    assert settings not in executor._kept, "a connection left in the middle of a read is not reused"


def test_spark_sees_the_same(spark: SparkSession, some: SparkBroker, tmp_path: Path) -> None:
    def both(get: Callable[[str], DataFrame]) -> None:
        [one, other] = [[tuple(row) for row in get(short).collect()] for short in ("true", "false")]
        assert len(one) == len(TEXTS)
        assert sorted(one) == sorted(other)

    def streamed(short: str) -> DataFrame:
        found = some.stream(spark, queue="jobs", shortCircuit=short, columns="position,payload")
        writer = found.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / f"{short}-log"))
        writer.trigger(availableNow=True).start(str(tmp_path / short)).awaitTermination()
        return spark.read.parquet(str(tmp_path / short))

    both(lambda short: some.read(spark, queue="jobs", shortCircuit=short, columns="position,payload", minPartitions=3))
    both(streamed)
