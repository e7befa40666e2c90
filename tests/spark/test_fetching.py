"""The executors' part, without Spark: each row is read once, even over connections that break."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.flight.calls import Range, Read, Status, TakeLease
from penstock.flight.flight_requests import Leased
from penstock.spark import endpoint, schemas
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.errors import BrokerAway, DataLoss
from penstock.spark.executor import MOST_BYTES, MOST_ROWS, ReadPart, cut, fetch
from penstock.spark.options import Use, parse
from support import absent
from support.cutting import cutting
from support.sparks import SparkBroker

#: Cut in the greeting, in the first batch, and later.
CUTS = [100, 50_000, 300_000, 700_000]


def payloads(address: str, read: Read, **options: str) -> list[bytes]:
    settings = parse({"endpoint": address, "shortCircuit": "false", **options}, Use.BATCH)
    wanted = schemas.arrow_schema(schemas.spark_schema(read.view, read.columns))
    found = list(fetch(settings, ReadPart(read), wanted))
    assert all(batch.schema == wanted for batch in found)
    return [payload for batch in found for payload in batch.column("payload").to_pylist()]


@pytest.mark.parametrize("columns", [["payload"], ["position", "payload"]], ids=["without", "with"])
def test_a_read_resumes_after_the_last_row(broker: SparkBroker, queue: str, columns: list[str]) -> None:
    texts = [f"{n:06}".encode() * 30 for n in range(20_000)]
    broker.publish(queue, *texts)
    status = broker.ask(Status(), Range)
    read = Read(queue=f"default/{queue}", start=status.earliest, stop=status.latest, columns=columns)
    with cutting(broker.endpoint, list(CUTS)) as way:
        assert payloads(f"grpc://{way.address}", read) == texts
        assert way.cut == len(CUTS)


def test_the_serving_endpoint_is_found_and_remembered(
    broker: SparkBroker, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "CONNECT_SECONDS", 0.3)
    texts = [f"{n:06}".encode() * 30 for n in range(20_000)]
    broker.publish(queue, *texts)
    status = broker.ask(Status(), Range)
    read = Read(queue=f"default/{queue}", start=status.earliest, stop=status.latest, columns=["payload"])
    with (
        absent.refusing() as standby,
        absent.stopped() as stuck,
        absent.silent() as gone,
        cutting(broker.endpoint, list(CUTS)) as way,
    ):
        places = ",".join(f"grpc://{each}" for each in (standby, stuck, gone, way.address))
        assert payloads(places, read) == texts, "each row once, whichever endpoint was tried in between"
        assert way.cut == len(CUTS)
        assert endpoint._SERVED[places] == f"grpc://{way.address}", "where the next task begins"
        with pytest.raises(BrokerAway, match=r"no penstock broker answers at grpc://.*,grpc://"):
            FlightEndpoint(parse({"endpoint": ",".join(places.split(",")[:2])}, Use.BATCH), patience=1.0).ask(
                Status(), Range
            )


def test_a_machine_that_vanishes(broker: SparkBroker, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SILENCE_SECONDS", 0.5)
    texts = [f"{n:06}".encode() * 30 for n in range(20_000)]
    broker.publish(queue, *texts)
    status = broker.ask(Status(), Range)
    read = Read(queue=f"default/{queue}", start=status.earliest, stop=status.latest, columns=["payload"])
    with cutting(broker.endpoint, [100, 300_000], silent=True) as way:
        assert payloads(f"grpc://{way.address}", read) == texts
        assert way.cut == 2


def test_leases_resume_after_the_last_row(broker: SparkBroker, queue: str) -> None:
    texts = [f"{n:06}".encode() * 30 for n in range(20_000)]
    broker.publish(queue, *texts)
    name = f"default/{queue}"
    start = broker.ask(TakeLease(queue=name, reader=queue, instance="i", start=0, take=False), Leased).first
    leased = broker.ask(TakeLease(queue=name, reader=queue, instance="i", start=start, max_rows=20_000), Leased)
    read = Read(
        view="leased", reader=queue, start=start, stop=leased.stop, columns=["payload"], first_row=5, rows=19_990
    )
    with cutting(broker.endpoint, list(CUTS)) as way:
        assert payloads(f"grpc://{way.address}", read) == texts[5:-5]
        assert way.cut == len(CUTS)


def test_retries_end(broker: SparkBroker, queue: str) -> None:
    broker.publish(queue, "a")
    status = broker.status()
    read = Read(queue=f"default/{queue}", start=status.earliest, stop=status.latest, columns=["payload"])
    with cutting(broker.endpoint, [0] * 1000) as way, pytest.raises(BrokerAway, match=r"Waited for \d+ s"):
        payloads(f"grpc://{way.address}", read, patience="500ms")


def test_lost_rows_are_not_retried(broker: SparkBroker) -> None:
    read = Read(start=1, stop=10**9, columns=["payload"])
    with pytest.raises(DataLoss, match="the journal ends at position"):
        payloads(broker.endpoint, read)


def test_batches_are_split_without_losing_a_row() -> None:
    numbers = pa.record_batch({"n": list(range(3 * MOST_ROWS // 2))})
    assert [batch.num_rows for batch in cut(numbers)] == [MOST_ROWS, MOST_ROWS // 2]
    large = pa.record_batch({"payload": [b"x" * (MOST_BYTES // 4)] * 10})
    found = list(cut(large))
    assert max(batch.num_rows for batch in found) <= 4
    assert sum(batch.num_rows for batch in found) == 10
    assert list(cut(large.slice(0, 0))) == []


def test_a_part_reveals_no_secret() -> None:
    assert repr(ReadPart(Read(start=3, stop=9))) == "Part(3..9)"
