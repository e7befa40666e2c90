"""Spark as a consumer: leases, their rows, and the progress of readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client import connect
from penstock.client.sync import Client
from support.brokers import BrokerProcess
from support.flights import Flight, problem


@pytest.fixture
def kokaq(broker: BrokerProcess) -> Iterator[Client]:
    with connect(broker.url("kokaq")) as client:
        yield client


def lease(flight: Flight, queue: str, start: int = 0, **more: Any) -> Any:
    return flight.act("lease", queue=queue, start=start, **{"reader": queue, "instance": "1", **more})


class TestLeases:
    def test_a_lease_from_start_to_end(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish_many([b"a", b"b", b"c", b"d"], queue="lease/life")
        first = lease(flight, "lease/life", max_rows=2)
        assert first["rows"] == 2
        assert lease(flight, "lease/life", max_rows=2) == first
        rows = flight.rows(view="leased", reader="lease/life", start=first["first"], stop=first["stop"])
        assert [row["payload"] for row in rows] == [b"a", b"b"]
        assert rows == flight.rows(queue="lease/life")[:2]
        taken = kokaq.pop("lease/life")
        assert taken is not None
        assert taken.body == b"c"
        second = lease(flight, "lease/life", start=first["stop"])
        assert second["rows"] == 1
        kinds = [row["kind"] for row in flight.rows(view="events", queue="lease/life")]
        assert kinds.count("acknowledged") == 2
        assert kinds.count("leased") == 2
        assert lease(flight, "lease/life", start=second["stop"], take=False)["rows"] == 0
        assert flight.read(view="live", queue="lease/life").num_rows == 0

    def test_rows_in_slices(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish_many([b"%d" % number for number in range(10)], queue="lease/slices")
        found = lease(flight, "lease/slices")
        whole = {"view": "leased", "reader": "lease/slices", "start": found["first"], "stop": found["stop"]}
        parts = [flight.rows(**whole, columns=["payload"], first_row=at, rows=3) for at in (0, 3, 6)]
        parts.append(flight.rows(**whole, columns=["payload"], first_row=9))
        assert [row["payload"] for part in parts for row in part] == [b"%d" % number for number in range(10)]
        assert problem(lambda: flight.read(**whole, first_row=8, rows=3)).code == "data-loss"
        assert flight.read(**{**whole, "reader": "nobody"}).num_rows == 0
        assert flight.read(**whole, first_row=3, rows=3, total=10).num_rows == 3
        assert problem(lambda: flight.read(**whole, first_row=3, rows=3, total=11)).code == "data-loss"

    def test_in_the_order_of_the_queue(self, flight: Flight, kokaq: Client) -> None:
        for priority in (1, 5, 3):
            kokaq.publish(b"%d" % priority, queue="lease/order", priority=priority)
        found = lease(flight, "lease/order")
        rows = flight.rows(view="leased", reader="lease/order", start=found["first"], stop=found["stop"])
        assert [row["payload"] for row in rows] == [b"5", b"3", b"1"]

    def test_a_newer_query_takes_over(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish_many([b"a", b"b"], queue="lease/over")
        found = lease(flight, "lease/over", max_rows=1)
        assert lease(flight, "lease/over", instance="2") == found
        assert problem(lambda: lease(flight, "lease/over", start=found["stop"])).code == "taken-over"

    def test_forgotten(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish(b"a", queue="lease/forgotten")
        lease(flight, "lease/forgotten")
        assert kokaq.pop("lease/forgotten") is None
        assert flight.act("forget-reader", reader="lease/forgotten") is True
        assert flight.act("forget-reader", reader="lease/forgotten") is False
        assert kokaq.pop("lease/forgotten") is not None

    def test_problems(self, flight: Flight) -> None:
        assert problem(lambda: lease(flight, "lease/nothing")).code == "no-queue"
        assert problem(lambda: lease(flight, "default/sspq", start=2**40)).code == "bad-request"
        assert problem(lambda: lease(flight, "default/sspq", identity="x")).code == "replaced"


class TestProgress:
    def test_lag(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish_many([b"x"] * 10, queue="lag/one")
        kokaq.publish_many([b"x"] * 5, queue="lag/two")
        positions = flight.read(queue="lag/one")["position"].to_pylist()
        reader = {"reader": "lagging", "position": positions[4]}
        lag = flight.act("progress", queue="lag/one", **reader)
        assert lag["rows"] == 6
        assert 0 < lag["seconds"] < 60
        assert flight.act("progress", pattern="lag/*", **reader)["rows"] == 11
        # One more: the creation of the second queue is an event.
        assert flight.act("progress", view="events", pattern="lag/*", **reader)["rows"] == 12
        kokaq.publish(b"x", queue="lag/one")
        assert flight.act("progress", queue="lag/one", **reader)["rows"] == 7
        latest = flight.act("status")["latest"]
        assert flight.act("progress", queue="lag/one", reader="lagging", position=latest) == {
            "rows": 0,
            "seconds": 0,
            "lost_from": 0,
        }

    def test_lag_of_a_consumer(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish_many([b"x"] * 10, queue="lag/consumed")
        reader = {"view": "leased", "queue": "lag/consumed", "reader": "lag/consumed"}
        found = lease(flight, "lag/consumed", max_rows=4)
        lag = flight.act("progress", position=found["stop"], **reader)
        assert lag["rows"] == 6
        assert 0 < lag["seconds"] < 60
        [row] = [row for row in flight.act("readers") if row["reader"] == "lag/consumed"]
        seen = (row["view"], row["where"], row["position"], row["lag_rows"], row["leased"])
        assert seen == ("leased", "lag/consumed", found["stop"], 6, 4)
        lease(flight, "lag/consumed", start=found["stop"])
        assert flight.act("progress", position=found["stop"], **reader) == {"rows": 0, "seconds": 0, "lost_from": 0}

    def test_readers_without_a_name_are_not_recorded(self, flight: Flight) -> None:
        assert flight.act("progress", reader="", position=1)["rows"] > 0
        assert "" not in [row["reader"] for row in flight.act("readers")]

    def test_operators_see_readers(self, flight: Flight, kokaq: Client) -> None:
        kokaq.publish_many([b"x"] * 3, queue="lag/seen")
        flight.act("progress", reader="seen", queue="lag/seen", position=1, pin=True)
        [row] = [row for row in flight.act("readers") if row["reader"] == "seen"]
        assert (row["where"], row["position"], row["lag_rows"], row["pin"]) == ("lag/seen", 1, 3, True)
        assert row["peer"].startswith("127.0.0.1:")
        assert flight.act("forget-reader", reader="seen") is True
        assert "seen" not in [row["reader"] for row in flight.act("readers")]
