"""Publishing: messages a queue accepts and refuses, and full queues."""

from __future__ import annotations

from unittest.mock import patch

from penstock.core.commands.publish import PublishRefusal
from penstock.core.policy import Policy
from penstock.core.queue import Queue
from penstock.schema import Reason
from support.bench import NOW, SECOND, Bench


def test_the_same_request_inside_the_window_answers_with_the_first_message_and_adds_nothing() -> None:
    bench = Bench(deduplication=5 * SECOND)
    first = bench.publish(request_id=b"r").first
    bench.broker.purge(bench.publisher, bench.queue, NOW)
    again = bench.publish(now=NOW + 5 * SECOND - 1, request_id=b"r")
    assert (again.first, again.accepted, again.duplicate) == (first, 1, True)
    assert bench.queue.empty
    assert not bench.publish(now=NOW + 5 * SECOND, request_id=b"r").duplicate


def test_a_requested_id_is_refused_while_a_message_has_it() -> None:
    bench = Bench()
    bench.publish(asked_id=b"x")
    refused = bench.publish(asked_id=b"x")
    assert (refused.accepted, refused.refusal) == (0, PublishRefusal.EXISTS)
    bench.broker.pop(bench.publisher, bench.queue, NOW)
    assert bench.publish(asked_id=b"x").accepted == 1


def test_a_full_queue_accepts_the_first_that_fit_and_counts_delayed_ones() -> None:
    bench = Bench(max_depth=3)
    bench.publish(delay=SECOND)
    result = bench.publish(5)
    assert (result.accepted, result.refusal) == (2, PublishRefusal.FULL)
    bytes_limit = Bench(max_bytes=10)
    assert bytes_limit.publish(3, size=4).accepted == 2
    assert bytes_limit.publish(size=11).refusal is PublishRefusal.TOO_LARGE


def test_messages_that_are_out_do_not_fill_a_queue() -> None:
    bench = Bench(max_depth=1, on_full="drop-oldest")
    bench.publish()
    bench.broker.lock(bench.publisher, bench.queue, NOW)
    bench.publish()
    assert bench.dead() == []


def test_a_queue_that_drops_its_oldest_buries_it_with_reason_overflow_whatever_its_priority() -> None:
    bench = Bench(max_depth=2, on_full="drop-oldest")
    bench.publish(priority=9)
    bench.publish(3)
    assert bench.ready() == [3, 4]
    assert bench.dead() == [(1, Reason.OVERFLOW), (2, Reason.OVERFLOW)]


def test_a_full_disk_refuses_messages_and_consuming_continues() -> None:
    bench = Bench()
    bench.publish()
    bench.broker.disk_full = True
    assert bench.publish().refusal is PublishRefusal.DISK
    assert bench.broker.pop(bench.publisher, bench.queue, NOW)[0]


def test_messages_before_one_that_is_too_large_still_have_to_fit() -> None:
    bench = Bench(max_depth=1, max_bytes=10)
    payloads = [b"1", b"2", bytes(11)]
    done = bench.broker.publish(bench.publisher, bench.queue, payloads, NOW)
    assert (done.accepted, done.refusal) == (1, PublishRefusal.FULL)


def test_delayed_messages_cannot_be_dropped_so_a_queue_full_of_them_refuses() -> None:
    bench = Bench(max_depth=2, on_full="drop-oldest")
    bench.publish()
    done = bench.publish(3, delay=SECOND)
    assert (done.accepted, done.refusal) == (2, PublishRefusal.FULL)
    assert bench.dead() == [(1, Reason.OVERFLOW)]
    assert bench.publish().refusal is PublishRefusal.FULL
    assert bench.queue.depth == 2


def test_messages_out_to_consumers_are_not_dropped() -> None:
    bench = Bench(max_depth=1, on_full="drop-oldest")
    bench.broker.subscribe(bench.peer(1), bench.queue, 2, NOW)
    bench.publish(4)
    assert bench.given() == [(1, [1, 2])]
    assert (bench.dead(), bench.ready()) == ([(3, Reason.OVERFLOW)], [4])


def test_a_message_with_a_time_to_live_costs_the_same_however_many_priorities_there_are() -> None:
    """Only an expired deadline looks at all priorities: a peer may use a different one for each message."""
    bench = Bench()
    with patch.object(Queue, "next_deadline", side_effect=AssertionError("all priorities were looked at")):
        bench.publish(ttl=9 * SECOND, priority=1)
        bench.publish(ttl=3 * SECOND, priority=2)
        bench.publish(delay=5 * SECOND)
        (out,) = bench.broker.lock(bench.publisher, bench.queue, NOW)
        bench.broker.release(bench.publisher, bench.queue, out.item.position, NOW)
    assert bench.broker.tick(NOW) == NOW + 3 * SECOND
    assert bench.broker.tick(NOW + 3 * SECOND) == NOW + 5 * SECOND
    assert bench.broker.tick(NOW + 5 * SECOND) == NOW + 9 * SECOND


def test_requests_are_forgotten_behind_one_remembered_for_longer() -> None:
    """After a shorter window or a clock set back, memory must not grow with every later request."""
    bench = Bench(deduplication=86_400 * SECOND)
    first = bench.publish(request_id=b"first").first
    bench.broker.configure_queue(bench.queue, Policy(deduplication=SECOND), NOW)
    for number in range(100):
        bench.publish(now=NOW + number * SECOND, request_id=b"%d" % number)
        bench.broker.tick(NOW + number * SECOND)
    assert len(bench.queue.requests) <= 4
    assert bench.publish(now=NOW + SECOND, request_id=b"first").first == first
