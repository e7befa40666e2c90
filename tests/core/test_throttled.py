"""Consumers throttled because very many messages are out continue by themselves."""

from __future__ import annotations

from penstock.core.broker import Broker
from penstock.core.commands.dispatch import RESUME

NOW = 1_700_000_000_000_000


def tick_until_done(broker: Broker) -> None:
    """Call ``tick`` as long as it asks for it, as the event loop does."""
    for _ in range(1_000):
        if broker.tick(NOW) != NOW:
            return
    raise AssertionError("ticks without an end")


def test_a_connection_that_may_continue_is_found_behind_many_that_may_not() -> None:
    """Only ticks follow, so the broker itself has to find the connection that may continue."""
    broker = Broker()
    broker.create_namespace("default", NOW)
    queue = broker.create_queue("default", "q", NOW)
    other = broker.create_queue("default", "other", NOW)
    publisher = broker.connect(1, b"publisher")
    hog = broker.connect(2, b"hog")
    many = [broker.connect(10 + number, b"many") for number in range(2 * RESUME)]
    last = broker.connect(3, b"last")
    broker.publish(publisher, other, [b"x"] * 4 * len(many), NOW)
    for connection in many * 4:
        broker.lock(connection, other, NOW)
    broker.publish(publisher, queue, [b"x"] * 1_000, NOW)
    broker.most_out = broker.out + 3
    broker.subscribe(hog, queue, 2, NOW)
    for connection in [*many, last]:
        broker.subscribe(connection, queue, 10, NOW)
    tick_until_done(broker)
    assert len(broker.throttled) == len(many) + 1
    assert len(last.out) == 1
    broker.most_out += 1
    broker.subscribe(hog, queue, 0, NOW)
    broker.acknowledge(hog, queue, list(hog.out), NOW)
    tick_until_done(broker)
    assert len(last.out) > 1
