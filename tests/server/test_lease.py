"""A broker whose lease on the journal has expired delivers nothing, over any protocol, until it is renewed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest

from penstock.core.policy import SECOND
from penstock.flight import flight_requests as requests
from penstock.journal.errors import Fenced, LogAway
from penstock.journal.format.block import Block
from penstock.server.engine.cache import RecentMessages
from penstock.server.engine.commits import GroupCommit
from penstock.server.maintenance import lease_keeper
from penstock.server.maintenance.lease_keeper import LeaseKeeper
from support.inprocess import InProcess, running
from support.privatesocket import flight_table, write
from support.raw import ACQUIRE, PEEK, POP, PUSH, RECEIVE, consume, kokaq, publish, send, sspq

Scene = Callable[[InProcess, "HandLease"], Awaitable[None]]


class HandLease:
    """A lease that the test expires and renews."""

    seconds = 0.3

    def __init__(self) -> None:
        self.deadline = time.monotonic() + 1000
        self.renewals = 0
        self.fenced = False

    def run_out(self) -> None:
        self.deadline = time.monotonic() - 1

    def renew(self) -> None:
        if self.fenced:
            raise Fenced("another broker has it")
        self.renewals += 1
        self.deadline = time.monotonic() + 1000

    def keep(self) -> bool:
        if not self.fenced:
            self.renew()
        return not self.fenced

    def release(self) -> None:
        raise AssertionError("no lease is released here")


def play(scene: Scene) -> None:
    async def run() -> None:
        async with running() as broker:
            lease = HandLease()
            broker.runtime.lease_hold.begin(lease)
            await scene(broker, lease)

    asyncio.run(run())


def test_nothing_is_handed_out_over_any_protocol_before_it_is_renewed() -> None:
    async def scene(broker: InProcess, lease: HandLease) -> None:
        for name in ("window", "peeked", "locked", "popped"):
            broker.queue(name)
        window, dispatches = broker.phpmq()
        receiver, packages = broker.sspq()
        asking = {name: broker.kokaq() for name in ("peeked", "locked", "popped")}
        window.data_received(consume("window", 100))
        for name in asking:
            asking[name][0].data_received(kokaq(PUSH, f"default/{name}", b"m"))
        await broker.settle()
        pushed = {name: wire.sent for name, (_, wire) in asking.items()}
        lease.run_out()
        pusher, confirmations = broker.kokaq()
        pusher.data_received(kokaq(PUSH, "default/window", b"m"))
        receiver.data_received(send(b"one", 5) + sspq(RECEIVE))
        for code, name in ((PEEK, "peeked"), (ACQUIRE, "locked"), (POP, "popped")):
            asking[name][0].data_received(kokaq(code, f"default/{name}"))
        await broker.settle()
        assert (dispatches.writes, packages.writes, confirmations.writes) == ([], [], [])
        assert {name: wire.sent for name, (_, wire) in asking.items()} == pushed
        assert broker.runtime.health.trouble().startswith("the database does not answer")
        lease.renew()
        broker.runtime.touched()
        await broker.settle()
        assert (len(dispatches.writes), packages.sent, len(confirmations.writes)) == (1, send(b"one", 5), 1)
        assert all(len(wire.sent) > len(pushed[name]) for name, (_, wire) in asking.items())
        assert broker.runtime.health.trouble() == ""
        assert (
            len(broker.events("the lease on the journal has run out: nothing is handed out until it is renewed")) == 1
        )
        assert len(broker.events("the lease on the journal is renewed: service continues")) == 1

    play(scene)


def test_it_is_checked_again_after_payloads_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading payloads from a database may take longer than the lease."""

    async def scene(broker: InProcess, lease: HandLease) -> None:
        broker.queue("q")
        peer, wire = broker.phpmq()
        peer.data_received(publish("q", b"m"))
        await broker.settle()
        read = broker.runtime.engine.payloads

        def slow(positions: Sequence[int]) -> list[bytes]:
            lease.run_out()
            return read(positions)

        monkeypatch.setattr(broker.runtime.engine, "payloads", slow)
        peer.data_received(consume("q", 1))
        await broker.settle()
        assert wire.writes == []
        monkeypatch.setattr(broker.runtime.engine, "payloads", read)
        lease.renew()
        broker.runtime.touched()
        await broker.settle()
        assert len(wire.writes) == 1

    play(scene)


