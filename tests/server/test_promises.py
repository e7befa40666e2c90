"""What sessions promise, with a disk that can be stopped at will: nothing is confirmed before it is durable, requests
that were read count, and a fault or a stubborn peer affects no other peer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.core.queue import Miscounted
from penstock.journal import committer
from penstock.server.engine.cache import RecentMessages
from penstock.server.engine.commits import SMALL
from penstock.server.network import rounds
from support.inprocess import InProcess, running
from support.raw import (
    ACQUIRE,
    CONFIRM,
    DELETE,
    FAIL_OK,
    GET,
    NO_RECEIVE,
    NOP,
    PEEK,
    POP,
    PUSH,
    RECEIVE,
    UUID,
    acknowledge,
    consume,
    kokaq,
    publish,
    send,
    sspq,
)

Scene = Callable[[InProcess], Awaitable[None]]
NOP_ANSWER = bytes.fromhex("04200100 00000001 00010000")


def play(scene: Scene, **limits: object) -> None:
    """Run a scene with its own broker."""

    async def run() -> None:
        async with running(**limits) as broker:
            await scene(broker)

    asyncio.run(run())


class TestNothingBeforeItsCommit:
    def test_pushes_are_not_confirmed_and_messages_not_shown(self) -> None:
        """ "A two-way Push is answered, and any message is first shown to a consumer, only after the journal has it on
        disk"; "effects of one commit leave in one write per connection"."""

        async def scene(broker: InProcess) -> None:
            broker.queue("q")
            pusher, answers = broker.kokaq()
            reader, dispatches = broker.phpmq()
            receiver, packages = broker.sspq()
            reader.data_received(consume("q", 100))
            receiver.data_received(sspq(RECEIVE))
            await broker.settle()
            broker.journal.hold()
            pusher.data_received(b"".join(kokaq(PUSH, "default/q", b"m") for _ in range(50)))
            receiver.data_received(send(b"one", 5))
            await broker.settle()
            assert (answers.writes, dispatches.writes, packages.writes) == ([], [], [])
            broker.journal.go_on()
            await broker.settle()
            assert [len(answers.writes), len(dispatches.writes), packages.writes] == [1, 1, [send(b"one", 5)]]
            assert answers.sent.count(b"\x04\x20\x01\x00") == 50
            assert dispatches.sent.count(b"H010030") == 50

        play(scene)

    def test_a_pop_waits_for_its_own_event_and_later_answers_wait_behind_it(self) -> None:
        """Otherwise a popped message could be delivered again after a crash."""

        async def scene(broker: InProcess) -> None:
            broker.queue("q")
            session, wire = broker.kokaq()
            session.data_received(kokaq(PUSH, "default/q", b"first") + kokaq(PUSH, "default/q", b"second"))
            await broker.settle()
            wire.writes.clear()
            broker.journal.hold()
            session.data_received(kokaq(PEEK, "default/q") + kokaq(ACQUIRE, "default/q"))
            await broker.settle()
            assert wire.sent.count(b"first") == 2  # it is durable, and stays
            wire.writes.clear()
            session.data_received(kokaq(POP, "default/q") + kokaq(NOP))
            await broker.settle()
            assert wire.writes == []
            broker.journal.go_on()
            await broker.settle()
            assert b"second" in wire.sent
            assert wire.sent.endswith(NOP_ANSWER)

        play(scene)

    def test_a_delivery_does_not_wait_for_the_acknowledgement_that_made_room_for_it(self) -> None:
        """ "A delivery waits for its own message's commit, not for the acknowledgement that opened its slot"."""

        async def scene(broker: InProcess) -> None:
            session, wire = broker.phpmq()
            session.data_received(publish("q", b"one") + publish("q", b"two") + consume("q", 1))
            await broker.settle()
            number = wire.sent[-32:]
            wire.writes.clear()
            broker.journal.hold()
            session.data_received(acknowledge("q", number))
            await broker.settle()
            assert b"two" in wire.sent

        play(scene)

    def test_after_the_disk_has_failed_nothing_is_ever_confirmed(self) -> None:
        async def scene(broker: InProcess) -> None:
            broker.queue("q")
            session, wire = broker.kokaq()
            await broker.settle()
            broker.journal.broken = True
            for _ in range(3):
                session.data_received(kokaq(PUSH, "default/q", b"m") + kokaq(POP, "default/q"))
                await asyncio.sleep(0.01)
            assert [str(error) for error in broker.failures] == ["the disk is broken"]
            assert wire.writes == []

        play(scene)


