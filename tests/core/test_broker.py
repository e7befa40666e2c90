"""The rules of queues, one example each. test_broker_stateful.py tests their combinations."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.core.budget import EXPIRE
from penstock.core.commands.publish import PublishRefusal
from penstock.core.policy import Policy
from penstock.core.state import DeliveryEffect
from penstock.schema import FOREVER, Kind, Reason
from support.bench import NOW, SECOND, Bench

# Order


def test_higher_priority_first_then_first_in_first_out() -> None:
    bench = Bench()
    for priority in (0, 5, 0, 5, 2**64 - 1):
        bench.publish(priority=priority)
    assert bench.ready() == [5, 2, 4, 1, 3]


def test_a_released_message_returns_to_its_place_and_counts_a_delivery() -> None:
    bench = Bench()
    bench.publish(3)
    peer = bench.peer(1)
    (out,) = bench.broker.lock(peer, bench.queue, NOW)
    assert bench.broker.release(peer, bench.queue, out.item.position, NOW)
    assert bench.ready() == [1, 2, 3]
    assert bench.queue.deliveries == {bench.position(1): 1}


def test_a_requeued_message_goes_to_the_end_of_its_priority_with_a_new_time_to_live_and_no_retry_spent() -> None:
    bench = Bench()
    bench.publish(2, retries=3, priority=1, ttl=SECOND)
    bench.publish(1)
    peer = bench.peer(1)
    bench.broker.lock(peer, bench.queue, NOW)
    assert bench.broker.requeue(peer, bench.queue, bench.position(1), NOW, ttl=9 * SECOND)
    assert bench.ready() == [2, 1, 3]
    item = bench.queue.find_ready(bench.position(1))
    assert item is not None
    assert (item.expires, item.retries) == (NOW + 9 * SECOND, 3)


def test_a_delayed_message_becomes_ready_in_order_of_publication() -> None:
    bench = Bench()
    bench.publish(delay=SECOND)
    bench.publish()
    assert bench.ready() == [2]
    assert bench.queue.depth == 2
    assert bench.broker.tick(NOW) == NOW + SECOND
    bench.broker.tick(NOW + SECOND)
    assert bench.ready() == [1, 2]


# Windows and waiting


def test_a_window_bounds_messages_out_and_each_settlement_opens_a_slot() -> None:
    bench = Bench()
    bench.publish(5)
    peer = bench.peer(1)
    bench.broker.subscribe(peer, bench.queue, 2, NOW)
    assert bench.given() == [(1, [1, 2])]
    bench.broker.acknowledge(peer, bench.queue, [bench.position(1)], NOW)
    assert bench.given() == [(1, [3])]
    bench.broker.requeue(peer, bench.queue, bench.position(2), NOW)
    assert bench.given() == [(1, [4])]
    bench.broker.reject(peer, bench.queue, [bench.position(3)], NOW)
    assert bench.given() == [(1, [5])]


def test_a_later_window_replaces_the_earlier_and_zero_stops_while_messages_out_stay_out() -> None:
    bench = Bench()
    bench.publish(9)
    peer = bench.peer(1)
    for window, given in ((2, [1, 2]), (4, [3, 4]), (1, None), (0, None)):
        bench.broker.subscribe(peer, bench.queue, window, NOW)
        assert bench.given() == ([(1, given)] if given else [])
    bench.broker.acknowledge(peer, bench.queue, [bench.position(number) for number in (1, 2, 3)], NOW)
    assert bench.given() == []
    assert len(peer.out) == 1


def test_a_window_counts_messages_out_before_it_was_stopped() -> None:
    """At most N are unacknowledged on that connection and queue."""
    bench = Bench()
    bench.publish(9)
    peer = bench.peer(1)
    for window in (2, 0, 3):
        bench.broker.subscribe(peer, bench.queue, window, NOW)
    assert bench.given() == [(1, [1, 2]), (1, [3])]
    bench.broker.acknowledge(peer, bench.queue, [bench.position(1)], NOW)
    assert bench.given() == [(1, [4])]


def test_consumers_take_turns_across_commands() -> None:
    bench = Bench()
    for number in (1, 2, 3):
        bench.broker.subscribe(bench.peer(number), bench.queue, 10, NOW)
    bench.publish(4)
    assert bench.given() == [(1, [1, 4]), (2, [2]), (3, [3])]
    bench.publish()
    bench.publish()
    assert bench.given() == [(2, [5]), (3, [6])]


def test_a_single_receive_waits_its_turn_beside_windows() -> None:
    bench = Bench()
    assert bench.broker.receive(bench.peer(1), bench.queue, NOW)
    bench.broker.subscribe(bench.peer(2), bench.queue, 5, NOW)
    bench.publish(3)
    assert bench.given() == [(1, [1]), (2, [2, 3])]


def test_a_second_receive_is_refused_and_the_first_remains() -> None:
    bench = Bench()
    peer = bench.peer(1)
    assert bench.broker.receive(peer, bench.queue, NOW)
    assert not bench.broker.receive(peer, bench.queue, NOW)
    bench.publish(2)
    assert bench.given() == [(1, [1])]


def test_a_delivery_waits_for_the_commit_of_its_own_message_only() -> None:
    bench = Bench()
    first = bench.publish().first
    bench.broker.committed = bench.broker.log.next_position
    second = bench.publish().first
    bench.broker.subscribe(bench.peer(1), bench.queue, 5, NOW)
    durable, fresh = bench.broker.take_effects()
    assert isinstance(durable, DeliveryEffect)
    assert isinstance(fresh, DeliveryEffect)
    assert ([out.item.position for out in durable.messages], durable.after) == ([first], 0)
    assert ([out.item.position for out in fresh.messages], fresh.after) == ([second], second + 1)


def test_a_paused_queue_accepts_and_expires_messages_but_delivers_none() -> None:
    bench = Bench(paused=True)
    peer = bench.peer(1)
    bench.broker.subscribe(peer, bench.queue, 5, NOW)
    bench.publish(ttl=SECOND)
    bench.publish()
    assert bench.broker.lock(peer, bench.queue, NOW) == []
    assert bench.broker.pop(peer, bench.queue, NOW) == ([], [])
    assert bench.broker.peek(bench.queue, NOW) is None
    bench.broker.tick(NOW + SECOND)
    assert bench.dead() == [(1, Reason.EXPIRED)]
    assert bench.given() == []
    bench.broker.configure_queue(bench.queue, Policy(), NOW)
    assert bench.given() == [(1, [2])]


def test_draining_stops_publishing_and_delivery_and_answers_waiting_receives() -> None:
    bench = Bench()
    peer = bench.peer(1)
    bench.broker.receive(peer, bench.queue, NOW)
    bench.broker.receive(peer, bench.queue, NOW, dead=True)
    bench.broker.drain(NOW)
    assert bench.given() == [(1, []), (1, [])]
    assert bench.publish().refusal is PublishRefusal.DRAINING
    assert not bench.broker.receive(peer, bench.queue, NOW)


# The right to settle


def test_only_the_connection_that_has_a_message_can_settle_it() -> None:
    bench = Bench()
    bench.publish()
    owner, other = bench.peer(1), bench.peer(2)
    bench.broker.lock(owner, bench.queue, NOW)
    position = bench.position(1)
    assert bench.broker.acknowledge(other, bench.queue, [position], NOW) == 0
    assert not bench.broker.release(other, bench.queue, position, NOW)
    assert not bench.broker.requeue(other, bench.queue, position, NOW)
    assert bench.broker.reject(other, bench.queue, [position], NOW) == 0
    assert bench.broker.renew(other, position, NOW) is None
    assert bench.broker.acknowledge(owner, bench.queue, [position, position], NOW) == 1


def test_a_wrong_queue_settles_nothing() -> None:
    bench = Bench()
    bench.publish()
    elsewhere = bench.broker.create_queue("default", "other", NOW)
    peer = bench.peer(1)
    bench.broker.lock(peer, bench.queue, NOW)
    assert bench.broker.acknowledge(peer, elsewhere, [bench.position(1)], NOW) == 0


# Lost connections


def test_messages_of_a_lost_connection_return_to_their_place_and_count_a_delivery() -> None:
    bench = Bench()
    bench.publish(3)
    peer = bench.peer(1)
    bench.broker.subscribe(peer, bench.queue, 2, NOW)
    bench.broker.disconnect(peer, NOW)
    assert bench.ready() == [1, 2, 3]
    assert set(bench.queue.deliveries.values()) == {1}
    assert not bench.queue.waiting


@pytest.mark.parametrize(("retries", "left"), [(FOREVER, FOREVER), (3, 2), (1, 0)])
def test_a_lost_sspq_connection_spends_a_retry_and_requeues(retries: int, left: int) -> None:
    bench = Bench()
    bench.publish(2, retries=retries)
    peer = bench.peer(1, sspq=True)
    bench.broker.receive(peer, bench.queue, NOW)
    bench.broker.disconnect(peer, NOW)
    assert bench.ready() == [2, 1]
    item = bench.queue.find_ready(bench.position(1))
    assert item is not None
    assert item.retries == left


def test_a_lost_sspq_connection_with_no_retry_left_buries_the_message_or_drops_it() -> None:
    for policy, dead, dropped in ((True, [(1, Reason.RETRIES)], 0), (False, [], 1)):
        bench = Bench(dead_letters=policy)
        bench.publish(retries=0)
        peer = bench.peer(1, sspq=True)
        bench.broker.receive(peer, bench.queue, NOW)
        bench.broker.disconnect(peer, NOW)
        assert bench.dead() == dead
        assert bench.queue.counters.dropped == dropped


def test_a_dead_letter_of_a_lost_connection_returns_unchanged() -> None:
    bench = Bench()
    bench.publish(2, retries=0)
    peer = bench.peer(1, sspq=True)
    bench.broker.subscribe(peer, bench.queue, 2, NOW)
    bench.broker.reject(peer, bench.queue, [bench.position(2), bench.position(1)], NOW)
    before = list(bench.queue.dead)
    bench.broker.receive(peer, bench.queue, NOW, dead=True)
    assert bench.dead() == [(1, Reason.REJECTED)]
    bench.broker.disconnect(peer, NOW)
    assert list(bench.queue.dead) == before


# Locks


def test_a_lock_expires_and_the_message_returns_to_its_place() -> None:
    bench = Bench(lock=5 * SECOND)
    bench.publish(2)
    peer = bench.peer(1)
    bench.broker.lock(peer, bench.queue, NOW)
    assert bench.broker.tick(NOW) == NOW + 5 * SECOND
    bench.broker.tick(NOW + 5 * SECOND - 1)
    assert bench.ready() == [2]
    bench.broker.tick(NOW + 5 * SECOND)
    assert bench.ready() == [1, 2]
    assert bench.queue.deliveries == {bench.position(1): 1}
    assert bench.broker.acknowledge(peer, bench.queue, [bench.position(1)], NOW) == 0


def test_a_renewed_lock_runs_from_now_even_if_that_is_shorter() -> None:
    bench = Bench()
    bench.publish(2)
    peer = bench.peer(1)
    for _ in range(2):
        bench.broker.lock(peer, bench.queue, NOW, 10 * SECOND)
    bench.broker.renew(peer, bench.position(1), NOW, 60 * SECOND)
    bench.broker.renew(peer, bench.position(2), NOW, SECOND)
    bench.broker.tick(NOW + SECOND)
    assert bench.ready() == [2]
    bench.broker.tick(NOW + 59 * SECOND)
    assert bench.ready() == [2]
    bench.broker.tick(NOW + 60 * SECOND)
    assert bench.ready() == [1, 2]


def test_a_message_of_a_window_has_no_lock_to_renew() -> None:
    bench = Bench()
    bench.publish()
    peer = bench.peer(1)
    bench.broker.subscribe(peer, bench.queue, 1, NOW)
    assert bench.broker.renew(peer, bench.position(1), NOW) is None


# Peek and pop


def test_peek_skips_a_message_from_the_moment_it_expires() -> None:
    bench = Bench()
    expiring, lasting = bench.publish(ttl=SECOND).first, bench.publish().first
    before, then = (bench.broker.peek(bench.queue, NOW + SECOND - 1), bench.broker.peek(bench.queue, NOW + SECOND))
    assert before is not None
    assert then is not None
    assert (before.position, then.position) == (expiring, lasting)
    assert bench.dead() == [(1, Reason.EXPIRED)]


def test_peek_leaves_the_message_and_pop_removes_it() -> None:
    bench = Bench()
    bench.publish(2)
    item = bench.broker.peek(bench.queue, NOW)
    assert item is not None
    assert bench.broker.pop(bench.peer(1), bench.queue, NOW) == ([item], [0])
    assert bench.ready() == [2]
    assert bench.queue.counters.popped == 1


# Time to live


def test_messages_expire_promptly_whatever_their_order() -> None:
    bench = Bench()
    for ttl in (9, 1, 5):
        bench.publish(ttl=ttl * SECOND)
    bench.publish()
    bench.broker.tick(NOW + SECOND)
    assert bench.dead() == [(2, Reason.EXPIRED)]
    bench.broker.tick(NOW + 5 * SECOND)
    assert bench.ready() == [1, 4]


def test_an_expired_message_is_never_delivered_even_before_the_tick() -> None:
    bench = Bench()
    bench.publish(ttl=SECOND)
    bench.publish()
    bench.broker.subscribe(bench.peer(1), bench.queue, 5, NOW + SECOND)
    assert bench.given() == [(1, [2])]
    assert bench.dead() == [(1, Reason.EXPIRED)]


def test_the_earlier_of_ttl_and_fixed_expiry_applies_and_the_default_is_used_without_either() -> None:
    bench = Bench(default_ttl=7 * SECOND)
    for options, expires in (
        ({"ttl": SECOND, "expires_at": NOW + 2 * SECOND}, NOW + SECOND),
        ({"ttl": 3 * SECOND, "expires_at": NOW + 2 * SECOND}, NOW + 2 * SECOND),
        ({}, NOW + 7 * SECOND),
        ({"ttl": 0}, 0),
    ):
        item = bench.queue.find_ready(bench.publish(**options).first)
        assert item is not None
        assert item.expires == expires


def test_a_message_that_is_out_does_not_expire_until_it_comes_back_late() -> None:
    bench = Bench()
    bench.publish(ttl=SECOND)
    peer = bench.peer(1)
    bench.broker.lock(peer, bench.queue, NOW, 60 * SECOND)
    bench.broker.tick(NOW + 2 * SECOND)
    assert bench.dead() == []
    bench.broker.release(peer, bench.queue, bench.position(1), NOW + 2 * SECOND)
    assert bench.dead() == [(1, Reason.EXPIRED)]


def test_a_message_that_came_back_in_time_still_expires() -> None:
    bench = Bench()
    bench.publish(ttl=5 * SECOND)
    peer = bench.peer(1)
    bench.broker.lock(peer, bench.queue, NOW)
    bench.broker.tick(NOW)
    bench.broker.release(peer, bench.queue, bench.position(1), NOW)
    following = bench.broker.tick(NOW + 1)
    assert following is not None
    assert following <= NOW + 5 * SECOND
    bench.broker.tick(NOW + 5 * SECOND)
    assert bench.dead() == [(1, Reason.EXPIRED)]


def test_a_delayed_message_may_expire_before_it_is_ready() -> None:
    bench = Bench()
    bench.publish(delay=9 * SECOND, ttl=SECOND)
    bench.broker.tick(NOW + SECOND)
    assert bench.dead() == [(1, Reason.EXPIRED)]


def test_a_queue_can_drop_expired_messages() -> None:
    bench = Bench(on_expiry="drop")
    bench.publish(ttl=SECOND)
    bench.broker.tick(NOW + SECOND)
    assert bench.queue.empty
    assert bench.queue.counters.dropped == 1


def test_one_tick_expires_a_bounded_number_and_asks_for_another() -> None:
    bench = Bench()
    for priority in range(3):
        bench.publish(EXPIRE, priority=priority, ttl=SECOND)
    left = [len(bench.queue.ready)]
    while bench.broker.tick(NOW + 3 * SECOND) == NOW + 3 * SECOND:
        left.append(len(bench.queue.ready))
    steps = [before - after for before, after in pairwise([*left, len(bench.queue.ready)])]
    assert sum(steps) == 3 * EXPIRE
    assert max(steps) <= EXPIRE


def test_messages_that_expire_in_one_tick_die_in_queue_order() -> None:
    bench = Bench()
    for priority in (1, 0, 2, 1):
        bench.publish(priority=priority, ttl=SECOND)
    bench.publish(delay=1, ttl=SECOND)
    order = bench.ready()
    bench.broker.tick(NOW + SECOND)
    assert [number for number, _ in bench.dead()] == [*order, 5]


# Dead letters


def test_a_message_dies_after_the_maximum_number_of_deliveries() -> None:
    bench = Bench(max_deliveries=2)
    bench.publish()
    peer = bench.peer(1)
    for dead in ([], [(1, Reason.DELIVERIES)]):
        bench.broker.lock(peer, bench.queue, NOW)
        bench.broker.release(peer, bench.queue, bench.position(1), NOW)
        assert bench.dead() == dead


def test_without_dead_letters_a_rejected_message_is_dropped_and_a_dead_receive_is_refused() -> None:
    bench = Bench(dead_letters=False)
    bench.publish()
    peer = bench.peer(1)
    bench.broker.lock(peer, bench.queue, NOW)
    assert bench.broker.reject(peer, bench.queue, [bench.position(1)], NOW) == 1
    assert bench.queue.counters.dropped == 1
    assert not bench.broker.receive(peer, bench.queue, NOW, dead=True)


def test_a_dead_letter_can_be_acknowledged_or_released_and_nothing_else() -> None:
    bench = Bench()
    bench.publish()
    peer = bench.peer(1)
    position = bench.position(1)
    bench.broker.lock(peer, bench.queue, NOW)
    bench.broker.reject(peer, bench.queue, [position], NOW)
    bench.broker.receive(peer, bench.queue, NOW, dead=True)
    assert not bench.broker.requeue(peer, bench.queue, position, NOW)
    assert bench.broker.reject(peer, bench.queue, [position], NOW) == 0
    assert bench.broker.release(peer, bench.queue, position, NOW)
    assert bench.dead() == [(1, Reason.REJECTED)]
    bench.broker.receive(peer, bench.queue, NOW, dead=True)
    assert bench.broker.acknowledge(peer, bench.queue, [position], NOW) == 1
    assert bench.queue.counters.acknowledged == 1


def test_redrive_keeps_the_id_clears_the_ttl_restores_the_retries_and_zeroes_the_deliveries() -> None:
    bench = Bench()
    bench.publish(retries=2, ttl=SECOND)
    for number in (1, 2, 3):
        peer = bench.peer(number, sspq=True)
        bench.broker.receive(peer, bench.queue, NOW)
        bench.broker.disconnect(peer, NOW)
    assert bench.dead() == [(1, Reason.RETRIES)]
    assert bench.broker.redrive(bench.publisher, bench.queue, NOW) == 1
    item = bench.queue.find_ready(bench.position(1))
    assert item is not None
    assert (item.expires, item.retries, item.reason) == (0, 2, 0)
    assert bench.queue.deliveries == {}


def test_redrive_to_another_queue_moves_the_message_with_its_requested_id() -> None:
    bench = Bench()
    other = bench.broker.create_queue("default", "other", NOW)
    bench.publish(asked_id=b"me", priority=3, ttl=SECOND)
    bench.broker.tick(NOW + SECOND)
    bench.broker.redrive(bench.publisher, bench.queue, NOW, to=other)
    assert bench.ready(other) == [1]
    assert bench.broker.asked == {b"me": (other, bench.position(1))}
    assert (bench.queue.counters.moved_out, other.counters.moved_in) == (1, 1)
    assert bench.publish(asked_id=b"me").refusal is PublishRefusal.EXISTS
    bench.broker.pop(bench.publisher, other, NOW)
    assert bench.publish(asked_id=b"me").accepted == 1
    bench.broker.check()


# Deletion


def test_purge_leaves_messages_that_are_out_or_dead() -> None:
    bench = Bench()
    bench.publish(3)
    bench.publish(delay=SECOND)
    peer = bench.peer(1)
    for _ in range(2):
        bench.broker.lock(peer, bench.queue, NOW)
    bench.broker.reject(peer, bench.queue, [bench.position(1)], NOW)
    assert bench.broker.purge(peer, bench.queue, NOW) == 2
    assert bench.dead() == [(1, Reason.REJECTED)]
    bench.broker.release(peer, bench.queue, bench.position(2), NOW)
    assert bench.ready() == [2]


def test_purge_dead_leaves_the_dead_letter_that_is_out() -> None:
    bench = Bench()
    bench.publish(2, ttl=SECOND)
    bench.broker.tick(NOW + SECOND)
    peer = bench.peer(1)
    bench.broker.receive(peer, bench.queue, NOW, dead=True)
    assert bench.broker.purge_dead(peer, bench.queue, NOW) == 1
    bench.broker.disconnect(peer, NOW)
    assert bench.dead() == [(1, Reason.EXPIRED)]


def test_one_message_can_be_deleted_unless_it_is_out() -> None:
    bench = Bench()
    bench.publish(2)
    bench.publish(delay=SECOND)
    bench.broker.lock(bench.publisher, bench.queue, NOW)
    results = [bench.broker.delete_message(bench.publisher, bench.queue, bench.position(n), NOW) for n in (1, 2, 3, 3)]
    assert results == [False, True, True, False]


def test_a_queue_is_deleted_only_when_empty_and_waiting_receives_are_answered() -> None:
    bench = Bench()
    bench.publish()
    assert not bench.broker.delete_queue(bench.queue, NOW)
    bench.broker.purge(bench.publisher, bench.queue, NOW)
    waiting, consumer = bench.peer(1), bench.peer(2)
    bench.broker.receive(waiting, bench.queue, NOW)
    bench.broker.subscribe(consumer, bench.queue, 3, NOW)
    assert bench.broker.delete_queue(bench.queue, NOW)
    assert bench.given() == [(1, []), (2, [])]
    for peer in (waiting, consumer):
        assert not peer.subscriptions
        bench.broker.disconnect(peer, NOW)


def test_a_namespace_is_deleted_only_when_empty() -> None:
    bench = Bench()
    assert not bench.broker.delete_namespace("default", NOW)
    assert not bench.broker.create_namespace("default", NOW)
    bench.broker.delete_queue(bench.queue, NOW)
    assert bench.broker.delete_namespace("default", NOW)


# Journal events


def test_a_delivery_is_recorded_by_the_event_that_ends_it() -> None:
    bench = Bench()
    bench.publish(2)
    bench.broker.log.take()
    peer = bench.peer(1)
    bench.broker.subscribe(peer, bench.queue, 2, NOW)
    assert not bench.broker.log.staged
    bench.broker.acknowledge(peer, bench.queue, [bench.position(1), bench.position(2)], NOW + 5)
    (batch,) = bench.broker.log.take()
    assert batch.kinds == bytes([Kind.ACKNOWLEDGED] * 2)
    assert list(batch.columns["delivered_at"]) == [NOW, NOW]
    assert list(batch.columns["deliveries"]) == [1, 1]


def test_a_lost_or_invented_message_is_detected() -> None:
    bench = Bench()
    bench.publish()
    bench.queue.counters.published += 1
    with pytest.raises(AssertionError, match=r"queue default/q: .* leaves 2 messages, but 1 are here"):
        bench.broker.check()


def test_settled_and_renewed_locks_do_not_pile_up_until_they_expire() -> None:
    bench = Bench()
    peer = bench.peer(1)
    bench.publish()
    bench.broker.lock(peer, bench.queue, NOW, 60 * SECOND)
    for _ in range(100):
        bench.broker.renew(peer, bench.position(1), NOW, 3600 * SECOND)
    for _ in range(100):
        position = bench.publish().first
        bench.broker.lock(peer, bench.queue, NOW, 3600 * SECOND)
        bench.broker.acknowledge(peer, bench.queue, [position], NOW)
    assert len(bench.broker.lock_ends) == 1
    bench.broker.tick(NOW + 3600 * SECOND)
    assert bench.ready() == [1]


@pytest.mark.parametrize("spends_retries", [False, True])
def test_a_message_that_never_reached_the_lost_peer_counts_no_delivery(spends_retries: bool) -> None:
    bench = Bench()
    bench.publish(3, retries=0)
    peer = bench.broker.connect(7, b"test", spends_retries=spends_retries)
    for _ in range(2):
        bench.broker.lock(peer, bench.queue, NOW)
    before = bench.broker.log.next_position
    unseen = {bench.position(1), bench.position(2)}
    bench.broker.disconnect(peer, NOW, lambda out: out.item.position in unseen)
    assert bench.ready() == [1, 2, 3]
    assert bench.queue.deliveries == {}
    assert bench.broker.log.next_position == before
