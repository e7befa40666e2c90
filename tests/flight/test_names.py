"""Names of readers and writers belong to the identity that created them, and their number per identity is limited."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.brokers import BrokerProcess
from support.flights import Flight, problem

WRITERS, PARTITIONS, READERS = 4, 6, 3
LIMITS = {"writers_per_identity": WRITERS, "partitions_per_identity": PARTITIONS, "readers_per_identity": READERS}
NOTHING = [pa.record_batch({"payload": pa.array([], pa.string()), "queue": pa.array([], pa.string())})]
#: A much newer epoch: chunks of all older ones count as written.
FAR = 2**62


def rule(token: str, *may: str, where: str = "default/*", **more: Any) -> dict[str, Any]:
    return {"token_sha256": hashlib.sha256(token.encode()).hexdigest(), "may": list(may), "where": [where], **more}


RULES = [
    rule("victim", "publish", "consume", "read"),
    rule("thief", "publish", "consume", "read"),
    rule("old-token", "publish", name="etl"),
    rule("new-token", "publish", name="etl"),
    rule("narrow", "publish", where="default/mine"),
    rule("boss", "publish", "consume", "read", "administer", where="*"),
]


class Callers:
    """A connection per token."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.address = broker.addresses["flight"]
        tokens = ("victim", "thief", "old-token", "new-token", "narrow", "boss")
        self._flights = {token: Flight(self.address, token=token) for token in tokens}

    def __getitem__(self, token: str) -> Flight:
        return self._flights[token]

    def close(self) -> None:
        for flight in self._flights.values():
            flight.client.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    queues: dict[str, Any] = {"default/mine": {}, "default/other": {}}
    options: dict[str, Any] = {"flight": {"address": "127.0.0.1:0"}, "limits": LIMITS, "queues": queues}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), access=RULES, **options) as live:
        yield live


@pytest.fixture
def callers(broker: BrokerProcess) -> Iterator[Callers]:
    """Connections to a broker without names of readers or writers; all names are removed at the end."""
    connections = Callers(broker)
    yield connections
    connections.close()
    with Flight(broker.addresses["flight"], token="boss") as boss:
        for each in boss.act("writers"):
            boss.act("end-writer", writer=each["writer"])
        for each in boss.act("readers"):
            boss.act("forget-reader", reader=each["reader"])


def row(payload: str = "x") -> list[pa.RecordBatch]:
    return [pa.record_batch({"payload": [payload]})]


def lease(**more: Any) -> dict[str, Any]:
    return {"reader": "lake", "instance": "1", "start": 0, "queue": "default/mine", **more}


class TestWriters:
    def test_no_one_writes_under_the_name_of_another(self, broker: BrokerProcess, callers: Callers) -> None:
        """Neither rows, nor an empty chunk, nor a newer epoch that would make the owner's writes count as written."""
        nightly: dict[str, Any] = {"writer": "nightly", "queue": "default/mine"}
        callers["victim"].write(row("a"), **nightly)
        for batches, more in ((row("b"), {"chunk": 1}), (row("b"), {"epoch": FAR}), (NOTHING, {"epoch": FAR})):
            found = problem(partial(callers["thief"].write, batches, **nightly, **more))
            assert (found.code, "'nightly' belongs to another identity" in found.text) == ("denied", True)
        assert problem(lambda: callers["boss"].write(row("b"), **nightly, epoch=FAR)).code == "denied"
        broker.kill()
        broker.start()
        again = Callers(broker)
        assert problem(lambda: again["thief"].write(NOTHING, **nightly, epoch=FAR)).code == "denied"
        assert again["victim"].write(row("a"), **nightly)[0]["duplicate"]
        assert not again["victim"].write(row("c"), **nightly, epoch=1)[0]["duplicate"]
        payloads = [each["payload"] for each in again["victim"].rows(queue="default/mine")]
        assert (payloads.count(b"a"), payloads.count(b"b"), payloads.count(b"c")) == (1, 0, 1)
        again.close()

    def test_an_identity_outlives_its_token(self, callers: Callers) -> None:
        callers["old-token"].write(row(), writer="w", queue="default/mine")
        assert callers["new-token"].write(row(), writer="w", queue="default/mine")[0]["duplicate"]
        assert [each["owner"] for each in callers["boss"].act("writers")] == ["etl"]

    def test_no_one_compares_with_the_writes_of_another(self, callers: Callers) -> None:
        check: dict[str, Any] = {"writer": "nightly", "epoch": 0}
        callers["victim"].write(row(), writer="nightly", queue="default/mine", digest=5)
        assert callers["victim"].act("check-written", **check, parts=[(0, 1, 5)]) is True
        for caller in ("thief", "boss"):
            for parts in ([(0, 1, 5)], [(0, 1, 6)], []):
                assert problem(partial(callers[caller].act, "check-written", **check, parts=parts)).code == "denied"

    def test_an_empty_chunk_needs_a_right_too(self, callers: Callers) -> None:
        begin: dict[str, Any] = {"writer": "begin", "queue": "default/other"}
        assert problem(lambda: callers["narrow"].write(NOTHING, **begin)).code == "denied"
        assert callers["narrow"].write(NOTHING, writer="begin", queue="default/mine")[0]["rows"] == 0

    def test_one_identity_cannot_use_up_all_names(self, callers: Callers) -> None:
        for number in range(WRITERS):
            callers["thief"].write(NOTHING, writer=f"w{number}", queue="default/mine")
        found = problem(lambda: callers["thief"].write(NOTHING, writer="more", queue="default/mine"))
        assert (found.code, found.text.startswith(f"you have {WRITERS} writers already")) == ("refused", True)
        for number in range(1, 1 + PARTITIONS - WRITERS):
            callers["thief"].write(row(), writer="w0", queue="default/mine", partition=number)
        found = problem(lambda: callers["thief"].write(row(), writer="w0", queue="default/mine", partition=99))
        assert (found.code, f"{PARTITIONS} partitions already" in found.text) == ("refused", True)
        # Writes under existing names continue, a new epoch frees names, and other identities have their own limit.
        callers["thief"].write(row(), writer="w0", queue="default/mine", partition=1, chunk=1)
        callers["thief"].write(row(), writer="w0", queue="default/mine", partition=99, epoch=1)
        callers["victim"].write(row(), writer="mine", queue="default/mine")
        assert callers["thief"].act("end-writer", writer="w1") is True
        callers["thief"].write(row(), writer="more", queue="default/mine")

    def test_they_are_listed_and_removed(self, callers: Callers) -> None:
        callers["victim"].write(row(), writer="nightly", queue="default/mine", epoch=3, partition=7)
        callers["thief"].write(row(), writer="other", queue="default/mine")
        [own] = callers["victim"].act("writers")
        assert (own["writer"], own["epoch"], own["partitions"], own["at"] > 0) == ("nightly", 3, 1, True)
        assert own["owner"] == "token " + hashlib.sha256(b"victim").hexdigest()[:16]
        assert [each["writer"] for each in callers["boss"].act("writers")] == ["nightly", "other"]
        assert problem(lambda: callers["thief"].act("end-writer", writer="nightly")).code == "denied"
        assert callers["victim"].act("end-writer", writer="nightly") is True
        assert callers["boss"].act("end-writer", writer="other") is True
        assert callers["boss"].act("writers") == []