class TestWhatWasReadCounts:
    def test_a_connection_lost_while_the_disk_is_behind(self) -> None:
        """Frames that waited because of backpressure count as received."""

        async def scene(broker: InProcess) -> None:
            queue = broker.queue("q")
            filler, _ = broker.phpmq()
            session, wire = broker.phpmq()
            receiver, _ = broker.sspq()
            pusher, _ = broker.kokaq()
            broker.journal.hold()
            filler.data_received(publish("other", bytes(2000)) * 2)
            await broker.settle()
            assert broker.runtime.memory.congested
            session.data_received(publish("q", b"m") * 3 + consume("q", 5))
            receiver.data_received(send(b"kept") + sspq(RECEIVE))
            pusher.data_received(kokaq(PUSH, "default/q", b"n") + kokaq(POP, "default/q"))
            assert not wire.reading
            for each in (session, receiver, pusher):
                each.connection_lost(ConnectionResetError())
            broker.journal.go_on()
            await broker.settle()
            kept = broker.runtime.broker.queue("default", "sspq")
            assert (len(queue.ready), len(kept.ready) if kept else 0) == (4, 1)

        play(scene, memory_bytes=1000)

    def test_reading_resumes_after_a_commit_in_the_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A quick commit runs in the loop, so no thread reports its end."""
        monkeypatch.setattr(committer, "QUICK", 10.0)

        async def scene(broker: InProcess) -> None:
            broker.commits._most_at_once = lambda: SMALL
            filler, wire = broker.phpmq()
            filler.data_received(publish("q", b"the first of a queue"))
            await broker.settle()
            for _ in range(3):
                filler.data_received(publish("q", bytes(2000)))
                await asyncio.sleep(0)
                assert (broker.runtime.memory.congested, wire.reading) == (True, False)
                async with asyncio.timeout(10):
                    while broker.runtime.memory.congested or not wire.reading:
                        await asyncio.sleep(0.005)

        play(scene, memory_bytes=1000)

    def test_a_message_that_could_not_be_taken_is_logged(self) -> None:
        """ "never silently dropped"."""

        async def scene(broker: InProcess) -> None:
            broker.queue("q", max_depth=1)
            session, _ = broker.phpmq()
            session.data_received(publish("q", b"m") * 3)
            await broker.settle()
            session.connection_lost(None)
            (line,) = broker.events("publish refused")
            assert line["peer"] == "192.0.2.7"

        play(scene)

    def test_acknowledgements_before_a_protocol_error_count(self) -> None:
        async def scene(broker: InProcess) -> None:
            session, wire = broker.sspq()
            session.data_received(send(b"m", 0) + sspq(RECEIVE))
            await broker.settle()
            session.data_received(sspq(CONFIRM) + bytes(8))
            assert wire.closed
            session.connection_lost(None)
            queue = broker.runtime.broker.queue("default", "sspq")
            assert queue is not None
            assert queue.empty

        play(scene)

    def test_a_message_that_was_never_sent_to_the_lost_peer_is_whole(self) -> None:
        """It waited for its commit, or for a slow peer, so no retry is spent and no delivery counted."""

        async def scene(broker: InProcess) -> None:
            session, wire = broker.sspq()
            broker.journal.hold()
            session.data_received(send(b"m", 0) + sspq(RECEIVE))
            await broker.settle()
            session.connection_lost(None)
            broker.journal.go_on()
            await broker.settle()
            again, packages = broker.sspq()
            again.data_received(sspq(RECEIVE))
            await broker.settle()
            assert (wire.writes, packages.sent) == ([], send(b"m", 0))

        play(scene)


class TestRefusedPublishes:
    """ "reading from that peer pauses; after 30 s, or at once if the connection has messages out, it is closed and
    logged"."""

    def test_it_is_accepted_once_space_is_free(self) -> None:
        async def scene(broker: InProcess) -> None:
            queue = broker.queue("q", max_depth=2)
            session, wire = broker.phpmq()
            session.data_received(b"".join(publish("q", b"%d" % number) for number in range(5)))
            await broker.settle()
            assert (len(queue.ready), wire.reading) == (2, False)
            taker, answers = broker.kokaq()
            for number in range(5):
                taker.data_received(kokaq(POP, "default/q"))
                await broker.settle()
                assert answers.sent.endswith(b"default" + b"q" + b"%d" % number)
                session.work()
            await broker.settle()
            assert (len(queue.ready), wire.reading, wire.closed) == (0, True, False)

        play(scene)

    def test_closed_after_the_timeout(self) -> None:
        async def scene(broker: InProcess) -> None:
            broker.queue("q", max_depth=1)
            session, wire = broker.phpmq()
            session.data_received(publish("q", b"m") * 2)
            await asyncio.sleep(0.02)
            session.work()
            assert wire.closed
            (line,) = broker.events("publish refused")
            assert line["reason"] == "the queue is full"

        play(scene, refused_seconds=0.01)

    def test_closed_at_once_with_messages_out(self) -> None:
        async def scene(broker: InProcess) -> None:
            broker.queue("q", max_depth=1)
            session, wire = broker.phpmq()
            session.data_received(publish("other", b"m") + consume("other", 1))
            await broker.settle()
            session.data_received(publish("q", b"m") * 2)
            assert wire.closed

        play(scene)


