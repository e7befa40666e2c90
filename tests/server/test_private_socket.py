"""The private socket: every request of flight/flight_requests.py, on real brokers that are stopped and killed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.companions.framing import FRAME_BYTES, Refusal
from penstock.companions.readers_and_writers import DropReader, DropWriter, ReaderRow, Readers
from penstock.companions.rights import Allowed, AskRights
from penstock.flight import flight_requests as requests
from penstock.flight.calls import Written
from penstock.server.companions.private_socket import MOST_CONNECTIONS, PrivateSocket
from penstock.server.process.local_folder import LocalFolder
from support.brokers import BrokerProcess, wait_for
from support.inprocess import InProcess, running
from support.privatesocket import Helper, flight_table, lease, write
from support.raw import ACQUIRE, CREATE, DELETE, FAIL_NOT_ALLOWED, FAIL_OK, POP, PUSH, SUCCESS_OK, Kokaq

TABLES = """
[[kokaq]]
address = "127.0.0.1:0"
[queues."default/a"]
[queues."default/b"]
[queues."default/small"]
max_depth = 3
"""
OFF: dict[str, Any] = {"phpmq": "off", "sspq": "off"}
TOKEN = "a token that is hard to guess"
RULES = f"""
[[access]]
token_sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest().upper()}"
may = ["read", "publish"]
where = ["default/*"]
[[access]]
network = "10.0.0.0/8"
may = ["consume"]
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, TABLES, **OFF) as broker:
        yield broker
        assert broker.events("private socket: a request failed") == []


@pytest.fixture
def helper(broker: BrokerProcess) -> Iterator[Helper]:
    helper = Helper(broker.private_socket)
    yield helper
    helper.close()


def numbers(kind: str, *values: int) -> bytes:
    return array(kind, values).tobytes()


#: Refused requests and their errors.
WRONG_LEASES: list[tuple[dict[str, Any], str]] = [
    ({"reader": ""}, "a reader has a name of 1 to 255 bytes, not 0"),
    ({"reader": "x" * 256}, "not 256"),
    ({"timeout": 0}, "a lease lasts 1 to"),
    ({"start": -1}, "numbers from 0"),
    ({"start": 10**9}, "start 1000000000 is after the end of the journal"),
]
WRONG_CHUNKS: list[tuple[dict[str, Any], str]] = [
    ({"chunk": 1}, "chunk 1 of writer 'job', epoch 0, partition 0 comes too early: the next is chunk 0"),
    ({"writer": ""}, "a writer has a name"),
    ({"epoch": -1}, "numbers from 0"),
    ({"queue": b""}, "every row has the index of one of the queues"),
    ({"queue": numbers("I", 0, 7)}, "every row has the index of one of the queues"),
    ({"queue": b"abc"}, "queue has 3 bytes where 2 rows need 8"),
    ({"ttl": numbers("q", 1)}, "ttl has 8 bytes where 2 rows need 16"),
    ({"ttl": numbers("q", -2, 0)}, "ttl is -1 to"),
    ({"delay": numbers("q", -1, 0)}, "delay is 0 to"),
    ({"correlation_ids": [b"x"]}, "every row has a correlation_id, or none has"),
    ({"correlation_ids": [b"x", bytes(256)]}, "a correlation_id has 255 bytes at most, not 256"),
    ({"queues": ["nowhere"]}, "a queue is namespace/name"),
    ({"payloads": [b"", bytes(2**24 + 1)]}, "a payload has 16777216 bytes at most (limits.payload_bytes)"),
    ({"payloads": [b""] * (requests.CHUNK_ROWS + 1)}, "a chunk has 100000 rows at most, not 100001"),
    ({"payloads": [bytes(2**20)] * 25}, "a chunk has 25165824 bytes at most, not 26214400"),
]


