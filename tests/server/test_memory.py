"""The state that peers can make the broker keep is bounded, in bytes and items, and no peer is shut out."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.companions.framing import Refusal
from penstock.core.broker import Broker
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Queue
from penstock.flight.flight_requests import Write
from penstock.server.engine.engine import Engine
from penstock.server.limits.state_memory import StateMemory
from penstock.server.network import memory as accounts
from penstock.server.network.access import Peer
from penstock.server.network.memory import SMALL, Account, Memory
from penstock.server.network.outbox import Outbox
from penstock.server.network.session import Session
from penstock.server.options.broker_options import AccessRule
from support.inprocess import InProcess, Wire, running
from support.privatesocket import flight_table
from support.raw import ACQUIRE, FAIL_NOT_ALLOWED, NOP, PEEK, POP, PUSH, acknowledge, consume, kokaq, publish

MEBIBYTE = 2**20
NOW = 1_700_000_000_000_000
COUNT = 3_000
AnySession = Session[Any]


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


def stuck(pair: tuple[AnySession, Wire]) -> tuple[AnySession, Wire]:
    """A peer that reads nothing."""
    pair[1].takes = False
    return pair


def no_more(broker: InProcess, pair: tuple[AnySession, Wire]) -> None:
    """Lose a connection that was cut off, as its transport would."""
    if pair[1].aborted:
        pair[1].untaken = 0
        pair[0].connection_lost(None)


async def fill(broker: InProcess, name: str, count: int, size: int) -> None:
    session, _ = broker.phpmq()
    for _ in range(count):
        session.data_received(publish(name, bytes(size)))
        await broker.settle()
    session.connection_lost(None)


class TestAnswers:
    def test_peeks_whose_answers_are_not_read(self) -> None:
        """Only as many are answered as fit in memory; the rest get their answers as the first peers are closed."""

        async def scene() -> None:
            async with running(memory_bytes=16 * MEBIBYTE) as broker:
                await fill(broker, "large", 1, MEBIBYTE)
                memory = broker.runtime.memory
                peers = [stuck(broker.kokaq()) for _ in range(60)]
                gc.collect()
                tracemalloc.start()
                for session, _ in peers:
                    session.data_received(kokaq(PEEK, "default/large"))
                await broker.settle()
                grown = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                assert grown < 16 * MEBIBYTE
                rounds = 0
                now = broker.runtime.loop.time()
                while not all(wire.writes for _, wire in peers):
                    assert memory.output <= memory.most_output
                    assert memory.output == sum(session.account.output for session, _ in peers)
                    now += accounts.PATIENCE + 1
                    broker.runtime.rounds._limit_memory(now)
                    for pair in peers:
                        no_more(broker, pair)
                    await broker.settle()
                    rounds += 1
                    assert rounds < 60, "a peer is never answered"
                assert rounds > 60 // 4 - 2, "more answers at once than fit in memory"
                assert (
                    len(broker.events("memory is short: the slowest peer is closed")) == 20
                )  # and the rest is counted

        play(scene())

    def test_a_peer_of_another_address_is_next(self) -> None:
        async def scene() -> None:
            async with running(memory_bytes=16 * MEBIBYTE) as broker:
                await fill(broker, "large", 1, MEBIBYTE)
                peers = [stuck(broker.kokaq()) for _ in range(40)]
                for session, _ in peers:
                    session.data_received(kokaq(PEEK, "default/large"))
                await broker.settle()
                other, wire = broker.kokaq("198.51.100.1")
                other.data_received(kokaq(PEEK, "default/large"))
                await broker.settle()
                assert not wire.writes
                first, taken = next(pair for pair in peers if pair[1].writes)
                for _ in range(2):
                    taken.untaken = 0
                    first.note_output()
                    broker.runtime.output.serve_line()
                    await broker.settle()
                    first, taken = next(pair for pair in peers if pair[1].untaken)
                assert len(wire.sent) > MEBIBYTE

        play(scene())

    def test_answers_keep_their_order_while_they_wait(self) -> None:
        async def scene() -> None:
            async with running(memory_bytes=4 * MEBIBYTE) as broker:
                await fill(broker, "large", 2, MEBIBYTE - 1000)
                holder, held = stuck(broker.kokaq())
                holder.data_received(kokaq(PEEK, "default/large"))
                await broker.settle()
                session, wire = broker.kokaq()
                for at, opcode in enumerate((NOP, POP, NOP, POP, NOP)):
                    queue = "default/large" if opcode == POP else None
                    session.data_received(kokaq(opcode, queue, opaque=bytes((9, 9, 9, at))))
                await broker.settle()
                assert len(wire.sent) < 100
                held.untaken = 0
                holder.note_output()
                broker.runtime.output.serve_line()
                await broker.settle()
                places = [wire.sent.find(bytes((9, 9, 9, at))) for at in range(5)]
                assert 0 <= places[0] < places[1] < places[2] < places[3] < places[4]
                assert len(wire.sent) > 2 * (MEBIBYTE - 1000)

        play(scene())

    def test_a_write_is_held_until_its_last_byte_is_taken(self) -> None:
        """The transport keeps the whole write until its last byte is sent."""

        async def scene() -> None:
            async with running() as broker:
                await fill(broker, "large", 1, MEBIBYTE)
                session, wire = stuck(broker.kokaq())
                session.data_received(kokaq(PEEK, "default/large"))
                await broker.settle()
                wire.untaken = 1
                session.note_output()
                assert session.account.output == len(wire.sent) > MEBIBYTE
                session.data_received(kokaq(NOP))
                await broker.settle()
                assert session.account.output == len(wire.sent)
                wire.untaken = len(wire.writes[-1])
                session.note_output()
                assert session.account.output == len(wire.writes[-1])
                wire.untaken = 0
                session.note_output()
                assert session.account.output == broker.runtime.memory.output == 0

        play(scene())

    def test_deliveries_wait_too_and_small_ones_do_not(self) -> None:
        async def scene() -> None:
            async with running(memory_bytes=16 * MEBIBYTE) as broker:
                await fill(broker, "large", 8, MEBIBYTE)
                memory = broker.runtime.memory
                consumers = [stuck(broker.phpmq()) for _ in range(8)]
                for session, _ in consumers:
                    session.data_received(consume("large", 1))
                await broker.settle()
                assert sum(bool(wire.writes) for _, wire in consumers) == 3
                assert memory.output <= memory.most_output
                good, wire = broker.phpmq()
                good.data_received(publish("small", b"hello") + consume("small", 1))
                await broker.settle()
                assert b"hello" in wire.sent
                for session, _ in consumers:
                    session.connection_lost(None)
                assert memory.output == memory.input == 0
                assert not memory.holders
                assert memory.next_in_line is None

        play(scene())

    def test_a_message_that_is_larger_than_all_of_it(self) -> None:
        async def scene() -> None:
            async with running(memory_bytes=1000) as broker:
                broker.runtime.memory.most_unwritten = MEBIBYTE
                await fill(broker, "large", 1, 100_000)
                session, wire = broker.kokaq()
                session.data_received(kokaq(PEEK, "default/large"))
                await broker.settle()
                assert len(wire.sent) > 100_000

        play(scene())

    def test_answers_that_are_kept_for_a_trim_count(self) -> None:
        """The log drops messages that unread answers still need, so only as many are read as fit in memory."""

        async def scene() -> None:
            async with running(memory_bytes=16 * MEBIBYTE, output_bytes=1) as broker:
                await fill(broker, "large", 12, MEBIBYTE)
                peers = [stuck(broker.kokaq()) for _ in range(12)]
                broker.journal.hold()
                for session, _ in peers:
                    session.data_received(kokaq(POP, "default/large"))
                await broker.settle()
                await broker.runtime.cold_reads.keep_answers(
                    broker.runtime.output.awaiting, broker.runtime.broker.committed
                )
                memory = broker.runtime.memory
                assert memory.output <= memory.most_output
                assert 0 < sum(wire.aborted for _, wire in peers) < 12

        play(scene())


class TestAccount:
    """The account on its own."""

    @staticmethod
    def session(origin: str = "a") -> AnySession:
        session = Session.__new__(Session)
        session.origin = origin
        session.account = Account()
        session.outbox = Outbox(Memory(1))
        return session

    def test_grants(self) -> None:
        memory = Memory(400_000)
        one, two, three = self.session(), self.session(), self.session("b")
        assert memory.grant(one, 10_000, 30_000) == 30_000
        memory.hold_output(one, 60_000)
        assert memory.grant(two, 50_000, 50_000) == 0
        assert memory.grant(three, 60_000, 60_000) == 0
        assert memory.next_in_line is two
        assert memory.grant(three, 100, 100) == SMALL  # it holds nothing
        memory.hold_output(three, 10)
        assert memory.grant(three, 100, 100) == 0  # it holds something, and is not the next
        memory.hold_output(one, 30_000)
        assert memory.can_go_on
        assert memory.grant(two, 50_000, 50_000) == 50_000
        assert memory.next_in_line is three
        memory.forget(three)
        memory.withdraw(one)
        assert memory.next_in_line is None

    def test_more_than_all_of_it_is_given_when_half_is_free(self) -> None:
        memory = Memory(40_000)
        one, two = self.session(), self.session()
        memory.hold_output(one, 5001)
        assert memory.grant(two, 50_000, 1) == 0
        memory.hold_output(one, 5000)
        assert memory.grant(two, 50_000, 1) == 50_000

    def test_requests_share(self) -> None:
        async def scene() -> None:
            async with running(memory_bytes=100 * 2048, pipelined_requests=60) as broker:
                assert broker.runtime.requests_share == 60
                for _ in range(4):
                    broker.kokaq()
                assert broker.runtime.requests_share == 25
                for _ in range(40):
                    broker.kokaq()
                assert broker.runtime.requests_share == 10

        play(scene())


class TestInput:
    def test_frames_that_wait_count(self) -> None:
        async def scene() -> None:
            async with running() as broker:
                broker.queue("full", max_depth=1)
                session, _ = broker.phpmq()
                session.data_received(publish("full", b"x") + publish("full", b"y", ttl=1) * 3)
                await broker.settle()
                assert session.account.input > 3 * len(publish("full", b"y", ttl=1))
                assert broker.runtime.memory.input == session.account.input
                session.connection_lost(None)
                assert not broker.runtime.memory.input

        play(scene())

    def test_large_output_in_one_turn_is_noticed_before_its_end(self) -> None:
        async def scene() -> None:
            async with running(memory_bytes=4 * MEBIBYTE) as broker:
                data = publish("q", bytes(256_000))
                for session, wire in [broker.phpmq() for _ in range(20)]:
                    if wire.reading:
                        session.data_received(data)
                assert broker.runtime.engine.unwritten < 2 * MEBIBYTE

        play(scene())


class TestMessagesOut:
    def test_they_are_shared(self) -> None:
        """No consumer gets more than it leaves for the rest, and all continue as messages come back."""

        async def scene() -> None:
            async with running(messages_out_total=60) as broker:
                peers = [broker.phpmq() for _ in range(5)]
                peers[0][0].data_received(publish("q", b"x") * 1000)
                for session, _ in peers:
                    session.data_received(consume("q", 1000))
                    await broker.settle()
                core = broker.runtime.broker
                assert core.out <= 60
                assert len(core.throttled) == 5
                assert sorted(len(session.connection.out) for session, _ in peers)[0] >= 1
                seen = 0
                queue = core.queue("default", "q")
                assert queue is not None
                while queue.out:
                    assert core.out == len(queue.out) <= 60
                    for session, _ in peers:
                        ids = broker.runtime.ids.texts(queue, list(session.connection.out))
                        seen += len(ids)
                        session.data_received(b"".join(acknowledge("q", each) for each in ids))
                    await broker.settle()
                assert seen == 1000
                assert not core.throttled
                core.check()

        play(scene())

    def test_locks_are_refused(self) -> None:
        async def scene() -> None:
            async with running(messages_out_total=10) as broker:
                await fill(broker, "q", 12, 1)
                first, one = broker.kokaq()
                first.data_received(kokaq(ACQUIRE, "default/q") * 10)
                await broker.settle()
                assert len(first.connection.out) == 5
                assert one.sent.count(bytes((ACQUIRE, FAIL_NOT_ALLOWED))) == 5
                second, _ = broker.kokaq()
                second.data_received(kokaq(ACQUIRE, "default/q") * 10)
                await broker.settle()
                assert len(second.connection.out) == 3

        play(scene())

    def test_a_queue_is_deleted_under_a_window_that_is_held_back(self) -> None:
        async def scene() -> None:
            async with running(messages_out_total=4) as broker:
                await fill(broker, "q", 10, 1)
                session, wire = broker.phpmq()
                session.data_received(consume("q", 100))
                await broker.settle()
                core, now = broker.runtime.broker, broker.runtime.now()
                queue = core.queue("default", "q")
                assert queue is not None
                assert core.throttled
                core.purge(session.connection, queue, now)
                core.acknowledge(session.connection, queue, list(queue.out), now)
                assert core.delete_queue(queue, now)
                await broker.settle()
                assert not core.throttled
                assert wire.closed

        play(scene())


def counted(state: StateMemory) -> int:
    for _ in range(10):  # a few queues at a time
        state.watch()
    return state.bytes


def grow(kind: str, core: Broker, queue: Queue, peer: Connection) -> None:
    if kind == "out":
        core.subscribe(peer, queue, COUNT, NOW)
    elif kind == "returned":
        core.subscribe(peer, queue, COUNT, NOW)
        core.disconnect(peer, NOW)
        while core.unfinished:
            core.tick(NOW)
    for at in range(COUNT) if kind not in ("out", "returned") else ():
        one = at.to_bytes(16, "big")
        if kind == "locks":
            core.lock(peer, queue, NOW + at, 10**9)
        elif kind == "queues":
            core.create_queue("default", f"queue {at}", NOW)
        elif kind == "waiting":
            core.publish(peer, queue, [b"x"], NOW, Properties(ttl=10**7 + at))
        elif kind == "priorities":
            core.publish(peer, queue, [b"x"], NOW, Properties(ttl=10**7, priority=1000 + at))
        else:
            ids: dict[str, bytes] = {"request_id" if kind == "request IDs" else "asked_id": one}
            core.publish(peer, queue, [b"x"], NOW, Properties(**ids))  # type: ignore[arg-type]
        core.log.take()


class TestState:
    def test_publishing_is_refused_and_consuming_goes_on(self) -> None:
        async def scene() -> None:
            async with running(state_bytes=10_000) as broker:
                broker.runtime.state_memory.limit = 10**9
                session, wire = broker.kokaq(create=True)
                session.data_received(kokaq(PUSH, "default/q", b"x") * 500)
                await broker.settle()
                broker.runtime.state_memory.limit = 10_000
                for _ in range(2):
                    broker.runtime.state_memory.watch()
                assert broker.runtime.broker.memory_full
                assert "memory" in broker.runtime.health.trouble()
                before = len(wire.sent)
                session.data_received(kokaq(PUSH, "default/q", b"x"))
                await broker.settle()
                assert len(wire.sent) == before + 12  # a refusal has no ID
                session.data_received(kokaq(POP, "default/q") * 500)
                await broker.settle()
                broker.journal.trim(broker.runtime.broker.lowest_position())
                for _ in range(2):
                    broker.runtime.state_memory.watch()
                assert not broker.runtime.broker.memory_full

        play(scene())

    @pytest.mark.parametrize(
        "kind", ["waiting", "out", "locks", "priorities", "request IDs", "IDs", "returned", "queues"]
    )
    def test_the_estimate_matches_the_cost(self, kind: str) -> None:
        """The estimate is at least the real cost, and not several times as much."""
        core = Broker()
        core.create_namespace("default", NOW)
        queue, peer = core.create_queue("default", "q", NOW), core.connect(1, b"test")
        state = StateMemory(cast(Engine, SimpleNamespace(broker=core, moved={}, log=None)), 1)
        if kind in ("out", "locks", "returned"):
            core.publish(peer, queue, [b"x"] * COUNT, NOW)
            core.log.take()
        gc.collect()
        tracemalloc.start()
        before = counted(state)
        grow(kind, core, queue, peer)
        core.take_effects()
        core.log.take()
        gc.collect()
        cost = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        least = 0 if kind == "waiting" else 0.25
        assert least * (counted(state) - before) <= cost <= counted(state) - before + 10_000


RULE = AccessRule(network="192.0.2.0/24", may=["publish", "consume"])


class TestQueues:
    @pytest.mark.parametrize(
        ("rules", "made"),
        [
            ((), 3),
            ((RULE,), 3),
            ((AccessRule(may=["publish"], queues=5),), 5),
            ((AccessRule(may=["publish"], queues=0),), 0),
            ((RULE, AccessRule(may=["read"], queues=9)), 3),
            ((RULE, AccessRule(may=["publish"], queues=9)), 12),
            ((RULE, AccessRule(subject="x", may=["create"])), 0),
            ((AccessRule(may=["publish", "create"], queues=4),), 4),
            ((RULE, AccessRule(may=["administer"], queues=4)), 7),
        ],
        ids=str,
    )
    def test_how_many_a_peer_may_make(self, rules: tuple[AccessRule, ...], made: int) -> None:
        async def scene() -> None:
            async with running(*rules, queues_per_address=3) as broker:
                for at in range(20):
                    session, wire = broker.phpmq()
                    session.data_received(publish(f"q{at}", b"x"))
                    await broker.settle()
                    if wire.closed:
                        break
                assert len(broker.runtime.broker.queues) == made
                (line,) = broker.events("queue not made")
                assert "queues already" in line["reason"] or "no right" in line["reason"]

        play(scene())

    def test_other_peers_are_not_shut_out_and_deleted_queues_do_not_count(self) -> None:
        async def scene() -> None:
            async with running(queues_per_address=2) as broker:
                for name in ("a", "b", "c"):
                    broker.phpmq()[0].data_received(consume(name, 1))
                    await broker.settle()
                assert sorted(broker.runtime.broker.namespaces["default"]) == ["a", "b"]
                other, _ = broker.phpmq("198.51.100.1")
                other.data_received(consume("d", 1))
                core = broker.runtime.broker
                assert core.queue("default", "d") is not None
                queue = core.queue("default", "a")
                assert queue is not None
                assert core.delete_queue(queue, broker.runtime.now())
                broker.phpmq()[0].data_received(consume("e", 1))
                assert core.queue("default", "e") is not None
                broker.phpmq()[0].data_received(consume("f", 1))
                assert core.queue("default", "f") is None

        play(scene())

    def test_users_of_a_socket_have_separate_limits(self) -> None:
        async def scene() -> None:
            async with running(queues_per_address=1) as broker:
                for user in (1, 1, 2):
                    session, _ = broker.phpmq()
                    broker.runtime.lost(session)
                    session.peer = Peer("unix", user=user)
                    assert broker.runtime.peers.arrive("phpmq", session.peer)
                    session.connection_made(session.transport)
                    session.data_received(consume(f"q{len(broker.runtime.broker.queues)}", 1))
                assert len(broker.runtime.broker.queues) == 2

        play(scene())

    def test_flight_counts_addresses_and_not_their_ports(self) -> None:
        async def scene() -> None:
            async with running(queues_per_address=2) as broker:
                requests, answers = flight_table(broker.runtime), []
                session, _ = broker.phpmq()
                session.data_received(consume("q", 1))
                mine = session.origin
                for port, peer in enumerate([mine] * 3 + ["[2001:db8::1]", "[2001:db8::2]", "[2001:db8::3]"]):
                    write = Write(
                        writer=f"w{port}", epoch=0, partition=0, chunk=0, queues=[f"new/{port}"], payloads=[b""],
                        queue=bytes(4), create_queues=True, peer=f"{peer}:{4000 + port}",
                    )  # fmt: skip
                    answers.append(await requests.answer(write))
                refused = [answer.text for answer in answers if isinstance(answer, Refusal)]
                assert [text.rpartition(": ")[2] for text in refused] == [
                    f"the address {mine} has made 2 queues already",
                    f"the address {mine} has made 2 queues already",
                    "the address 2001:db8::/64 has made 2 queues already",
                ]

        play(scene())
