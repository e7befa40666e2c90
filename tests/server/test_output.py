"""Output for peers: bounded in each turn, nothing for closed connections, and which peers count as slow."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import uvloop

from penstock.server.network import memory as accounts
from penstock.server.network import rounds
from penstock.server.network.acceptor import Acceptor
from penstock.server.network.memory import LARGE, TURN_BYTES
from penstock.server.network.session import Session
from penstock.server.protocols.kokaq.listener import KokaqListener
from penstock.server.protocols.kokaq.message_answer import MessageAnswer
from penstock.server.protocols.kokaq.session import KokaqSession
from support.inprocess import InProcess, Wire, running
from support.raw import NOP, PEEK, kokaq, publish

MEBIBYTE = 2**20
AnySession = Session[Any]


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


async def fill(broker: InProcess, name: str, size: int) -> None:
    """A queue with one message."""
    session, _ = broker.phpmq()
    session.data_received(publish(name, bytes(size)))
    await broker.settle()
    session.connection_lost(None)
    await broker.settle()


@contextmanager
def turns_of(broker: InProcess, only: AnySession | None = None) -> Iterator[list[int]]:
    """The bytes prepared in each turn, for one session or for all."""
    runtime, turns = broker.runtime, [0]
    turn, write, write_parts = runtime.turns.run, Session.write, Session.write_parts

    def counted_turn() -> None:
        turn()
        turns.append(0)

    def counted(session: AnySession, data: bytes) -> None:
        if only in (None, session):
            turns[-1] += len(data)
        write(session, data)

    def counted_parts(session: AnySession, parts: Sequence[bytes | memoryview]) -> None:
        if only in (None, session):
            turns[-1] += sum(map(len, parts))
        write_parts(session, parts)

    with (
        patch.object(runtime.turns, "run", counted_turn),
        patch.object(Session, "write", counted),
        patch.object(Session, "write_parts", counted_parts),
    ):
        yield turns


class TestTurns:
    @pytest.mark.parametrize("size", [LARGE // 2, MEBIBYTE])
    def test_the_output_of_a_turn_is_counted(self, size: int) -> None:
        """With any number of peers, whether or not they are still connected."""

        async def scene() -> None:
            async with running() as broker:
                await fill(broker, "q", size)
                peers = [broker.kokaq() for _ in range(40)]
                with turns_of(broker) as turns:
                    for session, _ in peers:
                        session.data_received(kokaq(PEEK, "default/q"))
                    while not all(wire.writes for _, wire in peers):
                        await asyncio.sleep(0)
                assert all(len(wire.sent) > size for _, wire in peers)
                assert max(turns) <= TURN_BYTES + size + 100_000

        play(scene())

    def test_small_answers_do_not_wait_for_large_ones(self) -> None:
        async def scene() -> None:
            async with running() as broker:
                await fill(broker, "q", MEBIBYTE)
                peers = [broker.kokaq() for _ in range(40)]
                good, wire = broker.kokaq()
                with turns_of(broker, good) as turns:
                    for session, _ in peers:
                        session.data_received(kokaq(PEEK, "default/q"))
                    good.data_received(kokaq(NOP))
                    while not wire.writes:
                        await asyncio.sleep(0)
                    await asyncio.sleep(0)
                assert turns.index(12) <= 1

        play(scene())

    def test_nothing_is_prepared_for_a_peer_that_was_cut_off(self) -> None:
        async def scene() -> None:
            async with running() as broker:
                await fill(broker, "q", MEBIBYTE)
                peers = [broker.kokaq() for _ in range(40)]
                broker.journal.hold()
                filler, _ = broker.phpmq()
                filler.data_received(publish("other", b"x"))
                for session, _ in peers:
                    session.data_received(kokaq(PEEK, "default/q"))
                    session.eof_received()
                    session.abort()
                with patch.object(MessageAnswer, "keep", side_effect=AssertionError("it was prepared")):
                    broker.journal.go_on()
                    await broker.settle()
                assert not any(wire.writes for _, wire in peers)
                assert not broker.events("error in a session")
                assert not broker.runtime.output.awaiting

        play(scene())

    def test_a_large_answer_is_written_without_a_copy(self) -> None:
        async def scene() -> None:
            async with running() as broker:
                await fill(broker, "q", MEBIBYTE)
                session, wire = broker.kokaq()
                kinds: list[type] = []
                with patch.object(wire, "writelines", lambda parts: kinds.extend(map(type, parts))):
                    session.data_received(kokaq(PEEK, "default/q"))
                    await broker.settle()
                assert kinds == [bytes, memoryview] * 17

        play(scene())


class TestSlowPeers:
    """Only peers that read nothing for two seconds, or less than 256 KiB a second, while output waits for them."""

    @staticmethod
    async def crowd(broker: InProcess) -> None:
        """Peers that read nothing hold all memory, and more of them wait for it."""
        await fill(broker, "q", MEBIBYTE)
        for _ in range(10):
            session, wire = broker.kokaq()
            wire.takes = False
            session.data_received(kokaq(PEEK, "default/q"))
        await broker.settle()
        assert broker.runtime.memory.line

    @staticmethod
    def watch(broker: InProcess, seconds: float) -> None:
        broker.runtime.rounds._limit_memory(broker.runtime.loop.time() + seconds)

    def test_a_peer_whose_output_was_not_written_yet_is_not_slow(self) -> None:
        async def scene() -> None:
            async with running(memory_bytes=16 * MEBIBYTE) as broker:
                await self.crowd(broker)
                good, wire = broker.kokaq()
                good.write(b"an answer")
                self.watch(broker, accounts.PATIENCE + 1)
                assert not wire.aborted
                assert broker.events("memory is short: the slowest peer is closed")
                await broker.settle()
                assert wire.sent == b"an answer"

        play(scene())

    def test_a_peer_that_read_everything_long_ago_is_not_slow(self) -> None:
        async def scene() -> None:
            async with running(memory_bytes=16 * MEBIBYTE) as broker:
                good, wire = broker.kokaq()
                wire.takes = False
                good.write(b"an answer")
                await broker.settle()
                wire.takes, wire.untaken = True, 0
                good.note_output()
                await self.crowd(broker)
                good.write(b"another one")
                self.watch(broker, 10 * accounts.PATIENCE)
                assert not wire.aborted

        play(scene())

    @pytest.mark.parametrize(("rate", "closed"), [(accounts.RATE * 2, False), (accounts.RATE // 2, True)])
    def test_a_peer_must_read_at_a_minimum_rate(self, rate: int, *, closed: bool) -> None:
        async def scene() -> None:
            async with running(memory_bytes=16 * MEBIBYTE) as broker:
                await self.crowd(broker)
                session, wire = next(
                    (each, each.transport) for each in broker.runtime.sessions.values() if each.account.output
                )
                assert isinstance(wire, Wire)
                seconds = accounts.PATIENCE + 1
                session.account.output_since -= seconds
                wire.untaken -= int(rate * 1.5)
                self.watch(broker, 0)
                assert wire.aborted == closed

        play(scene())


class TestEnds:
    def test_a_half_closed_peer_that_waits_for_us_is_not_cut_off(self) -> None:
        """It gets its answers, even slow ones; a peer that does not read them is cut off."""

        async def scene() -> None:
            async with running() as broker:
                broker.queue("q")
                waiting, wire = broker.kokaq()
                broker.journal.hold()
                waiting.data_received(kokaq(7, "default/q", b"x"))
                waiting.eof_received()
                await broker.settle()
                rounds.check_patience(waiting, broker.runtime.loop.time() + 2 * rounds.LINGER)
                assert not wire.aborted
                broker.journal.go_on()
                wire.takes = False
                await broker.settle()
                assert len(wire.sent) > 16
                rounds.check_patience(waiting, broker.runtime.loop.time() + 2 * rounds.LINGER)
                assert wire.aborted

        play(scene())


class TestArrivals:
    @pytest.mark.parametrize("steps", range(4))
    def test_a_new_connection_during_close_is_ended_or_never_made(self, steps: int) -> None:
        """At any stage when the listener closes, an existing session is notified of its end."""

        async def scene() -> None:
            async with running() as broker:
                listening = socket.create_server(("127.0.0.1", 0))
                listening.setblocking(False)
                listener = KokaqListener(address="127.0.0.1:0")
                make = partial(KokaqSession, broker.runtime, listener)
                acceptor = Acceptor(broker.runtime, "kokaq", [listening], make, None)
                peers = [socket.create_connection(listening.getsockname()) for _ in range(3)]
                acceptor._accept(listening)
                for _ in range(steps):
                    await asyncio.sleep(0)
                await acceptor.close()
                arrived = list(broker.runtime.sessions.values())
                assert len(arrived) == broker.runtime.peers.by_origin.total()
                for session in arrived:
                    session.write(b"hello")
                    session.flush()
                    session.transport.abort()
                while broker.runtime.sessions:
                    await asyncio.sleep(0)
                for peer in peers:
                    peer.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(scene(), 10))