class TestTheSocket:
    def test_it_is_for_the_brokers_user_alone(self, broker: BrokerProcess) -> None:
        folder = broker.private_socket.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == os.getuid()

    def test_it_goes_with_the_broker(self, broker: BrokerProcess) -> None:
        folder = broker.private_socket.parent
        assert broker.stop() == 0
        assert not folder.exists()
        assert not (broker.data / "broker-socket").exists()

    def test_the_next_broker_removes_a_killed_ones_socket(self, broker: BrokerProcess) -> None:
        left = broker.private_socket.parent
        broker.kill()
        assert left.exists()
        broker.start()
        assert not left.exists()
        assert broker.private_socket.exists()

    @pytest.mark.parametrize("note", ["/", "/etc", "/nowhere/penstock-x", "\udcff"])
    def test_a_strange_note_does_no_harm(self, broker: BrokerProcess, note: str) -> None:
        broker.stop()
        (broker.data / "broker-socket").write_bytes(note.encode("utf-8", "surrogateescape"))
        broker.start()
        assert broker.private_socket.exists()

    def test_a_frame_that_can_not_be_understood_ends_its_connection_only(
        self, broker: BrokerProcess, helper: Helper
    ) -> None:
        for frame in (b"", b"\xc1", b"\x80", msgspec.msgpack.encode({"type": "lease"}), b"\x81\xa4type\xa3who"):
            other = Helper(broker.private_socket)
            other.send_raw(frame)
            problem = other.refusal()
            assert (problem.code, "this is not a request" in problem.text) == ("bad-request", True)
            with pytest.raises(EOFError):
                other.read(1)
            other.close()
        assert helper.lease().rows == 0

    def test_a_frame_that_is_too_long_is_not_waited_for(self, broker: BrokerProcess) -> None:
        other = Helper(broker.private_socket)
        other.socket.sendall(struct.pack("<I", FRAME_BYTES + 1))
        assert "a frame has" in other.refusal().text
        other.close()

    def test_a_client_that_hangs_up_mid_frame_is_forgotten(self, broker: BrokerProcess, helper: Helper) -> None:
        other = Helper(broker.private_socket)
        other.socket.sendall(struct.pack("<I", 1000) + b"half")
        other.close()
        assert helper.lease().rows == 0

    def test_connections_are_limited(self, broker: BrokerProcess) -> None:
        helpers = [Helper(broker.private_socket) for _ in range(MOST_CONNECTIONS)]
        for each in helpers:
            assert each.ask(Readers(), list[ReaderRow]) == []
        more = Helper(broker.private_socket)
        with pytest.raises((EOFError, ConnectionError)):
            more.ask(Readers(), list[ReaderRow])
        for each in (*helpers, more):
            each.close()


class TestRights:
    def test_without_rules_all_is_open(self, helper: Helper) -> None:
        allowed = helper.ask(AskRights(address="192.0.2.1"), Allowed)
        assert (allowed.open, allowed.unknown_token, allowed.rules) == (True, False, [])
        shown = helper.ask(AskRights(address="192.0.2.1", token="x"), Allowed)
        assert (shown.open, shown.unknown_token, shown.identity) == (True, False, "")

    def test_rules_by_token_and_network(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path, TABLES + RULES, **OFF) as broker:
            helper = Helper(broker.private_socket)

            def ask(address: str, token: str = "") -> tuple[bool, list[list[str]]]:
                allowed = helper.ask(AskRights(address=address, token=token), Allowed)
                assert not allowed.open
                return allowed.unknown_token, [list(may) for may, _ in allowed.rules]

            assert ask("192.0.2.1") == (False, [])
            assert ask("192.0.2.1", TOKEN) == (False, [["read", "publish"]])
            assert ask("192.0.2.1", "wrong") == (True, [])
            assert ask("10.1.2.3", "wrong") == (True, [["consume"]])
            assert ask("10.1.2.3", TOKEN) == (False, [["read", "publish"], ["consume"]])
            helper.close()
            assert broker.dial("kokaq", kind=Kokaq).ask(PUSH, "default/a", b"x").outcome == FAIL_NOT_ALLOWED