class TestReaders:
    def test_no_one_moves_the_pin_of_another(self, broker: BrokerProcess, callers: Callers) -> None:
        pin: dict[str, Any] = {"reader": "lake", "queue": "default/mine", "position": 1, "pin": True}
        callers["victim"].act("progress", **pin)
        found = problem(lambda: callers["thief"].act("progress", **pin | {"pin": False, "position": 5}))
        assert (found.code, "'lake' belongs to another identity" in found.text) == ("denied", True)
        assert problem(lambda: callers["thief"].act("forget-reader", reader="lake")).code == "denied"
        broker.stop()
        broker.start()
        again = Callers(broker)
        assert problem(lambda: again["thief"].act("progress", **pin | {"pin": False})).code == "denied"
        [listed] = again["boss"].act("readers")
        assert (listed["position"], listed["pin"], listed["owner"][:6]) == (1, True, "token ")
        assert again["victim"].act("forget-reader", reader="lake") is True
        again.close()

    def test_no_one_takes_over_or_reads_leases_of_another(self, callers: Callers) -> None:
        callers["victim"].write(row("secret"), writer="w", queue="default/mine")
        found = callers["victim"].act("lease", **lease())
        leased = {"view": "leased", "reader": "lake", "start": found["first"], "stop": found["stop"]}
        for start in (0, found["stop"]):
            taking_over = partial(callers["thief"].act, "lease", **lease(instance="2", start=start))
            assert problem(taking_over).code == "denied"
        assert problem(lambda: callers["thief"].read(**leased)).code == "denied"
        assert [each["payload"] for each in callers["victim"].rows(**leased)][-1] == b"secret"
        assert callers["boss"].act("forget-reader", reader="lake") is True

    def test_one_identity_cannot_use_up_all_names(self, callers: Callers) -> None:
        def report(who: str, reader: str, *, pin: bool) -> None:
            callers[who].act("progress", reader=reader, queue="default/mine", position=1, pin=pin)

        report("victim", "lake", pin=False)
        for number in range(2 * READERS):
            report("thief", f"loose{number}", pin=False)
        # Its own readers that were idle longest are forgotten.
        assert len(callers["thief"].act("readers")) == READERS + 1
        for number in range(READERS):
            report("thief", f"pin{number}", pin=True)
        found = problem(lambda: report("thief", "more", pin=True))
        assert (found.code, f"{READERS} readers of yours have pinned" in found.text) == ("refused", True)
        report("victim", "second", pin=True)
        assert {"lake", "second"} <= {each["reader"] for each in callers["boss"].act("readers")}


def test_without_rules_names_belong_to_their_first_user(tmp_path: Path) -> None:
    options: dict[str, Any] = {"flight": {"address": "127.0.0.1:0"}, "queues": {"default/mine": {}}}
    with BrokerProcess(tmp_path, **options) as live, Flight(live.addresses["flight"], token="any") as flight:
        flight.write(row(), writer="w", queue="default/mine")
        flight.act("progress", reader="r", queue="default/mine", position=1)
        assert [each["owner"] for each in flight.act("writers") + flight.act("readers")] == ["", ""]
    with BrokerProcess(tmp_path, access=RULES, **options) as live:
        callers = Callers(live)
        assert callers["victim"].write(row(), writer="w", queue="default/mine")[0]["duplicate"]
        callers["victim"].write(row(), writer="w", queue="default/mine", chunk=1)
        assert (
            problem(lambda: callers["thief"].write(row(), writer="w", queue="default/mine", chunk=2)).code == "denied"
        )
        callers["victim"].act("progress", reader="r", queue="default/mine", position=1)
        assert problem(lambda: callers["thief"].act("forget-reader", reader="r")).code == "denied"
        callers.close()
