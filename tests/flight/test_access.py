"""Access to the Flight endpoint: tokens, certificates, and what a caller without a right sees."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from support.brokers import BrokerProcess
from support.certificates import Authority
from support.flights import Flight, problem

TOKENS = ("reader", "writer", "consumer", "boss")


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


RULES: list[dict[str, Any]] = [
    {"network": "127.0.0.0/8", "may": ["publish"], "where": ["net"]},
    {"token_sha256": digest("reader"), "may": ["read"], "where": ["default/open", "default/more*"]},
    {"token_sha256": digest("writer"), "may": ["publish"], "where": ["default/open"]},
    {"token_sha256": digest("consumer"), "may": ["consume"], "where": ["default/more*"]},
    {"token_sha256": digest("boss"), "may": ["publish", "consume", "administer", "read"], "where": ["*"]},
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    queues: dict[str, Any] = {
        name: {} for name in ("default/open", "default/more", "default/secret", "other/q", "net/q")
    }
    options: dict[str, Any] = {"flight": {"address": "127.0.0.1:0"}, "access": RULES, "queues": queues}
    with BrokerProcess(tmp_path_factory.mktemp("guarded"), **options) as live:
        with caller(live, "boss") as boss:
            for name in ("open", "more", "secret"):
                boss.write(row(name), queue=f"default/{name}", writer=name)
        yield live


def caller(broker: BrokerProcess, token: str = "") -> Flight:
    return Flight(broker.addresses["flight"], token=token)


def row(payload: str = "x") -> list[pa.RecordBatch]:
    return [pa.record_batch({"payload": [payload]})]


class TestTokens:
    def test_a_reader_sees_only_its_queues(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "reader") as flight:
            assert flight.act("queues") == ["default/more", "default/open"]
            assert flight.act("queues", pattern="*/*e*") == ["default/more", "default/open"]
            assert {each["queue"] for each in flight.rows()} == {"open", "more"}
            assert {each["queue"] for each in flight.rows(view="live")} == {"open", "more"}
            assert {each["queue"] for each in flight.rows(view="events")} == {"open", "more"}
            infos = flight.client.list_flights(b"", flight.options)
            assert [json.loads(info.app_metadata)["queue"] for info in infos] == ["default/more", "default/open"]
            assert flight.act("advance", start=1, max_rows=100)["rows"] == 2

    @pytest.mark.parametrize("queue", ["default/secret", "default/not-there", "other/q"])
    def test_unreadable_queues_are_denied_whether_they_exist_or_not(self, guarded: BrokerProcess, queue: str) -> None:
        with caller(guarded, "reader") as flight:
            for view in ("messages", "events", "live"):
                assert problem(partial(flight.read, view=view, queue=queue)).code == "denied"
            assert problem(lambda: flight.act("plan", queue=queue)).code == "denied"
            assert problem(lambda: flight.info(queue=queue)).code == "denied"
            assert problem(lambda: flight.act("progress", queue=queue, reader="r", position=1)).code == "denied"

    def test_a_reader_may_do_nothing_else(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "reader") as flight:
            assert problem(lambda: flight.write(row(), queue="default/open")).code == "denied"
            request = {"queue": "default/more", "reader": "r", "instance": "1", "start": 0}
            assert problem(lambda: flight.act("lease", **request)).code == "denied"
            assert problem(lambda: flight.act("end-writer", writer="open")).code == "denied"
            with pytest.raises(fl.FlightUnauthorizedError):
                flight.read(queue="default/secret")

    def test_readers_of_other_queues_are_hidden(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "reader") as flight, caller(guarded, "boss") as boss:
            boss.act("progress", reader="one", queue="default/open", position=1)
            boss.act("progress", reader="two", queue="default/secret", position=1)
            assert [each["reader"] for each in flight.act("readers")] == ["one"]
            assert {"one", "two"} <= {each["reader"] for each in boss.act("readers")}

    def test_a_writer(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "writer") as flight:
            assert flight.write(row(), queue="default/open")[0]["rows"] == 1
            assert problem(lambda: flight.write(row(), queue="default/more")).code == "denied"
            assert problem(flight.read).code == "denied"
            assert problem(lambda: flight.act("queues")).code == "denied"

    def test_creating_queues_needs_more_than_publish(self, guarded: BrokerProcess) -> None:
        with caller(guarded) as flight:
            found = problem(lambda: flight.write(row(), queue="net/made", writer="maker", create_queues=True))
            assert (found.code, "administer" in found.text) == ("denied", True)
        with caller(guarded, "boss") as boss:
            assert boss.write(row(), queue="net/made", writer="maker", create_queues=True)[0]["rows"] == 1

    def test_a_consumer(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "consumer") as flight, caller(guarded, "writer") as writer:
            request = {"reader": "r", "instance": "1", "start": 0}
            found = flight.act("lease", queue="default/more", **request)
            leased = {"view": "leased", "reader": "r", "start": found["first"], "stop": found["stop"]}
            assert [each["payload"] for each in flight.rows(**leased)] == [b"more"]
            assert problem(lambda: flight.act("lease", queue="default/open", **request)).code == "denied"
            assert problem(lambda: writer.read(**leased)).code == "denied"
            assert problem(lambda: flight.read(view="live")).code == "denied"

    def test_each_caller_finds_the_queues_of_its_right(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "writer") as writer, caller(guarded, "consumer") as consumer:
            found = writer.act("queues", right="publish")
            assert [name for name in found if name != "net/made"] == ["default/open", "net/q"]
            assert writer.act("queues", right="publish", queue="default/open") == ["default/open"]
            assert consumer.act("queues", right="consume") == ["default/more"]
            assert problem(lambda: writer.act("queues", right="consume")).code == "denied"
            assert problem(lambda: consumer.act("queues", right="publish", queue="default/open")).code == "denied"
            assert consumer.act("progress", view="leased", queue="default/more", position=1)["rows"] <= 1
            assert problem(lambda: writer.act("progress", view="leased", position=1)).code == "denied"

    def test_settling_needs_the_right_to_consume(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "consumer") as consumer, caller(guarded, "boss") as boss:
            theirs = {"reader": "theirs", "queue": "default/secret"}
            found = boss.act("lease", **theirs, instance="1", start=0)
            assert found["rows"] == 1
            request = {"reader": "theirs", "queue": "default/more", "instance": "2", "start": found["stop"]}
            refusal = problem(lambda: consumer.act("lease", **request))
            assert (refusal.code, "'theirs' belongs to another identity" in refusal.text) == ("denied", True)
            assert boss.act("lease", **theirs, instance="1", start=0) == found
            boss.act("forget-reader", reader="theirs")

    def test_a_caller_with_every_right(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "boss") as flight:
            assert "other/q" in flight.act("queues")
            assert flight.act("forget-reader", reader="nobody") is False
            assert "started" in {each["kind"] for each in flight.rows(view="events")}

    def test_an_unknown_token(self, guarded: BrokerProcess) -> None:
        with caller(guarded, "wrong") as flight:
            found = problem(lambda: flight.act("status"))
            assert (found.code, found.text) == ("denied", "the access rules do not know this token")
            with pytest.raises(fl.FlightUnauthenticatedError):
                flight.read()

    def test_without_a_token_the_network_decides(self, guarded: BrokerProcess) -> None:
        with caller(guarded) as flight:
            assert flight.act("status")["earliest"] == 1
            assert problem(flight.read).code == "denied"
            assert flight.write(row(), queue="net/q", writer="network")[0]["rows"] == 1


class TestTLS:
    @pytest.fixture(scope="class")
    @staticmethod
    def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
        return Authority(tmp_path_factory.mktemp("tls") / "ca")

    @pytest.fixture(scope="class")
    @staticmethod
    def secure(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BrokerProcess]:
        server = authority.sign("localhost")
        flight = {
            "address": "127.0.0.1:0", "tls_certificate": str(server.path), "tls_key": str(server.key),
            "tls_client_ca": str(authority.path),
        }  # fmt: skip
        rules = [{"subject": "billing-*", "may": ["read"], "where": ["*"]}]
        with BrokerProcess(tmp_path_factory.mktemp("secure"), flight=flight, access=rules) as live:
            yield live

    def test_the_subject_of_a_certificate(self, secure: BrokerProcess, authority: Authority) -> None:
        assert secure.addresses["flight"].startswith("grpc+tls://127.0.0.1:")
        with Flight(secure.addresses["flight"], **tls_arguments(authority, "billing-1")) as flight:
            assert flight.act("queues") == ["default/sspq"]
        with Flight(secure.addresses["flight"], **tls_arguments(authority, "sales")) as flight:
            assert problem(lambda: flight.act("queues")).code == "denied"

    def test_writing_nothing_still_needs_the_right_to_publish(
        self, secure: BrokerProcess, authority: Authority
    ) -> None:
        nothing = [pa.record_batch({"payload": pa.array([], pa.string()), "queue": pa.array([], pa.string())})]
        with Flight(secure.addresses["flight"], **tls_arguments(authority, "billing-1")) as flight:
            assert problem(lambda: flight.write(nothing, writer="nobody")).code == "denied"

    def test_no_certificate(self, secure: BrokerProcess, authority: Authority) -> None:
        roots: dict[str, Any] = {"tls_root_certs": authority.path.read_bytes(), "override_hostname": "localhost"}
        with Flight(secure.addresses["flight"], **roots) as flight, pytest.raises(fl.FlightUnavailableError):
            flight.act("status")

    def test_a_certificate_of_another_authority(
        self, secure: BrokerProcess, authority: Authority, tmp_path: Path
    ) -> None:
        foreign = Authority(tmp_path / "foreign")
        mixed = {**tls_arguments(foreign, "billing-1"), "tls_root_certs": authority.path.read_bytes()}
        with Flight(secure.addresses["flight"], **mixed) as flight, pytest.raises(fl.FlightUnavailableError):
            flight.act("status")
        other = tls_arguments(foreign, "billing-1")
        with Flight(secure.addresses["flight"], **other) as flight, pytest.raises(fl.FlightUnavailableError):
            flight.act("status")

    def test_a_name_that_does_not_match(self, secure: BrokerProcess, authority: Authority) -> None:
        wrong = {**tls_arguments(authority, "billing-2"), "override_hostname": "elsewhere"}
        with Flight(secure.addresses["flight"], **wrong) as flight, pytest.raises(fl.FlightUnavailableError):
            flight.act("status")


def tls_arguments(authority: Authority, subject: str) -> dict[str, Any]:
    """The TLS arguments of a client that shows this certificate."""
    own = authority.sign(subject)
    return {
        "tls_root_certs": authority.path.read_bytes(),
        "cert_chain": own.path.read_bytes(),
        "private_key": own.key.read_bytes(),
        "override_hostname": "localhost",
    }