class TestFaultsAndStubbornPeers:
    def test_an_error_in_one_session_is_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def scene(broker: InProcess) -> None:
            broker.queue("q")
            (bad, bad_wire), (good, good_wire) = broker.kokaq(), broker.kokaq()

            def fault(_: object) -> bool:
                raise RuntimeError("a fault\nof ours")

            monkeypatch.setattr(bad, "handle", fault)
            bad.data_received(kokaq(NOP))
            good.data_received(kokaq(PUSH, "default/q", b"m"))
            await broker.settle()
            (line,) = broker.events("error in a session")
            assert "a fault" in line["error"]
            assert (bad_wire.aborted, good_wire.closed, len(good_wire.writes)) == (True, False, 1)

        play(scene)

    @pytest.mark.parametrize("where", ["release", "_flush"])
    def test_also_when_answers_and_deliveries_are_put_into_words(
        self, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        async def scene(broker: InProcess) -> None:
            broker.queue("q")
            (bad, bad_wire), (good, good_wire) = broker.kokaq(), broker.kokaq()

            def fault(*_: object) -> None:
                raise RuntimeError("a fault of ours")

            monkeypatch.setattr(bad, where, fault)
            bad.data_received(kokaq(ACQUIRE, "default/q") + kokaq(NOP))
            good.data_received(kokaq(PUSH, "default/q", b"m"))
            await broker.settle()
            assert (bad_wire.aborted, good_wire.closed, len(good_wire.writes)) == (True, False, 1)
            bad.connection_lost(None)
            good.data_received(kokaq(POP, "default/q"))
            await broker.settle()
            assert good_wire.sent.endswith(b"m")

        play(scene)

    def test_a_fault_of_the_broker_itself_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def scene(broker: InProcess) -> None:
            def fault(_: int) -> None:
                raise AssertionError("the law is broken")

            monkeypatch.setattr(broker.runtime.broker, "tick", fault)
            broker.runtime.touched()
            await asyncio.sleep(0.01)
            assert [str(error) for error in broker.failures] == ["the law is broken"]

        play(scene)

    @pytest.mark.parametrize("step", ["publish", "leave"])
    def test_a_command_that_finds_a_message_missing_ends_the_broker(self, step: str) -> None:
        """ "The broker checks this after every command, from counters, and stops rather than going on wrong"."""

        async def scene(broker: InProcess) -> None:
            session, _ = broker.phpmq()
            session.data_received(publish("q", b"one") + consume("q", 1))
            await broker.settle()
            queue = broker.runtime.broker.queue("default", "q")
            assert queue is not None
            queue.counters.published += 1
            if step == "publish":
                session.data_received(publish("q", b"two"))
            else:
                session.connection_lost(None)
            await broker.settle()
            assert isinstance(broker.failures[0], Miscounted)

        play(scene)

    def test_a_clock_beyond_the_protocols_last_second_loses_no_message(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Kokaq's seconds have 32 bits and end in 2106. A pop whose answer can't be encoded would lose its message."""

        async def scene(broker: InProcess) -> None:
            monkeypatch.setattr(broker.runtime, "now", lambda: 2**33 * 1_000_000)
            broker.queue("q")
            session, wire = broker.kokaq()
            session.data_received(kokaq(PUSH, "default/q", b"payload") + kokaq(GET, "default/q"))
            session.data_received(kokaq(ACQUIRE, "default/q", fields={UUID: bytes(16)}) + kokaq(POP, "default/q"))
            await broker.settle()
            assert b"payload" in wire.sent
            assert not wire.closed

        play(scene)

    def test_a_peer_that_does_not_take_its_last_bytes_is_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def scene(broker: InProcess) -> None:
            session, wire = broker.sspq()
            session.data_received(bytes(8))
            assert (wire.closed, wire.aborted) == (True, False)
            await asyncio.sleep(2.5 * rounds.ROUND)
            assert wire.aborted

        monkeypatch.setattr(rounds, "LINGER", 0.05)
        play(scene)

    def test_answers_wait_for_a_slow_peer(self) -> None:
        async def scene(broker: InProcess) -> None:
            broker.queue("q")
            session, wire = broker.kokaq()
            session.data_received(kokaq(PUSH, "default/q", bytes(5000)) * 10)
            await broker.settle()
            wire.writes.clear()
            session.pause_writing()
            session.data_received(kokaq(POP, "default/q") * 10 + kokaq(POP, "default/q"))
            await broker.settle()
            assert wire.writes == []
            session.resume_writing()
            await broker.settle()
            assert len(wire.writes) > 1  # at most output_bytes at a time
            assert max(map(len, wire.writes)) < 12_000
            assert len(wire.sent) > 50_000
            assert wire.sent.endswith(bytes((POP, FAIL_OK, 0, 0)))

        play(scene, output_bytes=6000)

    def test_a_peer_that_has_finished_sending_gets_its_answers(self) -> None:
        async def scene(broker: InProcess) -> None:
            broker.queue("q")
            session, wire = broker.kokaq()
            broker.journal.hold()
            session.data_received(kokaq(PUSH, "default/q", b"m") + kokaq(NOP))
            assert session.eof_received()
            await broker.settle()
            assert (wire.writes, wire.closed) == ([], False)
            broker.journal.go_on()
            await broker.settle()
            assert wire.sent.endswith(NOP_ANSWER)
            assert wire.closed

        play(scene)

    def test_a_receiver_that_has_finished_sending_gets_nothing(self) -> None:
        """It could not confirm, so the message stays for other receivers, with an unchanged counter."""

        async def scene(broker: InProcess) -> None:
            session, wire = broker.sspq()
            session.data_received(send(b"m", 0) + sspq(RECEIVE) + sspq(RECEIVE))
            session.eof_received()
            await broker.settle()
            session.connection_lost(None)
            assert (wire.sent, wire.closed) == (sspq(NO_RECEIVE), True)
            queue = broker.runtime.broker.queue("default", "sspq")
            assert queue is not None
            assert (len(queue.ready), len(queue.dead)) == (1, 0)

        play(scene)


class TestAQueueThatIsDeleted:
    def test_each_protocol_ends_its_consumers_in_its_own_way(self) -> None:
        """A queue of that name may be created again, but a window belongs to the deleted one."""

        async def scene(broker: InProcess) -> None:
            broker.queue("sspq")
            (reader, dispatches), (receiver, packages), (operator, _) = broker.phpmq(), broker.sspq(), broker.kokaq()
            reader.data_received(consume("q", 5))
            receiver.data_received(sspq(RECEIVE))
            await broker.settle()
            operator.data_received(kokaq(DELETE, "default/q") + kokaq(DELETE, "default/sspq"))
            await broker.settle()
            assert dispatches.closed
            assert broker.events("a queue that is consumed was deleted")
            assert (packages.sent, packages.closed) == (sspq(NO_RECEIVE), False)

        play(scene)


class TestTrimmedMessages:
    def test_a_popped_message_is_delivered_however_late_its_answer_leaves(self) -> None:
        """It has left the queue, so it must arrive, even if the log is trimmed while a slow peer delays it."""

        async def scene(broker: InProcess) -> None:
            engine = broker.runtime.engine
            broker.queue("q")
            session, wire = broker.kokaq()
            first = engine.log.end
            for number in range(5):
                session.data_received(kokaq(PUSH, "default/q", b"message %d " % number + bytes(40_000)))
                await broker.settle()
            wire.writes.clear()
            session.data_received(kokaq(POP, "default/q") * 4)
            engine.recent = RecentMessages(0)
            session.pause_writing()
            await broker.settle()
            lowest = broker.runtime.broker.lowest_position()
            await broker.runtime.cold_reads.keep_answers(broker.runtime.output.awaiting, lowest)
            broker.runtime.commits.call(lambda: engine.log.trim(lowest))
            while engine.log.start < first + 2:
                await asyncio.sleep(0.01)
            assert wire.writes == []
            session.resume_writing()
            await broker.settle()
            assert not broker.events("error in a session")
            assert [number for number in range(5) if b"message %d " % number in wire.sent] == [0, 1, 2, 3]

        play(scene)
