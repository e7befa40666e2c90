"""The views of the history, compared with the messages that clients of all protocols sent and with the journal."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from penstock.client import connect
from penstock.journal import open_journal
from penstock.journal.views import arrow
from support.brokers import BrokerProcess, wait_for
from support.flights import Flight, problem

SENT = {"phpmq": "default/php", "sspq": "default/sspq", "kokaq": "default/koka"}


@pytest.fixture(scope="module", autouse=True)
def traffic(broker: BrokerProcess, flight: Flight) -> None:
    """Twenty messages over each protocol, five of which are received and acknowledged."""
    for protocol, queue in SENT.items():
        path = {"phpmq": "/php", "sspq": "", "kokaq": "/default/koka"}[protocol]
        with connect(broker.url(protocol, path)) as client:
            client.publish_many([f"{queue} {number}".encode() for number in range(20)])
            for _ in range(5):
                message = client.receive(timeout=10)
                assert message is not None
                message.ack()
    wait_for(lambda: flight.read(columns=["position"]).num_rows == 60)
    wait_for(lambda: sum(row["kind"] == "acknowledged" for row in flight.rows(view="events")) == 15)
    wait_for(lambda: settled(flight))


def settled(flight: Flight) -> bool:
    """Whether nothing is out: messages of a closed connection are requeued, which is an event, too."""
    return all(row["state"] == "ready" for row in flight.rows(view="live", columns=["state"]))


def journal_of(broker: BrokerProcess) -> str:
    """The URL of a broker's journal; one in memory is found among the file descriptors of its process."""
    if (broker.folder / "data").exists():
        return str(broker.folder / "data")
    numbers = os.listdir(f"/proc/{broker.pid}/fd")
    [listing] = [each for each in numbers if "penstock-listing" in os.readlink(f"/proc/{broker.pid}/fd/{each}")]
    return f"memory:{broker.pid}/{listing}"


class TestMessages:
    @pytest.mark.parametrize("protocol", SENT)
    def test_all_sent_messages_are_returned(self, flight: Flight, protocol: str) -> None:
        queue = SENT[protocol]
        rows = flight.rows(queue=queue)
        assert [row["payload"] for row in rows] == [f"{queue} {number}".encode() for number in range(20)]
        assert {row["protocol"] for row in rows} == {protocol}
        assert {f"{row['namespace']}/{row['queue']}" for row in rows} == {queue}

    def test_all_queues_and_a_pattern(self, flight: Flight) -> None:
        everything = flight.read()
        assert everything.num_rows == 60
        assert flight.read(pattern="default/*").equals(everything)
        assert {row["queue"] for row in flight.rows(pattern="default/?*a*")} == {"koka"}
        assert flight.read(pattern="nothing/*").num_rows == 0

    @pytest.mark.parametrize("view", ["messages", "events"])
    def test_rows_equal_the_journal(self, broker: BrokerProcess, flight: Flight, view: str) -> None:
        reader = open_journal(journal_of(broker)).follow()
        stop = reader.latest
        local = pa.Table.from_batches(arrow.read(reader, view, reader.earliest, stop))
        assert flight.read(view=view, stop=stop).equals(local)
        reader.close()

    def test_a_range_and_columns(self, flight: Flight) -> None:
        positions = flight.read(columns=["position"])["position"].to_pylist()
        found = flight.read(start=positions[3], stop=positions[7], columns=["payload", "position"])
        assert found.column_names == ["payload", "position"]
        assert found["position"].to_pylist() == positions[3:7]

    def test_many_reads_at_once(self, flight: Flight) -> None:
        everything = flight.read()
        with ThreadPoolExecutor(8) as pool:
            assert all(found.equals(everything) for found in pool.map(lambda _: flight.read(), range(32)))


class TestEvents:
    def test_the_life_of_messages(self, flight: Flight) -> None:
        rows = flight.rows(view="events", queue="default/php")
        assert [row["kind"] for row in rows].count("acknowledged") == 5
        ends = [row for row in rows if row["kind"] == "acknowledged"]
        assert {row["protocol"] for row in ends} == {"phpmq"}
        assert all(row["deliveries"] == 1 for row in ends)


