"""Unreadable messages: set aside from any state, and put back in their place."""

from __future__ import annotations

import pytest

from penstock.core.broker import Broker
from penstock.core.policy import SECOND, Policy
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Queue
from penstock.core.state import DeliveryEffect, WaitEnded

NOW = 1_750_000_000 * SECOND


@pytest.fixture
def scene() -> tuple[Broker, Queue, Connection]:
    broker = Broker()
    broker.create_namespace("default", NOW)
    queue = broker.create_queue("default", "q", NOW, Policy())
    return broker, queue, broker.connect(1, b"test")


def order(broker: Broker, queue: Queue) -> list[int]:
    return [
        item.position for priority in reversed(list(queue.ready.priorities)) for item in queue.ready.lanes[priority]
    ]


def test_ready_messages_return_to_their_places(scene: tuple[Broker, Queue, Connection]) -> None:
    broker, queue, peer = scene
    for priority in (0, 5, 0, 5):
        broker.publish(peer, queue, [b"a", b"b", b"c"], NOW, Properties(priority=priority))
    before = order(broker, queue)
    aside = before[1:9:2]
    assert broker.set_aside(queue, dict.fromkeys(aside, "torn"), NOW) == len(aside)
    assert order(broker, queue) == [position for position in before if position not in aside]
    assert {position: each.reason for position, each in queue.damaged.items()} == dict.fromkeys(aside, "torn")
    assert (broker.damaged, queue.empty) == (len(aside), False)
    broker.check()
    assert broker.set_aside(queue, dict.fromkeys(aside, "again"), NOW) == 0
    assert broker.put_back(queue, aside, NOW) == len(aside)
    assert order(broker, queue) == before
    broker.check()


def test_delayed_and_dead_messages_return_too(scene: tuple[Broker, Queue, Connection]) -> None:
    broker, queue, peer = scene
    late = broker.publish(peer, queue, [b"late"], NOW, Properties(delay=5 * SECOND)).first
    dead = broker.publish(peer, queue, [b"dead"], NOW).first
    assert broker.lock(peer, queue, NOW)
    broker.reject(peer, queue, [dead], NOW)
    assert broker.set_aside(queue, {late: "torn", dead: "torn"}, NOW) == 2
    assert (len(queue.delayed), len(queue.dead)) == (0, 0)
    broker.tick(NOW + 10 * SECOND)
    assert len(queue.ready) == 0
    broker.put_back(queue, [late, dead], NOW + 10 * SECOND)
    assert (len(queue.delayed), len(queue.dead)) == (1, 1)
    broker.tick(NOW + 10 * SECOND)
    assert order(broker, queue) == [late]
    broker.check()


def test_a_waiting_receive_gets_another_message(scene: tuple[Broker, Queue, Connection]) -> None:
    broker, queue, peer = scene
    first = broker.publish(peer, queue, [b"bad", b"good"], NOW).first
    broker.receive(peer, queue, NOW)
    broker.take_effects()
    broker.set_aside(queue, {first: "torn"}, NOW)
    (effect,) = broker.take_effects()
    assert isinstance(effect, DeliveryEffect)
    assert [out.item.position for out in effect.messages] == [first + 1]
    assert list(peer.out) == [first + 1]
    broker.check()


def test_a_waiting_receive_ends_if_no_other_message_is_left(scene: tuple[Broker, Queue, Connection]) -> None:
    broker, queue, peer = scene
    first = broker.publish(peer, queue, [b"bad", b"good"], NOW).first
    broker.receive(peer, queue, NOW)
    broker.drain(NOW)
    broker.take_effects()
    broker.set_aside(queue, {first: "torn"}, NOW)
    assert broker.take_effects() == [WaitEnded(peer, queue)]
    broker.check()


def test_a_window_opens_again(scene: tuple[Broker, Queue, Connection]) -> None:
    broker, queue, peer = scene
    first = broker.publish(peer, queue, [b"x"] * 5, NOW).first
    broker.subscribe(peer, queue, 2, NOW)
    broker.set_aside(queue, {first: "torn", first + 1: "torn"}, NOW)
    assert list(peer.out) == [first + 2, first + 3]
    broker.check()


def test_an_operator_can_remove_them(scene: tuple[Broker, Queue, Connection]) -> None:
    broker, queue, peer = scene
    first = broker.publish(peer, queue, [b"x"] * 4, NOW).first
    dead = broker.publish(peer, queue, [b"dead"], NOW, Properties(priority=9)).first
    broker.lock(peer, queue, NOW)
    broker.reject(peer, queue, [dead], NOW)
    broker.set_aside(queue, dict.fromkeys((first, first + 1, dead), "torn"), NOW)
    assert broker.delete_message(peer, queue, first, NOW)
    assert broker.purge(peer, queue, NOW) == 3
    assert list(queue.damaged) == [dead]
    assert not broker.delete_queue(queue, NOW)
    assert broker.purge_dead(peer, queue, NOW) == 1
    broker.check()
    assert broker.delete_queue(queue, NOW)