class TestOuts:
    def test_messages_out_on_other_connections(self, broker: BrokerProcess, helper: Helper) -> None:
        helper.write([b"1", b"2", b"3"])
        leased = helper.lease(max_rows=1)
        peer = broker.dial("kokaq", kind=Kokaq)
        assert peer.ask(ACQUIRE, "default/a").outcome == SUCCESS_OK
        [message] = helper.rows(leased)
        outs = helper.ask(requests.Outs(), requests.OutNow)
        assert list(memoryview(outs.messages).cast("Q")) == [message + 1]
        assert outs.position == leased.stop


class TestLeases:
    def test_a_repeated_lease_is_the_same_and_a_later_one_settles(self, broker: BrokerProcess, helper: Helper) -> None:
        helper.write([b"%d" % i for i in range(10)])
        first = helper.lease(max_rows=4)
        assert (first.rows, first.bytes) == (4, 4)
        rows = helper.rows(first)
        assert helper.lease(max_rows=9) == first  # with start 0: the outstanding leases
        assert helper.lease(first.first, max_rows=9) == first
        second = helper.lease(first.stop, max_rows=4)
        assert helper.lease(first.stop) == second
        assert helper.rows(second) == [row + 4 for row in rows]
        assert helper.rows(first) == []
        assert helper.lease(second.stop, take=False) == requests.Leased(
            first=second.stop, stop=second.stop, rows=0, bytes=0
        )
        assert broker.dial("kokaq", kind=Kokaq).ask(POP, "default/a").payload == b"8"

    def test_leased_messages_belong_to_the_lease(self, broker: BrokerProcess, helper: Helper) -> None:
        peer = broker.dial("kokaq", kind=Kokaq)
        peer.ask(PUSH, "default/a", b"x")
        assert helper.lease().rows == 1
        assert peer.ask(POP, "default/a").outcome == FAIL_OK
        assert peer.ask(DELETE, "default/a").outcome == FAIL_NOT_ALLOWED
        assert helper.lease(reader="other").rows == 0

    def test_several_queues_share_the_limits(self, helper: Helper) -> None:
        queues = ["default/a", "default/b"]
        which = numbers("I", *[0] * 10, *[1] * 3)
        helper.write([b"x"] * 13, queues=queues, queue=which)
        leased = helper.lease(queues=[*queues, "default/gone"], max_rows=8)
        assert leased.rows == 8
        rest = helper.lease(leased.stop, queues=queues)
        assert rest.rows == 5
        assert helper.lease(rest.stop, queues=queues).rows == 0

    def test_bytes_are_limited_but_for_the_first_message(self, helper: Helper) -> None:
        helper.write([bytes(100), bytes(10), bytes(10), bytes(10)])
        first = helper.lease(max_bytes=25)
        assert (first.rows, first.bytes) == (1, 100)
        second = helper.lease(first.stop, max_bytes=25)
        assert (second.rows, second.bytes) == (2, 20)

    def test_many_messages_make_several_leases(self, helper: Helper) -> None:
        for chunk in range(3):
            helper.write([b"x"] * 10_000, chunk)
        leased = helper.lease()
        assert (leased.rows, leased.stop - leased.first >= 3) == (30_000, True)
        rows = helper.rows(leased)
        assert len(rows) == 30_000
        assert rows == sorted(rows)
        assert helper.lease(leased.stop).rows == 0

    def test_leases_that_time_out_go_back(self, broker: BrokerProcess, helper: Helper) -> None:
        helper.write([b"x"])
        leased = helper.lease(timeout=50_000)
        wait_for(lambda: helper.rows(leased) == [])
        assert broker.dial("kokaq", kind=Kokaq).ask(POP, "default/a").payload == b"x"

    def test_the_newest_query_takes_over(self, helper: Helper) -> None:
        helper.write([b"x"])
        first = helper.lease(instance="one")
        assert helper.lease(first.first, instance="two") == first
        problem = helper.refusal(lease(first.stop, instance="one"))
        assert problem.code == "taken-over"
        assert "another query leases as 'lake'" in problem.text
        assert helper.lease(first.stop, instance="two").rows == 0

    def test_a_restart_remembers_take_overs(self, broker: BrokerProcess, helper: Helper) -> None:
        helper.lease(instance="one")
        helper.lease(instance="two")
        broker.stop()
        broker.start()
        again = Helper(broker.private_socket)
        assert again.refusal(lease(instance="one")).code == "taken-over"
        assert again.lease(instance="two").rows == 0
        again.close()

    def test_leases_survive_a_kill(self, broker: BrokerProcess, helper: Helper) -> None:
        helper.write([b"%d" % i for i in range(9)], priority=numbers("Q", *[0, 5, 1] * 3))
        leased = helper.lease(max_rows=5)
        rows = helper.rows(leased)
        for _ in range(3):
            broker.kill()
            broker.start()
            again = Helper(broker.private_socket)
            assert again.lease() == leased
            assert again.rows(leased) == rows
            again.close()
        again = Helper(broker.private_socket)
        rest = again.lease(leased.stop)
        assert rest.rows == 4
        assert not set(again.rows(rest)) & set(rows)
        again.close()
        broker.kill()
        broker.start()
        again = Helper(broker.private_socket)
        assert again.lease(leased.first) == rest  # settled messages stay settled
        again.close()

    def test_invalid_requests(self, helper: Helper) -> None:
        for wrong, why in WRONG_LEASES:
            problem = helper.refusal(lease(**wrong))
            assert problem.code == "bad-request"
            assert why in problem.text
        assert helper.lease().rows == 0


