"""A waiting receive of dead letters gets the message, however it died."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.core.policy import Policy
from support.bench import NOW, SECOND, Bench

LATER = NOW + 2 * SECOND


def lock(bench: Bench) -> None:
    bench.broker.lock(bench.publisher, bench.queue, NOW, 5 * SECOND)


def settle(bench: Bench, how: str) -> None:
    lock(bench)
    getattr(bench.broker, how)(bench.publisher, bench.queue, bench.position(1), NOW)


def reject(bench: Bench) -> None:
    lock(bench)
    bench.broker.reject(bench.publisher, bench.queue, [bench.position(1)], NOW)


def lose(bench: Bench) -> None:
    peer = bench.peer(3)
    bench.broker.lock(peer, bench.queue, NOW)
    bench.broker.disconnect(peer, NOW)


def end_lock(bench: Bench) -> None:
    lock(bench)
    bench.broker.tick(NOW + 5 * SECOND)


DEATHS: dict[str, Callable[[Bench], object]] = {
    "expired, found by tick": lambda bench: bench.broker.tick(LATER),
    "expired, found by lock": lambda bench: bench.broker.lock(bench.publisher, bench.queue, LATER),
    "expired, found by pop": lambda bench: bench.broker.pop(bench.publisher, bench.queue, LATER),
    "expired, found by peek": lambda bench: bench.broker.peek(bench.queue, LATER),
    "expired, found by receive": lambda bench: bench.broker.receive(bench.peer(3), bench.queue, LATER),
    "expired, found by a window": lambda bench: bench.broker.subscribe(bench.peer(3), bench.queue, 2, LATER),
    "overflow": lambda bench: bench.publish(),
    "too often: released": lambda bench: settle(bench, "release"),
    "too often: requeued": lambda bench: settle(bench, "requeue"),
    "too often: lost": lose,
    "too often: lock ended": end_lock,
    "rejected": reject,
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_waiting_dead_receive_gets_the_message_however_it_died(death: str) -> None:
    bench = Bench(max_depth=1, on_full="drop-oldest", max_deliveries=1)
    bench.publish(ttl=SECOND)
    bench.broker.receive(bench.peer(1), bench.queue, NOW, dead=True)
    DEATHS[death](bench)
    assert bench.given() == [(1, [1])]
    bench.broker.check()


def test_a_released_dead_letter_goes_to_the_next_waiting_receive() -> None:
    bench = Bench()
    bench.publish(ttl=SECOND)
    bench.broker.tick(LATER)
    first = bench.peer(1)
    for peer in (first, bench.peer(2)):
        bench.broker.receive(peer, bench.queue, NOW, dead=True)
    bench.broker.release(first, bench.queue, bench.position(1), NOW)
    assert bench.given() == [(1, [1]), (2, [1])]


def test_switching_off_dead_letters_answers_waiting_receives() -> None:
    bench = Bench()
    peer = bench.peer(1)
    bench.broker.receive(peer, bench.queue, NOW, dead=True)
    bench.broker.configure_queue(bench.queue, Policy(dead_letters=False), NOW)
    assert bench.given() == [(1, [])]
    assert not peer.subscriptions