class TestPlanning:
    def test_status(self, flight: Flight) -> None:
        status = flight.act("status")
        assert status["earliest"] == 1
        assert len(status["identity"]) == 16
        assert status["latest"] == flight.rows(view="events", columns=["position"])[-1]["position"] + 1

    def test_queues(self, flight: Flight) -> None:
        assert flight.act("queues") == ["default/koka", "default/php", "default/sspq"]
        assert flight.act("queues", pattern="default/p*") == ["default/php"]
        assert flight.act_raw("queues", b"") == flight.act_raw("queues", b'{"type": "queues"}')

    def test_locate(self, flight: Flight) -> None:
        events = flight.rows(view="events", columns=["position", "at"])
        middle = events[len(events) // 2]
        at = round(middle["at"].timestamp() * 1e6)
        found = flight.act("locate", at=at)
        assert found == next(row["position"] for row in events if row["at"] >= middle["at"])
        assert flight.act("locate", at=2**62) == flight.act("status")["latest"]

    def test_advance_by_rows(self, flight: Flight) -> None:
        positions = flight.read(queue="default/koka")["position"].to_pylist()
        found = flight.act("advance", queue="default/koka", start=1, max_rows=3)
        assert found["rows"] == 3
        assert found["stop"] == positions[2] + 1
        assert flight.read(queue="default/koka", start=1, stop=found["stop"]).num_rows == 3

    def test_advance_by_bytes_includes_at_least_one_row(self, flight: Flight) -> None:
        rows = flight.rows(queue="default/koka")
        assert flight.act("advance", queue="default/koka", start=1, max_bytes=1)["rows"] == 1
        three = sum(len(row["payload"]) for row in rows[:3])
        assert flight.act("advance", queue="default/koka", start=1, max_bytes=three) == {
            "stop": rows[2]["position"] + 1, "rows": 3, "bytes": three,
        }  # fmt: skip
        assert flight.act("advance", queue="default/koka", start=1, max_bytes=three + 1)["rows"] == 3

    def test_advance_to_the_end(self, flight: Flight) -> None:
        latest = flight.act("status")["latest"]
        assert flight.act("advance", start=1)["stop"] == latest
        size = sum(len(row["payload"]) for row in flight.rows())
        assert flight.act("advance", start=1, max_rows=1000) == {"stop": latest, "rows": 60, "bytes": size}

    @pytest.mark.parametrize("limit", [{"max_rows": 7}, {"max_bytes": 100}, {"max_rows": 3, "max_bytes": 45}])
    @pytest.mark.parametrize("view", ["messages", "events"])
    def test_step_by_step_nothing_is_missed(self, flight: Flight, view: str, limit: dict[str, int]) -> None:
        latest, start, rows = flight.act("status")["latest"], 1, []
        while start < latest:
            step = flight.act("advance", view=view, start=start, stop=latest, **limit)
            assert start < step["stop"] <= latest
            part = flight.rows(view=view, start=start, stop=step["stop"])
            assert len(part) == step["rows"]
            rows += part
            start = step["stop"]
        assert rows == flight.rows(view=view, stop=latest)

    @pytest.mark.parametrize("partitions", [1, 2, 7, 50])
    def test_the_parts_of_a_plan_are_complete(self, flight: Flight, partitions: int) -> None:
        plan = flight.act("plan", partitions=partitions)
        assert len(plan["ranges"]) == partitions
        assert plan["losses"] == []
        parts = [flight.read(start=start, stop=stop, identity=plan["identity"]) for start, stop in plan["ranges"]]
        assert pa.concat_tables(parts).to_pylist() == flight.rows()

    def test_more_parts_than_positions(self, flight: Flight) -> None:
        assert flight.act("plan", start=5, stop=8, partitions=100)["ranges"] == [[5, 6], [6, 7], [7, 8]]
        assert flight.act("plan", start=5, stop=5, partitions=3)["ranges"] == []


class TestInfo:
    def test_a_flight_for_each_queue(self, flight: Flight) -> None:
        infos = list(flight.client.list_flights(b"", flight.options))
        queues = {json.loads(info.app_metadata)["queue"]: json.loads(info.app_metadata) for info in infos}
        assert {queue: facts["messages"] for queue, facts in queues.items()} == dict.fromkeys(sorted(SENT.values()), 20)
        assert all(facts["exact"] for facts in queues.values())
        assert [info.total_records for info in infos] == [20, 20, 20]
        assert infos[0].schema == arrow.MESSAGES
        table = flight.client.do_get(infos[0].endpoints[0].ticket, flight.options).read_all()
        assert table.equals(flight.read(queue="default/koka"))

    def test_flights_of_a_pattern(self, flight: Flight) -> None:
        infos = flight.client.list_flights(b'{"pattern": "*/php"}', flight.options)
        assert [json.loads(info.app_metadata)["queue"] for info in infos] == ["default/php"]

    def test_parts_of_a_read(self, flight: Flight) -> None:
        info = flight.info(queue="default/php", columns=["payload"], partitions=4)
        assert len(info.endpoints) == 4
        parts = [flight.client.do_get(part.ticket, flight.options).read_all() for part in info.endpoints]
        assert pa.concat_tables(parts).equals(flight.read(queue="default/php", columns=["payload"]).combine_chunks())
        assert info.schema == parts[0].schema

    def test_a_queue_as_a_path(self, flight: Flight) -> None:
        for path in (("default", "php"), ("default/php",)):
            info = flight.client.get_flight_info(fl.FlightDescriptor.for_path(*path), flight.options)
            assert flight.client.do_get(info.endpoints[0].ticket, flight.options).read_all().num_rows == 20

    def test_a_schema(self, flight: Flight) -> None:
        command = fl.FlightDescriptor.for_command(b'{"view": "events", "columns": ["kind"]}')
        assert flight.client.get_schema(command, flight.options).schema.names == ["kind"]

    def test_actions_are_listed(self, flight: Flight) -> None:
        actions = {action.type: action.description for action in flight.client.list_actions(flight.options)}
        assert {"status", "lease", "forget-reader"} <= set(actions)
        assert all(actions.values())


class TestProblems:
    def test_a_missing_queue(self, flight: Flight) -> None:
        found = problem(lambda: flight.read(queue="default/nothing"))
        assert (found.code, found.text) == ("no-queue", "there is no queue default/nothing")
        assert flight.read(queue="default/nothing", accept_loss=True).num_rows == 0
        assert problem(lambda: flight.act("plan", queue="a/b")).code == "no-queue"

    def test_beyond_the_end(self, flight: Flight) -> None:
        latest = flight.act("status")["latest"]
        found = problem(lambda: flight.read(start=latest + 5))
        assert (found.code, found.lost) == ("data-loss", (latest, latest + 5))
        assert problem(lambda: flight.read(start=1, stop=latest + 5)).code == "data-loss"
        assert flight.read(start=latest + 5, accept_loss=True).num_rows == 0
        assert flight.read(start=latest).num_rows == 0

    def test_another_journal(self, flight: Flight) -> None:
        assert problem(lambda: flight.read(identity="0123456789abcdef")).code == "replaced"
        assert problem(lambda: flight.act("advance", start=1, identity="x")).code == "replaced"

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"queue": "default/php", "pattern": "*"}, "can't both be given"),
            ({"queue": "php"}, "namespace/queue"),
            ({"view": "nothing"}, "nothing"),
            ({"columns": ["payload", "x"]}, "no column x; it has position"),
            ({"columns": ["payload", "payload"]}, "twice"),
            ({"start": -1}, "start is -1"),
            ({"start": 9, "stop": 3}, "ends before it starts"),
            ({"start": 2**64}, "start is"),
            ({"start": "1"}, "Expected `int`"),
            ({"nonsense": 1}, "nonsense"),
            ({"view": "live", "start": 3}, "live has no range"),
            ({"view": "leased"}, "needs a reader: give its name"),
            ({"view": "leased", "reader": "x", "queue": "default/php"}, "leave queue and pattern out"),
        ],
    )
    def test_bad_reads(self, flight: Flight, values: dict[str, object], words: str) -> None:
        found = problem(lambda: flight.read(**values))
        assert found.code == "bad-request"
        assert words in found.text

    @pytest.mark.parametrize("ticket", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"x"', b"{}}", b'{"columns": {}}'])
    def test_malformed_tickets(self, flight: Flight, ticket: bytes) -> None:
        assert problem(lambda: flight.read_raw(ticket)).code == "bad-request"

    @pytest.mark.parametrize(
        ("action", "body"),
        [
            ("nothing", b""), ("status", b"["), ("status", b"1"), ("status", b'{"type": "queues"}'),
            ("locate", b"{}"), ("locate", b'{"at": "x"}'), ("advance", b'{"start": 1, "view": "live"}'),
            ("advance", b'{"start": 1, "max_rows": -1}'), ("plan", b'{"part_bytes": 0}'),
            ("plan", b'{"view": "leased"}'), ("lease", b"{}"), ("progress", b'{"reader": "\\u0000", "position": 1}'),
            ("lease", b'{"reader": "a", "instance": "b", "start": 0, "timeout": 0}'), ("queues", b"\xff"),
            ("queues", b'{"queue": "x", "more": 1}'),
        ],
    )  # fmt: skip
    def test_bad_actions(self, flight: Flight, action: str, body: bytes) -> None:
        assert problem(lambda: flight.act_raw(action, body)).code == "bad-request"

    def test_no_request_caused_an_internal_error(self, broker: BrokerProcess) -> None:
        assert "fault" not in broker.log.read_text()
