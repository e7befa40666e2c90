"""Work done in steps ends as if done at once, and in between no message is lost, duplicated or out of order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.broker import Broker
from penstock.core.commands.dispatch import TryAgain
from penstock.core.commands.publish import PublishRefusal
from penstock.core.policy import Policy
from penstock.core.recovery.restore import restore
from penstock.core.recovery.table import Table
from penstock.core.state import DeliveryEffect
from penstock.journal.format.block import parse
from penstock.journal.format.encoding import encode
from support.bench import NOW, SECOND, Bench

#: The results of peek, lock and pop without a message.
NOTHING: tuple[object, ...] = (None, [], ([], []))


@contextmanager
def small(**budgets: int) -> Iterator[None]:
    patches = [patch(f"penstock.core.budget.{name}", value) for name, value in budgets.items()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def count_ticks_until_done(broker: Broker, now: int) -> int:
    """Tick until nothing is left to do immediately. Returns the number of ticks."""
    ticks = 1
    while broker.tick(now) == now:
        ticks += 1
    return ticks


def deliveries_of(windows: list[int], priorities: list[int]) -> dict[int, list[int]]:
    """Return each consumer's messages in order, when all windows open before the messages arrive."""
    bench = Bench(paused=True)
    for number, window in enumerate(windows):
        bench.broker.subscribe(bench.peer(number), bench.queue, window, NOW)
    for priority in priorities:
        bench.publish(priority=priority)
    bench.broker.configure_queue(bench.queue, Policy(), NOW)
    count_ticks_until_done(bench.broker, NOW)
    found: dict[int, list[int]] = {}
    for effect in bench.broker.take_effects():
        assert isinstance(effect, DeliveryEffect)
        found.setdefault(effect.connection.id, []).extend(out.item.position for out in effect.messages)
    return found


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    windows=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    priorities=st.lists(st.integers(0, 2), max_size=20),
    most=st.integers(1, 5),
    share=st.integers(1, 3),
)
def test_messages_delivered_in_steps_go_to_the_same_consumers(
    windows: list[int], priorities: list[int], most: int, share: int
) -> None:
    at_once = deliveries_of(windows, priorities)
    with small(HAND_OUT=most, HAND_OUT_SHARE=share):
        assert deliveries_of(windows, priorities) == at_once


def test_queues_with_many_deliveries_take_turns() -> None:
    bench = Bench()
    other = bench.broker.create_queue("default", "other", NOW)
    bench.publish(40)
    bench.broker.publish(bench.publisher, other, [b"x"] * 40, NOW)
    with small(HAND_OUT=10, HAND_OUT_SHARE=5):
        bench.broker.tick(NOW)
        bench.broker.subscribe(bench.peer(1), bench.queue, 40, NOW)
        bench.broker.subscribe(bench.peer(2), other, 40, NOW)
        assert (len(bench.queue.out), len(other.out)) == (10, 0)
        assert bench.broker.tick(NOW) == NOW
        assert (len(bench.queue.out), len(other.out)) == (15, 5)
        count_ticks_until_done(bench.broker, NOW)
    assert (len(bench.queue.out), len(other.out)) == (40, 40)


def test_messages_of_a_lost_connection_return_in_steps_to_their_places() -> None:
    bench = Bench()
    bench.publish(30)
    peer = bench.peer(1)
    bench.broker.subscribe(peer, bench.queue, 20, NOW)
    unseen = {bench.position(number) for number in range(11, 21)}
    with small(GIVE_BACK=6):
        bench.broker.tick(NOW)
        bench.broker.disconnect(peer, NOW, lambda out: out.item.position in unseen)
        assert (len(bench.queue.ready), len(bench.queue.out)) == (16, 14)
        assert list(bench.broker.holders()) == [bench.publisher, peer]
        assert not bench.broker.delete_queue(bench.queue, NOW)
        assert count_ticks_until_done(bench.broker, NOW) == 3
    assert bench.ready() == list(range(1, 31))
    assert [bench.queue.deliveries.get(bench.position(number), 0) for number in (1, 10, 11, 20)] == [1, 1, 0, 0]
    assert list(bench.broker.holders()) == [bench.publisher]


def test_a_lock_that_expires_while_its_connection_is_removed_ends_once() -> None:
    bench = Bench()
    bench.publish(10)
    peer = bench.peer(1)
    for _ in range(10):
        bench.broker.lock(peer, bench.queue, NOW, SECOND)
    with small(GIVE_BACK=3):
        bench.broker.tick(NOW)
        bench.broker.disconnect(peer, NOW)
        count_ticks_until_done(bench.broker, NOW + SECOND)
    assert bench.ready() == list(range(1, 11))
    assert set(bench.queue.deliveries.values()) == {1}


