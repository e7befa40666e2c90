"""Busy polling: only while requests follow answers at once, only briefly, and not while waiting for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.server.network.busy_poll import LEAST_PAUSE, MOMENT, MOST_PAUSE, MOST_ROUNDS, ROUNDS, BusyPoll
from penstock.server.protocols.kokaq.session import KokaqSession
from penstock.wire import kokaq
from penstock.wire.kokaq import MessageType
from support.inprocess import InProcess, running


class Loop:
    """An event loop that the test iterates; each iteration takes a tenth of ``MOMENT``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def clock(self) -> float:
        return self.now

    def iterate(self) -> int:
        """Iterate until the loop would sleep. Returns the number of iterations."""
        count = 0
        while self.soon:
            called, self.soon = self.soon, []
            self.now += MOMENT / 10
            for callback in called:
                callback()
            count += 1
        return count


def polling(cpus: float = 2) -> tuple[Loop, BusyPoll]:
    loop = Loop()
    return loop, BusyPoll(loop, cpus, loop.clock)


def pause(loop: Loop, poll: BusyPoll, seconds: float) -> None:
    """Be idle for some seconds, then receive bytes."""
    poll.idle()
    loop.now += seconds
    poll.busy()


def test_a_loop_sleeps_until_bytes_have_come_at_once() -> None:
    loop, poll = polling()
    poll.idle()
    assert loop.iterate() == 0
    loop.now += 2 * MOMENT
    poll.busy()
    poll.idle()
    assert loop.iterate() == 0
    poll.busy()
    pause(loop, poll, MOMENT / 2)
    poll.idle()
    assert loop.soon


def test_it_sleeps_again_after_a_moment_without_any() -> None:
    loop, poll = polling()
    pause(loop, poll, MOMENT / 2)
    poll.idle()
    assert loop.iterate() in (10, 11)
    poll.idle()
    assert loop.iterate() == 0
    loop.now += 1
    poll.busy()
    poll.idle()
    assert loop.iterate() == 0


def test_it_continues_while_bytes_come_at_once() -> None:
    loop, poll = polling()
    pause(loop, poll, MOMENT / 2)
    for _ in range(20):
        poll.idle()
        assert len(loop.soon) == 1
        loop.now += MOMENT / 3
        poll.busy()
        assert loop.iterate() == 1  # the scheduled poll finds work
    assert not loop.soon


def test_it_does_not_poll_twice() -> None:
    loop, poll = polling()
    pause(loop, poll, MOMENT / 2)
    for _ in range(5):
        poll.idle()
        poll.busy()
    poll.idle()
    assert len(loop.soon) == 1


def test_other_turns_do_not_prolong_it() -> None:
    """Turns that were not caused by bytes: ticks, reports of threads."""
    loop, poll = polling()
    pause(loop, poll, MOMENT / 2)
    poll.idle()
    looks = 0
    while loop.soon:
        looks += 1
        loop.now += MOMENT / 10
        poll.idle()
        called, loop.soon = loop.soon, []
        for callback in called:
            callback()
    assert looks in (10, 11)
    loop.now += 1
    poll.idle()
    loop.now += MOMENT / 2
    poll.busy()  # long after the last bytes, though soon after that turn
    poll.idle()
    assert not loop.soon


def test_it_stops_while_a_thread_is_at_work_and_starts_again_afterwards() -> None:
    loop, poll = polling()
    pause(loop, poll, MOMENT / 2)
    poll.idle()
    poll.wait()
    assert loop.iterate() == 1
    loop.now += 1
    poll.idle()
    assert loop.iterate() in (10, 11)


def rounds(loop: Loop, poll: BusyPoll, count: int, seconds: float = MOMENT / 3) -> int:
    """Receive bytes ``count`` times, ``seconds`` after an answer. Returns how many of these rounds polled."""
    polled = 0
    for _ in range(count):
        poll.idle()
        polled += bool(loop.soon)
        if seconds > MOMENT:
            loop.iterate()
        loop.now += seconds
        poll.busy()
        loop.iterate()
    return polled


def test_it_backs_off_when_too_many_polls_find_nothing() -> None:
    loop, poll = polling()
    pauses = []
    for _ in range(9):
        assert rounds(loop, poll, 10) >= 9  # the first round only starts the polling
        assert rounds(loop, poll, 1, 2 * MOMENT) == 1
        paused_at = loop.now
        while not rounds(loop, poll, 1):
            pass
        pauses.append(loop.now - paused_at)
    assert pauses == pytest.approx([min(LEAST_PAUSE * 2**number, MOST_PAUSE) for number in range(9)], abs=5 * MOMENT)
    rounds(loop, poll, MOST_ROUNDS)
    assert [rounds(loop, poll, 1, 2 * MOMENT) + rounds(loop, poll, 2) for _ in range(11)] == [2] * 10 + [1]
    paused_at = loop.now
    while not rounds(loop, poll, 1):
        pass
    assert loop.now - paused_at == pytest.approx(LEAST_PAUSE, abs=5 * MOMENT)


def test_a_slow_poll_counts_as_a_miss() -> None:
    """Another process had the CPU, or another thread the interpreter."""
    loop, poll = polling()
    pause(loop, poll, MOMENT / 2)
    poll.idle()
    loop.now += 5e-3
    poll.busy()
    poll.idle()  # before the requested poll has run
    assert loop.iterate() == 1
    assert rounds(loop, poll, 20) == 0


def test_it_continues_while_misses_are_rare() -> None:
    loop, poll = polling()
    rounds(loop, poll, 2 * ROUNDS)
    for _ in range(20):
        assert rounds(loop, poll, 1, 2 * MOMENT) == 1
        assert rounds(loop, poll, ROUNDS + 1) == ROUNDS


@pytest.mark.parametrize("cpus", [1, 1.5])
def test_a_single_cpu_is_never_polled_on(cpus: float) -> None:
    loop, poll = polling(cpus)
    for _ in range(3):
        pause(loop, poll, MOMENT / 2)
    poll.idle()
    assert not loop.soon


@pytest.mark.parametrize("waits", [False, True], ids=["written at once", "the disk is waited for"])
def test_a_broker_polls_when_it_has_answered(waits: bool) -> None:
    """Not while a commit is in flight: its thread needs the interpreter, and wakes the loop when it is done."""

    def push(broker: InProcess, session: KokaqSession, loop: Loop) -> None:
        """Send a request right after the last answer."""
        loop.now += MOMENT / 2
        request = kokaq.Pushes(MessageType.OPERATIONAL, True, 0, "default", "q", (b"0001",), b"\0", (b"message",))
        session.data_received(kokaq.encode_requests([request]))
        broker.runtime.turns.run()

    async def main() -> None:
        async with running() as broker:
            broker.queue("q")
            await broker.settle()
            loop = Loop()
            broker.runtime.turns._busy_poll = BusyPoll(loop, 2, loop.clock)
            session, wire = broker.kokaq()
            broker.runtime.turns.run()
            if waits:
                broker.journal.hold()
            for _ in range(3):
                push(broker, session, loop)
                if not waits:
                    await broker.settle()
            assert bool(loop.soon) is not waits
            assert bool(wire.sent) is not waits

    asyncio.run(main())
