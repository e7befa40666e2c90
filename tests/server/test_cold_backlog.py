"""A backlog on disk: the loop never waits for the journal, and every message reaches its consumer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from penstock.journal.files import segment_reader
from penstock.journal.format import rows
from penstock.journal.format.block import Block
from penstock.server.engine import backlog
from penstock.server.engine.cache import RecentMessages
from support.inprocess import InProcess, running
from support.raw import (
    ACQUIRE,
    DEAD_RECEIVE,
    NOP,
    PEEK,
    POP,
    PUSH,
    RECEIVE,
    consume,
    kokaq,
    publish,
    reject,
    send,
    sspq,
)

Scene = Callable[[InProcess], Awaitable[None]]
#: Payload bytes of another queue's messages, more than the loop would read itself.
LARGE = segment_reader.MOST_AT_ONCE + 1


def play(scene: Scene) -> None:
    async def run() -> None:
        async with running() as broker:
            await scene(broker)

    asyncio.run(run())


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not what():
            await asyncio.sleep(0.002)


def forget(broker: InProcess) -> None:
    """Evict all published messages from memory."""
    broker.runtime.engine.recent = RecentMessages(0)
    with broker.journal._locator._lock:
        broker.journal._locator._stretches.clear()
        broker.journal._locator._kept = 0


async def fill(broker: InProcess, count: int, queue: str = "q", *, neighbours: int = 0) -> None:
    """Messages in commits of their own, each followed by a large one of another queue."""
    pusher, answers = broker.kokaq(create=True)
    other, _ = broker.phpmq()
    for number in range(count):
        pusher.data_received(kokaq(PUSH, f"default/{queue}", b"message %d." % number))
        await until(lambda: not pusher.answers_due)
        if neighbours:
            other.data_received(publish("other", bytes(neighbours)))
    await until(lambda: broker.runtime.broker.committed == broker.runtime.broker.log.next_position)
    assert answers.writes
    forget(broker)


@pytest.fixture
def off_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions read, each outside the loop's thread."""
    positions: list[int] = []
    locate = InProcess.__init__

    def begin(self: InProcess, *arguments: object) -> None:
        locate(self, *arguments)  # type: ignore[arg-type]
        read = self.journal.locate

        def watched(position: int) -> Block:
            assert threading.current_thread() is not threading.main_thread(), "the loop read the journal"
            positions.append(position)
            return read(position)

        monkeypatch.setattr(self.journal, "locate", watched)

    monkeypatch.setattr(InProcess, "__init__", begin)
    return positions


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evict blocks at once unless a request waits for them, and keep nothing in the page cache."""
    monkeypatch.setattr(segment_reader, "KEPT_BYTES", 0)
    monkeypatch.setattr(segment_reader, "MOST_AT_ONCE", 0)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("neighbours", [0, LARGE], ids=["side by side", "between large ones"])
def test_a_window_gets_all_messages_in_order(off_loop: list[int], neighbours: int) -> None:
    async def scene(broker: InProcess) -> None:
        count = 40 if neighbours else 150
        await fill(broker, count, neighbours=neighbours)
        peer, wire = broker.phpmq()
        peer.data_received(consume("q", 1000))
        await until(lambda: wire.sent.count(b"message ") == count)
        places = [wire.sent.find(b"message %d." % number) for number in range(count)]
        assert places == sorted(places)
        assert places[0] > 0
        await until(lambda: broker.runtime.memory.output == 0)
        assert (broker.runtime.backlog._rows, broker.runtime.backlog.busy) == ({}, False)

    play(scene)
    assert off_loop


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("code", [PEEK, ACQUIRE, POP], ids=["peek", "lock", "pop"])
def test_requests_are_answered_in_order(off_loop: list[int], code: int) -> None:
    async def scene(broker: InProcess) -> None:
        await fill(broker, 30)
        peer, wire = broker.kokaq()
        peer.data_received(b"".join(kokaq(code, "default/q") for _ in range(30)))
        await until(lambda: wire.sent.count(b"message ") == 30)
        expected = {0} if code == PEEK else set(range(30))
        assert {number for number in range(30) if b"message %d." % number in wire.sent} == expected
        assert not broker.events("error in a session")

    play(scene)
    assert off_loop


@pytest.mark.usefixtures("small_memory")
def test_single_receives_and_dead_letters(off_loop: list[int]) -> None:
    async def scene(broker: InProcess) -> None:
        broker.queue("sspq")
        first, _ = broker.sspq()
        first.data_received(send(b"message one", 5) + send(b"message two", 5))
        await broker.settle()
        forget(broker)
        rejecting, wire = broker.phpmq()
        rejecting.data_received(consume("sspq", 1))
        await until(lambda: b"message one" in wire.sent)
        rejecting.data_received(reject("sspq", wire.sent[-32:]))
        await broker.settle()
        rejecting.connection_lost(None)
        await broker.settle()
        for kind, payload in ((DEAD_RECEIVE, b"message one"), (RECEIVE, b"message two")):
            forget(broker)
            peer, wire = broker.sspq()
            peer.data_received(sspq(kind))
            await until(lambda wire=wire, payload=payload: payload in wire.sent)  # type: ignore[misc]

    play(scene)
    assert off_loop


def test_other_peers_are_answered_while_the_journal_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(broker: InProcess) -> None:
        await fill(broker, 3)
        answers, read = threading.Event(), broker.journal.locate

        def silent(position: int) -> Block:
            assert answers.wait(30)
            return read(position)

        monkeypatch.setattr(broker.journal, "locate", silent)
        monkeypatch.setattr(segment_reader, "MOST_AT_ONCE", 0)
        window, dispatches = broker.phpmq()
        popping, popped = broker.kokaq()
        window.data_received(consume("q", 1))
        popping.data_received(kokaq(POP, "default/q"))
        other, wire = broker.kokaq()
        other.data_received(kokaq(NOP))
        await until(lambda: bool(wire.writes))
        assert (dispatches.writes, popped.writes) == ([], [])
        gone, _ = broker.phpmq()
        gone.data_received(consume("q", 1))
        await asyncio.sleep(0)
        gone.connection_lost(None)
        answers.set()
        await until(lambda: bool(dispatches.writes and popped.writes))
        await until(lambda: not broker.runtime.backlog.busy)
        assert broker.runtime.memory.output == 0

    play(scene)


def test_a_turn_takes_messages_out_of_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With any number of consumers, though every message is a block of its own, all in memory."""
    taken, most = 0, 0
    take, new_turn = rows.messages_of, backlog.Backlog.new_turn

    def counted(block: Block, places: list[int]) -> object:
        nonlocal taken, most
        if threading.current_thread() is threading.main_thread():
            taken += 1
            most = max(most, taken)
        return take(block, places)

    def begin(self: backlog.Backlog) -> None:
        nonlocal taken
        taken = 0
        new_turn(self)

    monkeypatch.setattr(f"{backlog.__name__}.messages_of", counted)
    monkeypatch.setattr(backlog.Backlog, "new_turn", begin)

    async def scene(broker: InProcess) -> None:
        count = 4 * backlog.TURN_BLOCKS
        await fill(broker, count)
        for position in range(broker.journal.start, broker.journal.end):
            broker.journal.locate(position)
        peers = [broker.phpmq() for _ in range(4)]
        for peer, _ in peers:
            peer.data_received(consume("q", backlog.TURN_BLOCKS))
        await until(lambda: sum(wire.sent.count(b"message ") for _, wire in peers) == count)

    play(scene)
    assert 0 < most <= backlog.TURN_BLOCKS


def test_concurrent_reads_are_bounded_and_the_rest_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(broker: InProcess) -> None:
        count = backlog.MOST_READINGS + 10
        monkeypatch.setattr(segment_reader, "MOST_AT_ONCE", 0)
        await fill(broker, count)
        go_on, read = threading.Event(), broker.journal.locate

        def silent(position: int) -> Block:
            assert go_on.wait(30)
            return read(position)

        monkeypatch.setattr(broker.journal, "locate", silent)
        peers = [broker.phpmq() for _ in range(count)]
        for peer, _ in peers:
            peer.data_received(consume("q", 1))
        reads = broker.runtime.backlog
        await until(lambda: len(reads._under_way) + len(reads._line) == count)
        assert len(reads._under_way) == backlog.MOST_READINGS
        go_on.set()
        await until(lambda: all(wire.sent.count(b"message ") == 1 for _, wire in peers))

    play(scene)