def test_locks_that_end_together_end_in_steps_and_in_order() -> None:
    bench = Bench()
    bench.publish(10)
    for _ in range(10):
        bench.broker.lock(bench.peer(1), bench.queue, NOW, SECOND)
    with small(END_LOCKS=4):
        assert count_ticks_until_done(bench.broker, NOW + SECOND) == 3
    assert bench.ready() == list(range(1, 11))


def test_request_ids_are_forgotten_on_time_without_new_publications() -> None:
    bench = Bench(deduplication=SECOND)
    for number in range(100):
        bench.publish(request_id=b"%d" % number)
    assert bench.publish(request_id=b"7").duplicate
    with small(FORGET=10):
        assert count_ticks_until_done(bench.broker, NOW + 3 * SECOND) >= 10
    assert len(bench.queue.requests) == 0
    assert bench.broker.tick(NOW + 3 * SECOND) is None
    assert not bench.publish(request_id=b"7").duplicate


def test_a_reused_request_id_is_remembered_from_then_on() -> None:
    bench = Bench(deduplication=SECOND)
    bench.publish(request_id=b"a")
    assert not bench.publish(request_id=b"a", now=NOW + SECOND).duplicate
    bench.broker.tick(NOW + SECOND + SECOND // 2)
    assert bench.publish(request_id=b"a", now=NOW + SECOND + SECOND // 2).duplicate


def test_forgotten_request_ids_do_not_return_with_a_restart() -> None:
    bench = Bench(deduplication=SECOND)
    bench.publish(request_id=b"old")
    bench.publish(request_id=b"new", now=NOW + 5 * SECOND)
    table = Table()
    table.apply([parse(encode(batch, 1, 0).data) for batch in bench.broker.log.take()])
    broker = restore(table, bench.broker.log.next_position, NOW + 5 * SECOND)
    queue = broker.queue("default", "q")
    assert queue is not None
    assert list(queue.requests.as_dict()) == [b"new"]
    count_ticks_until_done(broker, NOW + 9 * SECOND)
    assert len(queue.requests) == 0


@pytest.mark.parametrize("command", ["pop", "lock", "peek"])
def test_a_receive_behind_very_many_expired_messages_has_to_be_retried(command: str) -> None:
    bench = Bench()
    bench.publish(25, ttl=SECOND)
    bench.publish()
    later = NOW + 2 * SECOND

    def ask() -> object:
        if command == "peek":
            return bench.broker.peek(bench.queue, later)
        return getattr(bench.broker, command)(bench.publisher, bench.queue, later)

    with small(COME_ACROSS=10, EXPIRE=1):
        bench.broker.tick(NOW)
        for _ in range(2):
            with pytest.raises(TryAgain):
                ask()
            bench.broker.tick(later)
        assert ask() not in NOTHING
    bench.broker.configure_queue(bench.queue, Policy(paused=True), later)
    assert ask() in NOTHING


def test_a_queue_that_has_to_drop_more_than_one_step_allows_refuses_until_there_is_room() -> None:
    bench = Bench(on_full="drop-oldest", max_bytes=1_000)
    bench.publish(1_000)
    assert bench.publish(size=900).accepted == 1
    assert bench.queue.bytes > 1_000
    assert bench.publish().refusal is PublishRefusal.FULL
    count_ticks_until_done(bench.broker, NOW)
    assert bench.queue.bytes == 1_000
    assert len(bench.queue.ready) == 101
    assert bench.publish().accepted == 1


def test_a_restart_restores_very_many_priorities() -> None:
    bench = Bench()
    for priority in range(100):
        bench.publish(priority=priority % 97, ttl=SECOND if priority % 2 else 0)
    table = Table()
    table.apply([parse(encode(batch, 1, 0).data) for batch in bench.broker.log.take()])
    broker = restore(table, bench.broker.log.next_position)
    queue = broker.queue("default", "q")
    assert queue is not None
    assert len(broker.find(queue, [bench.position(number) for number in range(1, 101)])) == 100
    taken = queue.ready.take(200)
    assert [(item.priority, item.position) for item in taken] == [
        (item.priority, item.position) for item in bench.queue.ready.take(200)
    ]
    assert not queue.ready.deadlines
