"""The live view: messages in every state, also those that compaction has moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import connect
from penstock.client.sync import Client
from support.brokers import BrokerProcess, wait_for
from support.flights import Flight, problem


@pytest.fixture
def kokaq(broker: BrokerProcess) -> Iterator[Client]:
    with connect(broker.url("kokaq")) as client:
        yield client


def states(flight: Flight, queue: str) -> dict[bytes, str]:
    return {row["payload"]: row["state"] for row in flight.rows(view="live", queue=queue)}


class TestStates:
    def test_ready_out_and_settled(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish_many([b"a", b"b", b"c"], queue="live/plain")
        assert states(flight, "live/plain") == dict.fromkeys([b"a", b"b", b"c"], "ready")
        first = kokaq.lock("live/plain", lock=60)
        second = kokaq.lock("live/plain", lock=60)
        assert first is not None
        assert second is not None
        assert states(flight, "live/plain") == {b"a": "out", b"b": "out", b"c": "ready"}
        first.ack()
        second.release()
        assert states(flight, "live/plain") == {b"b": "ready", b"c": "ready"}
        rows = flight.rows(view="live", queue="live/plain")
        assert [row["deliveries"] for row in rows] == [1, 0]
        assert [row["reason"] for row in rows] == [None, None]

    def test_delayed(self, flight: Flight, kokaq: Client) -> None:
        kokaq.create_queue("live/delayed")
        flight.write([_batch(payload=["now", "later"], delay=[0, 3600])], queue="live/delayed", writer="delayer")
        assert states(flight, "live/delayed") == {b"now": "ready", b"later": "delayed"}

    def test_dead(self, broker: BrokerProcess, flight: Flight) -> None:
        with connect(broker.url("phpmq", "/dead")) as client:
            client.publish(b"bad")
            message = client.receive(timeout=10)
            assert message is not None
            message.reject()
        wait_for(lambda: states(flight, "default/dead") == {b"bad": "dead"})
        [row] = flight.rows(view="live", queue="default/dead")
        assert (row["state"], row["reason"], row["deliveries"]) == ("dead", "rejected", 1)

    def test_leased_messages_are_out(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish_many([b"a", b"b"], queue="live/leased")
        flight.act("lease", queue="live/leased", reader="live", instance="1", start=0, max_rows=1)
        assert states(flight, "live/leased") == {b"a": "out", b"b": "ready"}
        assert flight.act("forget-reader", reader="live") is True
        assert states(flight, "live/leased") == {b"a": "ready", b"b": "ready"}


class TestColumns:
    def test_they_equal_those_of_messages(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish(b"x", queue="live/columns", ttl=3600, correlation_id=b"me")
        [published] = flight.rows(queue="live/columns")
        [alive] = flight.rows(view="live", queue="live/columns")
        assert {name: alive[name] for name in published} == published

    def test_some_of_them(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish(b"x", queue="live/some")
        table = flight.read(view="live", queue="live/some", columns=["state", "queue"])
        assert table.to_pylist() == [{"state": "ready", "queue": "some"}]
        assert flight.read(view="live", queue="live/some", columns=["deliveries"]).to_pylist() == [{"deliveries": 0}]

    def test_an_empty_queue(self, flight: Flight, kokaq: Client) -> None:
        kokaq.create_queue("live/empty")
        table = flight.read(view="live", queue="live/empty")
        assert table.num_rows == 0
        assert table.column_names[-3:] == ["state", "deliveries", "reason"]

    def test_many_in_several_batches(self, flight: Flight, kokaq: Client) -> None:
        payloads = [b"%05d" % number for number in range(10_000)]
        kokaq.publish_many(payloads, queue="live/many")
        assert flight.read(view="live", queue="live/many")["payload"].to_pylist() == payloads

    def test_a_missing_queue(self, flight: Flight) -> None:
        assert problem(lambda: flight.read(view="live", queue="live/nothing")).code == "no-queue"


def _batch(**columns: list[Any]) -> Any:
    import pyarrow as pa

    return pa.record_batch(columns)


def test_a_carried_message_is_unchanged(tmp_path: Path) -> None:
    """With tiny segments and short retention, messages that stay are carried forward."""
    journal = {"segment_bytes": 20_000, "retention_seconds": 1, "durability": "os"}
    options: dict[str, Any] = {"flight": {"address": "127.0.0.1:0"}, "journal": journal}
    with (
        BrokerProcess(tmp_path, **options) as small,
        Flight(small.addresses["flight"]) as flight,
        connect(small.url("kokaq")) as client,
    ):
        client.publish_many([b"kept %d" % number for number in range(30)], queue="default/kept", correlation_id=b"c")
        published = flight.rows(queue="default/kept")
        assert len(published) == 30

        def churn() -> bool:
            client.publish_many([bytes(1000)] * 30, queue="default/churn")
            while (message := client.lock("default/churn")) is not None:
                message.ack()
            return flight.act("status")["earliest"] > published[-1]["position"] and carried(small)

        wait_for(churn, "nothing was carried")
        alive = flight.rows(view="live", queue="default/kept")
        assert sorted(alive, key=lambda row: row["position"]) == [
            {**row, "state": "ready", "deliveries": 0, "reason": None} for row in published
        ]
        leased = flight.act("lease", queue="default/kept", reader="r", instance="1", start=0)
        rows = flight.rows(view="leased", reader="r", start=leased["first"], stop=leased["stop"])
        assert rows == published
        found = problem(lambda: flight.read(start=published[0]["position"]))
        assert found.code == "data-loss"
        assert found.lost is not None
        assert flight.read(start=published[0]["position"], accept_loss=True).num_rows >= 0


def carried(broker: BrokerProcess) -> bool:
    """Whether the first segment has been removed."""
    return not (broker.folder / "data" / f"{1:016x}.seg").exists()
