"""The published properties of a message are found wherever its row is: staged, recent, on disk, or in a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.policy import SECOND
from penstock.core.properties import Properties
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.server.engine.engine import Engine
from support.journals import open_folder

NOW = 1_750_000_000 * SECOND
SMALL = OwnerOptions(extent_bytes=4000, reserve=4096, durability=Durability.OS)


def publish_all(engine: Engine) -> list[int]:
    broker = engine.broker
    broker.create_namespace("default", NOW)
    queue = broker.create_queue("default", "jobs", NOW)
    peer = broker.connect(1, b"phpmq 127.0.0.1:1")
    plain = broker.publish(peer, queue, [b"plain"], NOW).first
    zero = broker.publish(peer, queue, [b"zero", b"zero"], NOW, Properties(ttl=0, with_ttl=True)).first
    said = broker.publish(peer, queue, [b"said"], NOW, Properties(source_info=b"billing")).first
    return [plain, zero, zero + 1, said]


def check(engine: Engine, positions: list[int]) -> None:
    assert engine.numbers("with_ttl", positions) == [0, 1, 1, 0]
    assert engine.numbers("with_ttl", positions[::-1]) == [0, 1, 1, 0]
    assert [each.with_ttl for each in engine.messages(positions)] == [0, 1, 1, 0]
    assert [each.source_info for each in engine.messages(positions)] == [b"", b"", b"", b"billing"]


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_properties_before_and_after_a_restart(tmp_path: Path, cache_bytes: int) -> None:
    opened = open_folder(RealDisk(str(tmp_path)), NOW, SMALL, cache_bytes=cache_bytes, min_free=0)
    positions = publish_all(opened.engine)
    opened.engine.commit(NOW)
    check(opened.engine, positions)
    opened.engine.log.close()
    again = open_folder(RealDisk(str(tmp_path)), NOW + SECOND, SMALL, cache_bytes=0, min_free=0).engine
    check(again, positions)
    again.log.close()


def test_properties_of_a_copy(tmp_path: Path) -> None:
    opened = open_folder(RealDisk(str(tmp_path)), NOW, SMALL, cache_bytes=0, min_free=0)
    engine = opened.engine
    positions = publish_all(engine)
    engine.commit(NOW)
    places = engine.broker.carry(engine.messages(positions), [1] * len(positions), NOW)
    engine.move(places)
    engine.commit(NOW)
    assert set(engine.moved) == set(positions)
    check(engine, positions)
    engine.log.close()