def test_a_lease_of_messages_waits_as_well() -> None:
    async def scene(broker: InProcess, lease: HandLease) -> None:
        queue = broker.queue("q")
        peer, _ = broker.phpmq()
        peer.data_received(publish("q", b"m"))
        await broker.settle()
        answers = flight_table(broker.runtime)
        request = requests.TakeLease(
            reader="r", instance="1", queues=[queue.full_name], start=0, timeout=10 * SECOND, take=True, may=["*"],
            max_rows=10, max_bytes=0,
        )  # fmt: skip
        lease.run_out()
        broker.runtime.touched()
        await broker.settle()
        answer = asyncio.ensure_future(answers.answer(request))
        await broker.settle()
        assert not answer.done()
        lease.renew()
        broker.runtime.touched()
        assert isinstance(await asyncio.wait_for(answer, 5), requests.Leased)

    play(scene)


def test_requests_that_wait_for_a_lost_commit_are_refused() -> None:
    async def scene(broker: InProcess, lease: HandLease) -> None:
        broker.journal.hold()
        answers = flight_table(broker.runtime)
        broker.queue("a")
        answer = asyncio.ensure_future(answers.answer(write([b"x"])))
        await asyncio.sleep(0.01)
        broker.runtime.pacing.give_up(Fenced("another broker has it"))
        refusal = await asyncio.wait_for(answer, 5)
        assert getattr(refusal, "code", "") == "standby"

    play(scene)


def test_a_lease_is_renewed_while_nothing_else_does_and_a_fence_is_the_end() -> None:
    async def scene(broker: InProcess, lease: HandLease) -> None:
        keeper = LeaseKeeper(broker.runtime, lease)
        keeper.start()
        try:
            async with asyncio.timeout(5):
                while lease.renewals < 2:
                    await asyncio.sleep(0.01)
                lease.fenced = True
                while not broker.failures:
                    await asyncio.sleep(0.01)
        finally:
            await keeper.stop()
        assert isinstance(broker.failures[0], Fenced)

    play(scene)


def test_it_is_renewed_while_the_loop_is_busy_but_not_indefinitely(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long turn does not lose the lease, but a stuck broker must not keep it."""

    async def scene(broker: InProcess, lease: HandLease) -> None:
        keeper = LeaseKeeper(broker.runtime, lease)
        keeper.start()
        while lease.renewals < 2:  # nothing else runs in this loop meanwhile
            time.sleep(0.01)
        await keeper.stop()
        for silent, renewed in ((lease_keeper.MOST_SILENT / 2, True), (lease_keeper.MOST_SILENT + 1, False)):
            before, keeper.alive_at = lease.renewals, time.monotonic() - silent
            keeper.check()
            keeper.check()
            assert (lease.renewals > before) == renewed

    play(scene)


def test_it_is_renewed_beside_a_long_commit_but_not_indefinitely(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(broker: InProcess, lease: HandLease) -> None:
        keeper = LeaseKeeper(broker.runtime, lease)
        size = 10 * lease_keeper.SLOWEST
        for took, renewed in ((lease_keeper.MOST_SILENT + 9, True), (lease_keeper.MOST_SILENT + 11, False)):
            under_way = time.monotonic() - took, size
            monkeypatch.setattr(GroupCommit, "under_way", under_way)
            before, keeper.alive_at = lease.renewals, time.monotonic()
            keeper.check()
            keeper.check()
            assert (lease.renewals > before) == renewed

    play(scene)


def test_a_journal_that_can_not_be_asked_costs_neither_the_message_nor_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(broker: InProcess, lease: HandLease) -> None:
        monkeypatch.setattr(RecentMessages, "_holding", lambda self, position: None)
        away = True

        def locate(position: int) -> Block:
            if away:
                raise LogAway("the database is away")
            return locate_block(position)

        locate_block = broker.journal.locate
        monkeypatch.setattr(broker.journal, "locate", locate)
        broker.queue("q")
        window, dispatches = broker.phpmq()
        asking, answers = broker.kokaq()
        asking.data_received(b"".join(kokaq(PUSH, "default/q", b"m") for _ in range(3)))
        await broker.settle()
        pushed = answers.sent
        asking.data_received(kokaq(POP, "default/q"))
        window.data_received(consume("q", 2))
        await broker.settle()
        assert (dispatches.writes, answers.sent) == ([], pushed)
        away = False
        async with asyncio.timeout(5):
            while not (dispatches.writes and answers.sent != pushed):
                await asyncio.sleep(0.01)
        assert dispatches.sent.count(b"H010030") == 2
        assert not broker.events("error in a session")

    play(scene)