class TestWriters:
    def test_a_chunk_is_written_exactly_once(self, broker: BrokerProcess, helper: Helper) -> None:
        assert helper.write([b"1", b"2"]) == Written(chunk=0, rows=2)
        broker.kill()
        broker.start()
        again = Helper(broker.private_socket)
        assert again.write([b"1", b"2"]) == Written(chunk=0, rows=2, duplicate=True)
        assert again.write([b"3"], 1) == Written(chunk=1, rows=1)
        assert again.lease().rows == 3
        assert again.ask(DropWriter(name="job", over="flight"), bool)
        assert not again.ask(DropWriter(name="job", over="flight"), bool)
        again.close()

    def test_all_columns(self, broker: BrokerProcess, helper: Helper) -> None:
        helper.write(
            [b"late", b"low", b"high"],
            ttl=numbers("q", -1, 0, 60_000_000),
            delay=numbers("q", 3600_000_000, 0, 0),
            priority=numbers("Q", 0, 0, 2**63),
            correlation_ids=[b"", b"", b"about"],
        )
        peer = broker.dial("kokaq", kind=Kokaq)
        answers = [peer.ask(POP, "default/a") for _ in range(3)]
        assert [answer.payload for answer in answers[:2]] == [b"high", b"low"]
        assert answers[2].outcome == FAIL_OK

    def test_rows_of_several_queues_keep_their_order(self, helper: Helper) -> None:
        queues = ["default/b", "default/a"]
        helper.write([b"%d" % i for i in range(6)], queues=queues, queue=numbers("I", 1, 0, 1, 0, 1, 0))
        assert helper.lease(queues=["default/a"]).rows == 3
        assert helper.lease(reader="other", queues=["default/b"]).rows == 3

    def test_all_or_nothing(self, helper: Helper) -> None:
        which = numbers("I", 0, 1, 1, 1, 1)
        problem = helper.refusal(write([b"x"] * 5, queues=["default/a", "default/small"], queue=which))
        assert (problem.code, problem.text) == ("refused", "default/small: the queue is full")
        assert helper.lease().rows == 0

    def test_queues_are_made_if_asked_for(self, broker: BrokerProcess, helper: Helper) -> None:
        problem = helper.refusal(write([b"x"], queues=["new/one"]))
        assert (problem.code, "there is no queue new/one" in problem.text) == ("no-queue", True)
        assert helper.write([b"x"], queues=["new/one"], create_queues=True).rows == 1
        assert broker.dial("kokaq", kind=Kokaq).ask(CREATE, "new/one").outcome != SUCCESS_OK
        long = helper.refusal(write([b"x"], 1, queues=["new/" + "x" * 256], create_queues=True))
        assert (long.code, "longer than 255 bytes" in long.text) == ("refused", True)

    def test_a_duplicate_is_one_even_if_its_queue_is_gone(self, broker: BrokerProcess, helper: Helper) -> None:
        helper.write([b"x"], queues=["new/one"], create_queues=True)
        peer = broker.dial("kokaq", kind=Kokaq)
        assert peer.ask(POP, "new/one").payload == b"x"
        assert peer.ask(DELETE, "new/one").outcome == SUCCESS_OK
        assert helper.write([b"x"], queues=["new/one"]).duplicate

    def test_invalid_requests(self, helper: Helper) -> None:
        for wrong, why in WRONG_CHUNKS:
            problem = helper.refusal(msgspec.structs.replace(write([b"x", b"y"]), **wrong))
            assert problem.code == "bad-request"
            assert why in problem.text
        assert not helper.write([b"x", b"y"]).duplicate

    def test_a_chunk_as_large_as_it_may_be(self, helper: Helper) -> None:
        payloads = [bytes(requests.CHUNK_BYTES // requests.CHUNK_ROWS)] * requests.CHUNK_ROWS
        assert helper.write(payloads).rows == requests.CHUNK_ROWS
        assert helper.lease().rows == requests.CHUNK_ROWS


class TestReaders:
    def test_readers_and_their_positions(self, broker: BrokerProcess, helper: Helper) -> None:
        report = requests.Report(
            reader="lake",
            view="messages",
            where="default/*",
            position=7,
            lag_rows=3,
            lag_seconds=1.5,
            pin=True,
            peer="p",
        )
        assert helper.ask(report, bool)
        helper.write([b"x", b"y"])
        helper.lease(reader="eater")
        broker.stop()
        broker.start()
        again = Helper(broker.private_socket)
        lake, eater = again.ask(Readers(), list[ReaderRow])
        assert (lake.reader, lake.position, lake.lag_rows, lake.pin, lake.leased) == ("lake", 7, 3, True, 0)
        assert (eater.reader, eater.view, eater.where, eater.leased) == ("eater", "leased", "default/a", 2)
        assert again.ask(DropReader(name="eater", over="flight"), bool)
        assert not again.ask(DropReader(name="eater", over="flight"), bool)
        assert [each.reader for each in again.ask(Readers(), list[ReaderRow])] == ["lake"]
        assert again.lease(reader="other").rows == 2
        again.close()

    def test_a_broken_file_is_put_aside(self, broker: BrokerProcess) -> None:
        broker.stop()
        (broker.data / "readers.json").write_text("[{]")
        broker.start()
        assert broker.events("the readers are forgotten: they cannot be read")
        assert (broker.data / "readers.json.damaged").exists()


class Asker:
    """A connection to an in-process broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: Any) -> Any:
        data = msgspec.msgpack.encode(request)
        self.writer.write(struct.pack("<I", len(data)) + data)
        (length,) = struct.unpack("<I", await self.reader.readexactly(4))
        return msgspec.msgpack.decode(await self.reader.readexactly(length))


class TestCommits:
    """On a log that can be held."""

    async def meet(self, broker: InProcess) -> tuple[PrivateSocket, Asker]:
        broker.queue("a")
        door = PrivateSocket(broker.runtime.log, flight_table(broker.runtime))
        await door.open()
        return door, Asker(*await asyncio.open_unix_connection(door.path))

    @pytest.mark.parametrize("failure", ["none is writable", "all are too deep"])
    def test_without_a_temporary_folder_it_is_in_no_file_system(
        self, failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As for a service that may only write to its data folder: it must start, and leave no note."""
        deep = tmp_path / ("x" * 100)
        deep.mkdir()

        def make(**_: Any) -> str:
            if failure == "none is writable":
                raise FileNotFoundError("No usable temporary directory found")
            folder = deep / "penstock-x"
            folder.mkdir()
            return str(folder)

        monkeypatch.setattr("tempfile.mkdtemp", make)

        async def live() -> None:
            async with running() as broker:
                broker.queue("a")
                notes = LocalFolder(str(tmp_path / "own"))
                door = PrivateSocket(broker.runtime.log, flight_table(broker.runtime), notes)
                await door.open()
                asker = Asker(*await asyncio.open_unix_connection(door.path))
                assert "code" not in str(await asker.ask(DropWriter(name="job", over="flight")))
                asker.writer.close()
                await door.close(1)
                notes.close()

        asyncio.run(live())
        assert not list(deep.iterdir())
        assert not (tmp_path / "own" / "broker-socket").exists()

    def test_an_answer_waits_for_its_commit(self) -> None:
        async def live() -> None:
            async with running() as broker:
                door, asker = await self.meet(broker)
                await broker.settle()
                for request in (write([b"x"]), write([b"x"]), lease(), DropWriter(name="job", over="flight")):
                    broker.journal.hold()
                    pending = asyncio.create_task(asker.ask(request))
                    await broker.settle()
                    staged = broker.runtime.broker.committed < broker.runtime.broker.log.next_position
                    assert pending.done() != staged
                    broker.journal.go_on()
                    assert "code" not in str(await pending)
                asker.writer.close()
                await door.close(1)

        asyncio.run(live())

    def test_a_repeated_chunk_is_not_confirmed_before_the_first(self) -> None:
        async def live() -> None:
            async with running() as broker:
                door, asker = await self.meet(broker)
                other = Asker(*await asyncio.open_unix_connection(door.path))
                await broker.settle()
                broker.journal.hold()
                pending = [asyncio.create_task(each.ask(write([b"x"]))) for each in (asker, other)]
                await broker.settle()
                assert not any(each.done() for each in pending)
                broker.journal.go_on()
                answers = await asyncio.gather(*pending)
                assert sorted(each.get("duplicate", False) for each in answers) == [False, True]
                for each in (asker, other):
                    each.writer.close()
                await door.close(1)

        asyncio.run(live())

    def test_a_stop_sends_pending_answers(self) -> None:
        async def live() -> None:
            async with running() as broker:
                door, asker = await self.meet(broker)
                idle = Asker(*await asyncio.open_unix_connection(door.path))
                await broker.settle()
                broker.journal.hold()
                pending = asyncio.create_task(asker.ask(write([b"x"])))
                await broker.settle()
                closing = asyncio.create_task(door.close(10))
                assert await idle.reader.read() == b""
                assert not pending.done()
                broker.journal.go_on()
                assert (await pending)["rows"] == 1
                await closing
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_unix_connection(door.path)
                for each in (asker, idle):
                    each.writer.close()

        asyncio.run(live())

    def test_a_broker_that_drains_is_away(self) -> None:
        async def live() -> None:
            async with running() as broker:
                door, asker = await self.meet(broker)
                broker.runtime.broker.drain(broker.runtime.now())
                for request in (write([b"x"]), lease()):
                    problem = msgspec.convert(await asker.ask(request), Refusal)
                    assert problem.code == "away"
                asker.writer.close()
                await door.close(1)

        asyncio.run(live())

    def test_an_internal_error_is_answered_and_ends_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def live() -> None:
            async with running() as broker:
                door, asker = await self.meet(broker)
                monkeypatch.setattr(broker.runtime.readers, "listed", lambda: 1 // 0)
                assert (await asker.ask(Readers()))["code"] == "internal"
                assert (await asker.ask(write([b"x"])))["rows"] == 1
                assert broker.events("private socket: a request failed")
                assert broker.failures == []
                asker.writer.close()
                await door.close(1)

        asyncio.run(live())
