"""Record batches become messages: atomically, confirmed, exactly once."""

from __future__ import annotations

import datetime
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.client import connect
from penstock.flight.flight_requests import CHUNK_BYTES, CHUNK_ROWS
from penstock.flight.flight_server import Endpoint
from support.brokers import BrokerProcess
from support.flights import Flight, problem


@pytest.fixture(scope="module", autouse=True)
def queues(broker: BrokerProcess) -> None:
    with connect(broker.url("kokaq")) as client:
        client.create_namespace("write")
        for name in ("one", "two", "types"):
            client.create_queue(f"write/{name}")


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


def payloads(flight: Flight, queue: str) -> list[bytes]:
    found: list[bytes] = flight.read(queue=queue, columns=["payload"])["payload"].to_pylist()
    return found


class TestWriting:
    def test_chunks_are_numbered_and_confirmed(self, flight: Flight) -> None:
        chunks = [batch(payload=[b"a", b"b"]), batch(payload=[b"c"])]
        assert flight.write(chunks, queue="write/one", writer="numbers") == [
            {"chunk": 0, "rows": 2, "duplicate": False}, {"chunk": 1, "rows": 1, "duplicate": False},
        ]  # fmt: skip
        assert payloads(flight, "write/one")[-3:] == [b"a", b"b", b"c"]
        again = flight.write(chunks, queue="write/one", writer="numbers")
        assert [each["duplicate"] for each in again] == [True, True]
        assert flight.write([batch(payload=[b"d"])], queue="write/one", writer="numbers", chunk=2)[0]["rows"] == 1
        assert payloads(flight, "write/one")[-4:] == [b"a", b"b", b"c", b"d"]

    def test_a_writer_that_disconnected_before_its_answer_is_no_error(self) -> None:
        def fail(answer: Any) -> None:
            raise OSError("Unknown error writing metadata.")

        answered, faults = [1, 2], list[BaseException]()
        service = SimpleNamespace(
            callers=SimpleNamespace(caller=lambda context: None), write=lambda *_: (answered.pop(0) for _ in range(2))
        )
        endpoint: Any = SimpleNamespace(_report=faults.append, _service=service)
        call = SimpleNamespace(command=b'{"queue": "write/one", "writer": "fail"}')
        Endpoint.do_put(endpoint, None, call, pa.table({"payload": [b""]}).to_reader(), SimpleNamespace(write=fail))
        assert faults == []
        assert answered == [2], "no further chunk is written"

    def test_retries_with_other_rows(self, flight: Flight) -> None:
        write = {"queue": "write/one", "writer": "digests", "epoch": 1}
        first, second = ([batch(payload=[text])] for text in (b"first", b"second"))
        for digest, rows in ((5, first), (5, first)):
            flight.write(rows, **write, digest=digest)
        before = payloads(flight, "write/one")
        found = problem(lambda: flight.write(second, **write, digest=6))
        assert (found.code, "partition 0 differ from those accepted before" in found.text) == ("differs", True)
        assert payloads(flight, "write/one") == before
        assert flight.act("check-written", writer="digests", epoch=1, parts=[(0, 1, 5)]) is True
        for parts in ([], [(0, 1, 6)], [(0, 2, 5)], [(0, 1, 5), (1, 1, 1)]):
            found = problem(partial(flight.act, "check-written", writer="digests", epoch=1, parts=parts))
            assert found.code == "differs"
        found = problem(lambda: flight.write([*first, *second], **write, chunk=1, digest=7))
        assert (found.code, "a call with a digest has one batch" in found.text) == ("bad-request", True)

    def test_epochs(self, flight: Flight) -> None:
        for epoch in (5, 6):
            flight.write([batch(payload=[b"epoch %d" % epoch])], queue="write/one", writer="epochs", epoch=epoch)
        [late] = flight.write([batch(payload=[b"late"])], queue="write/one", writer="epochs", epoch=5)
        assert late["duplicate"]
        assert payloads(flight, "write/one")[-2:] == [b"epoch 5", b"epoch 6"]
        assert flight.act("end-writer", writer="epochs") is True
        assert flight.act("end-writer", writer="epochs") is False

    def test_a_writer_that_has_ended_accepts_nothing_more(self, flight: Flight) -> None:
        write = {"queue": "write/one", "writer": "batch-ended"}
        rows, before = [batch(payload=[b"late"])], payloads(flight, "write/one")
        found = problem(lambda: flight.write(rows, **write, begun=True))
        assert (found.code, "writer 'batch-ended' has ended, or was never begun" in found.text) == ("bad-request", True)
        flight.write([batch(payload=pa.array([], pa.binary()))], **write, partition=7)
        assert flight.write(rows, **write, begun=True)[0]["rows"] == 1
        assert flight.act("end-writer", writer="batch-ended") is True
        assert problem(lambda: flight.write(rows, **write, begun=True)).code == "bad-request"
        assert payloads(flight, "write/one") == [*before, b"late"]

    def test_several_queues(self, flight: Flight) -> None:
        rows = batch(payload=["a", "b", "c"], queue=["write/two", None, "write/two"])
        flight.write([rows], queue="write/one", writer="several")
        assert payloads(flight, "write/two")[-2:] == [b"a", b"c"]
        assert payloads(flight, "write/one")[-1:] == [b"b"]

    def test_a_chunk_is_all_or_nothing(self, flight: Flight) -> None:
        before = payloads(flight, "write/one")
        rows = batch(payload=["a", "b"], queue=["write/one", "write/nothing"])
        assert problem(lambda: flight.write([rows], writer="atomic")).code == "no-queue"
        assert payloads(flight, "write/one") == before

    def test_queues_are_created_on_request(self, flight: Flight) -> None:
        flight.write([batch(payload=["x"])], queue="write/made", writer="maker", create_queues=True)
        assert payloads(flight, "write/made") == [b"x"]

    def test_every_type_of_every_column(self, flight: Flight) -> None:
        hour = datetime.timedelta(hours=1)
        variants = [
            batch(
                payload=pa.array(["p"], pa.large_string()), ttl=[3600], delay=[0.0], priority=[7], correlation_id=["c"]
            ),
            batch(
                payload=pa.array([b"p"], pa.large_binary()),
                queue=pa.array(["write/types"], pa.large_string()),
                ttl=pa.array([hour], pa.duration("ns")),
                delay=pa.array([None], pa.duration("s")),
                priority=pa.array([Decimal(7)], pa.decimal128(20, 0)),
                correlation_id=pa.array([b"c"], pa.large_binary()),
            ),
            batch(
                payload=pa.array([b"p"], pa.binary_view()),
                queue=pa.array(["write/types"]).dictionary_encode(),
                ttl=pa.array([3600], pa.uint16()),
                priority=pa.array([7], pa.uint8()),
                correlation_id=pa.array(["c"], pa.string_view()),
            ),
        ]
        for number, variant in enumerate(variants):
            flight.write([variant], queue="write/types", writer=f"type {number}")
        rows = flight.rows(queue="write/types")
        assert len(rows) == 3
        for row in rows:
            assert (row["payload"], row["priority"], row["correlation_id"]) == (b"p", 7, b"c")
            assert row["expires_at"] - row["published_at"] == hour
            assert row["protocol"] == "flight"

    def test_nulls_become_defaults(self, flight: Flight) -> None:
        empty = {"ttl": pa.array([None], pa.int64()), "priority": pa.array([None], pa.int32())}
        rows = batch(payload=[b""], correlation_id=pa.array([None], pa.binary()), **empty)
        flight.write([rows], queue="write/one", writer="nulls")
        row = flight.rows(queue="write/one")[-1]
        values = (row["payload"], row["priority"], row["expires_at"], row["correlation_id"])
        assert values == (b"", 0, None, None)


