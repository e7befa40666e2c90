"""Connections count as consumers of a queue while they poll it."""

from __future__ import annotations

import pytest

from penstock.core.policy import Policy
from penstock.core.queue import Connection, Out, Queue, Subscription
from penstock.core.structures.item import Item
from penstock.server.network.pollers import MOST_QUEUES, RECENT, Pollers


def queue(number: int) -> Queue:
    return Queue(number, "default", f"q{number}", Policy(), 0)


def lock(polled: Queue, connection: Connection, position: int) -> Out:
    out = Out(polled, Item(position, position, 1), connection, 0, 0)
    polled.out[position] = connection.out[position] = out
    return out


def end(out: Out) -> None:
    out.ended = True
    del out.queue.out[out.item.position], out.connection.out[out.item.position]


def test_a_recent_request_makes_a_consumer() -> None:
    pollers, one, two, polled = Pollers(), Connection(1, b""), Connection(2, b""), queue(1)
    pollers.note(one, polled, 0.0)
    pollers.note(two, polled, 1.0)
    pollers.note(one, polled, 2.0)
    assert [poll.connection for poll in pollers.of_queue(polled, 1.0 + RECENT)] == [one, two]
    assert [poll.connection for poll in pollers.of_queue(polled, 1.5 + RECENT)] == [one]
    assert pollers.of_connection(two, 1.5 + RECENT) == []
    assert [poll.queue for poll in pollers.of_connection(one, 2.0 + RECENT)] == [polled]
    assert pollers.of_queue(polled, 2.5 + RECENT) == []


def test_a_lock_holder_is_a_consumer_for_as_long() -> None:
    pollers, connection, polled, other = Pollers(), Connection(1, b""), queue(1), queue(2)
    pollers.note(connection, polled, 0.0)
    pollers.note(connection, other, 0.0)
    first, second = lock(polled, connection, 1), lock(polled, connection, 2)
    late = 10 * RECENT
    assert [poll.queue for poll in pollers.of_connection(connection, late)] == [polled]
    end(first)
    assert len(pollers.of_queue(polled, late)) == 1
    end(second)
    assert pollers.of_queue(polled, late) == []


@pytest.mark.parametrize("dead", [False, True])
def test_a_waiting_receiver_counts_elsewhere_and_is_not_forgotten(dead: bool) -> None:
    pollers, connection, polled = Pollers(), Connection(1, b""), queue(1)
    connection.subscriptions[polled.id, dead] = Subscription(connection, polled, 0, dead=dead)
    pollers.note(connection, polled, 0.0)
    late = 10 * RECENT
    assert pollers.of_queue(polled, late) == []
    del connection.subscriptions[polled.id, dead]
    lock(polled, connection, 1)
    assert [poll.connection for poll in pollers.of_queue(polled, late)] == [connection]


def test_a_closed_connection_is_no_consumer_and_leaves_nothing_behind() -> None:
    pollers, connection = Pollers(), Connection(1, b"")
    polled = [queue(number) for number in range(3)]
    for each in polled:
        pollers.note(connection, each, 0.0)
    pollers.forget(connection)
    assert [pollers.of_queue(each, 0.0) for each in polled] == [[], [], []]
    assert (pollers._by_connection, pollers._by_queue) == ({}, {})


def test_a_connection_is_noted_for_a_bounded_number_of_queues() -> None:
    pollers, connection = Pollers(), Connection(1, b"")
    polled = [queue(number) for number in range(MOST_QUEUES + 3)]
    for each in polled:
        pollers.note(connection, each, 0.0)
    assert [poll.queue for poll in pollers.of_connection(connection, 0.0)] == polled[3:]
    assert pollers.of_queue(polled[0], 0.0) == []
