"""Message IDs: batches equal single conversions, and foreign IDs are never mistaken for ours."""

from __future__ import annotations

import os
from binascii import hexlify
from pathlib import Path

import pytest

from penstock.core.broker import Broker
from penstock.core.properties import Properties
from penstock.core.queue import Queue
from penstock.server.engine.ids import MANY, Ids
from support.brokers import BrokerProcess
from support.raw import REQUEST_ID, UUID, Fields, Kokaq

OURS = 0xFEDC_BA98_7654_3210
COUNTS = (1, 2, MANY - 1, MANY, MANY + 1, 3 * MANY)


def ids(requested: bytes = b"") -> tuple[Ids, Queue]:
    broker = Broker()
    broker.create_namespace("default", 1)
    queue = broker.create_queue("default", "q", 1)
    if requested:
        broker.publish(broker.connect(1, b"test"), queue, [b"a"], 1, Properties(asked_id=requested))
    return Ids(OURS, broker), queue


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("first", [1, 2**40])
def test_round_trips(count: int, first: int) -> None:
    made, queue = ids()
    positions = range(first, first + count)
    raws, texts = made.raws(queue, positions), made.texts(queue, positions)
    assert list(raws) == [made.raw(queue, position) for position in positions]
    assert texts == list(map(hexlify, raws))
    assert made.raw_positions(raws) == made.positions(texts) == list(positions)
    scattered = [*positions[::2], *positions[1::2]]
    assert made.texts(queue, scattered) == [hexlify(made.raw(queue, position)) for position in scattered]
    assert made.positions(made.texts(queue, scattered)) == scattered


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("bad", [b"f" * 32, b"f" * 31, b"f" * 33, b"", b"x" * 32])
def test_foreign_ids_are_recognised(count: int, bad: bytes) -> None:
    made, queue = ids()
    texts = [*made.texts(queue, range(1, count + 1)), bad]
    assert made.positions(texts) == list(range(1, count + 1))


@pytest.mark.parametrize("count", COUNTS)
def test_foreign_raw_ids_are_0(count: int) -> None:
    made, queue = ids()
    raws = [b"\xff" * 16, *made.raws(queue, range(1, count + 1))]
    assert made.raw_positions(raws) == [0, *range(1, count + 1)]


def test_a_requested_id_names_its_message() -> None:
    requested = b"0123456789abcdef"
    made, queue = ids(requested)
    at = made.position(requested)
    assert at is not None
    positions = range(at, at + 2 * MANY)
    assert made.raws(queue, positions)[0] == requested
    assert made.texts(queue, positions)[0] == hexlify(requested)
    assert made.raw_positions(made.raws(queue, positions)) == list(positions)
    assert made.positions(made.texts(queue, positions)) == list(positions)


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_a_repeated_push_is_answered_with_the_first_uuid_after_a_restart(tmp_path: Path, ends: str) -> None:
    """For any requested ID, whether or not the first message still exists, from the journal alone and from a
    checkpoint."""
    requested = {state: os.urandom(16) for state in ("waits", "is gone")}
    request = {state: os.urandom(16) for state in requested}
    with BrokerProcess(tmp_path) as broker:
        peer = broker.dial("kokaq", kind=Kokaq)
        for state in ("is gone", "waits"):
            fields: Fields = {REQUEST_ID: request[state], UUID: requested[state]}
            assert peer.make(f"default/{state}").push(f"default/{state}", b"m", fields) == requested[state]
        peer.pop_all("default/is gone")
        for _ in range(2):
            getattr(broker, ends)()
            broker.start()
            peer = broker.dial("kokaq", kind=Kokaq)
            for state, first in requested.items():
                others: tuple[Fields, ...] = {}, {UUID: os.urandom(16)}, {UUID: first}
                for more in others:
                    assert peer.push(f"default/{state}", b"m", {REQUEST_ID: request[state], **more}) == first
            assert [peer.depth(f"default/{state}") for state in requested] == [1, 0]