class TestProblems:
    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ({"queue": ["write/one"]}, "the column payload is missing"),
            ({"payload": [1]}, "the column payload is int64; it must be binary or string"),
            ({"payload": ["x"], "more": [1]}, "there is no column more; columns are: payload, queue"),
            ({"payload": pa.array(["x", None])}, "row 1 has no payload"),
            ({"payload": ["x"], "queue": ["no slash"]}, "namespace/queue"),
            ({"payload": ["x"], "queue": [7]}, "the column queue is int64"),
            ({"payload": ["x"], "ttl": ["soon"]}, "a duration, or seconds"),
            ({"payload": ["x", "y"], "ttl": [1, -1]}, "row 1: ttl is -1; it must be from 0"),
            ({"payload": ["x"], "delay": [float("nan")]}, "row 0: delay is nan"),
            ({"payload": ["x"], "delay": [1e300]}, "row 0: delay"),
            ({"payload": ["x"], "priority": [-1]}, "whole number from 0"),
            ({"payload": ["x"], "priority": [1.5]}, "the column priority is double"),
            ({"payload": ["x"], "correlation_id": ["x" * 300]}, "255 bytes at most"),
            ({"payload": ["x"] * (CHUNK_ROWS + 1)}, "rows at most"),
            ({"payload": [bytes(CHUNK_BYTES // 2 + 1)] * 2}, "bytes of payloads at most"),
        ],
    )
    def test_bad_batches(self, flight: Flight, columns: dict[str, Any], words: str) -> None:
        found = problem(lambda: flight.write([batch(**columns)], queue="write/one", writer="bad"))
        assert found.code == "bad-request"
        assert words in found.text

    def test_bad_descriptors(self, flight: Flight) -> None:
        rows = [batch(payload=["x"])]
        assert "no queue" in problem(lambda: flight.write(rows)).text
        assert "namespace/queue" in problem(lambda: flight.write(rows, queue="x")).text
        assert "writer" in problem(lambda: flight.write(rows, queue="write/one", writer="")).text
        assert "epoch is -1" in problem(lambda: flight.write(rows, queue="write/one", epoch=-1)).text
        assert "nonsense" in problem(lambda: flight.write(rows, queue="write/one", nonsense=1)).text

    def test_a_chunk_out_of_order(self, flight: Flight) -> None:
        rows = [batch(payload=["x"])]
        assert problem(lambda: flight.write(rows, queue="write/one", writer="order", chunk=3)).code == "bad-request"

    def test_no_request_caused_an_internal_error(self, broker: BrokerProcess) -> None:
        assert "fault" not in broker.log.read_text()


class TestRefused:
    def test_a_full_queue(self, tmp_path: Any) -> None:
        queues = {"default/small": {"max_depth": 2}}
        options: dict[str, Any] = {"flight": {"address": "127.0.0.1:0"}, "queues": queues}
        with BrokerProcess(tmp_path, **options) as broker, Flight(broker.addresses["flight"]) as flight:
            rows = [batch(payload=["a", "b", "c"])]
            assert problem(lambda: flight.write(rows, queue="default/small")).code == "refused"
            assert flight.read(queue="default/small").num_rows == 0
            assert flight.write([batch(payload=["a"])], queue="default/small")[0]["rows"] == 1
