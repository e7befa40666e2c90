"""A real broker on a full disk: it keeps running, reports the problem, and resumes when there is space."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.journal.files.space import NAME
from support.brokers import BrokerProcess, wait_for
from support.raw import FAIL_INFRA, NOP, POP, PUSH, SOURCE, SUCCESS_OK, Kokaq, kokaq, read_answer
from support.smalldisk import set_capacity, used

MIB = 2**20
SETTINGS = """
[[kokaq]]
address = "127.0.0.1:0"
[[sspq]]
address = "127.0.0.1:0"
[[phpmq]]
address = "127.0.0.1:0"
[journal]
min_free_bytes = {min_free}
segment_bytes = {segment}
retention_bytes = {retention}
"""
STUCK = "the disk is full: nothing is confirmed until there is room"
WAITS = "the broker cannot start yet: it waits for room on the disk"


class Disk:
    """A broker on a disk whose size the test controls."""

    def __init__(self, folder: Path, *, min_free: int = 0, segment: int = 16 * MIB, retention: int = 0) -> None:
        self.capacity = folder / "capacity"
        self.resize(64 * MIB)
        settings = SETTINGS.format(min_free=min_free, segment=segment, retention=retention)
        self.broker = BrokerProcess(folder, settings, capacity=self.capacity)

    def resize(self, size: int) -> None:
        set_capacity(self.capacity, size)

    def wait_for(self, event: str) -> None:
        wait_for(lambda: self.broker.events(event), f"no line {event!r}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    with ExitStack() as stack:
        stack.push(disk.broker.__exit__)
        yield disk


def test_a_start_on_a_full_disk_waits_for_space(disk: Disk) -> None:
    disk.resize(100)
    disk.broker.begin()
    disk.wait_for(WAITS)
    assert not disk.broker.ready.exists()
    disk.resize(64 * MIB)
    disk.broker.wait_until_ready()
    disk.broker.dial("kokaq", kind=Kokaq).make("default/q").push("default/q", b"m")
    assert disk.broker.stop() == 0


def test_a_start_that_waits_for_room_ends_on_a_signal(disk: Disk) -> None:
    disk.resize(100)
    disk.broker.begin()
    disk.wait_for(WAITS)
    assert disk.broker.stop() == 0


def test_ready_is_said_only_after_the_first_write_is_on_disk(disk: Disk) -> None:
    with disk.broker as broker:
        broker.dial("kokaq", kind=Kokaq).make("default/q").push("default/q", b"m")
        assert broker.stop() == 0
        (broker.data / NAME).unlink()
        disk.resize(used(broker.data) + 400)  # the epoch fits, a new segment does not
        broker.begin()
        disk.wait_for(STUCK)
        assert not broker.ready.exists()
        assert broker.events("ready")[1:] == []
        disk.resize(64 * MIB)
        broker.wait_until_ready()
        assert broker.dial("kokaq", kind=Kokaq).pop_all("default/q") == [b"m"]
        assert broker.stop() == 0


def test_consuming_continues_from_the_reserve_when_the_disk_was_filled(disk: Disk) -> None:
    with disk.broker as broker:
        peer = broker.dial("kokaq", kind=Kokaq).make("default/q")
        for number in range(200):
            peer.push("default/q", b"%d" % number)
        assert (broker.data / NAME).stat().st_size >= 8 * MIB
        disk.resize(used(broker.data))
        wait_for(lambda: broker.events("the disk is nearly full: publishing is refused"))
        assert peer.ask(PUSH, "default/q", b"no").outcome == FAIL_INFRA
        assert peer.pop_all("default/q") == [b"%d" % number for number in range(200)]
        assert broker.events(STUCK) == []
        disk.resize(64 * MIB)
        wait_for(lambda: peer.ask(PUSH, "default/q", b"again").outcome == SUCCESS_OK)
        assert broker.stop() == 0


def test_a_broker_without_any_room_left_waits_reports_why_and_resumes(disk: Disk) -> None:
    with disk.broker as broker:
        peer, other = broker.dial("kokaq", kind=Kokaq).make("default/q"), broker.dial("kokaq", kind=Kokaq)
        peer.push("default/q", b"kept")
        disk.resize(0)
        peer.send(kokaq(POP, "default/q"))
        disk.wait_for(STUCK)
        health = read_answer(other.send(kokaq(NOP, type_byte=0x42)))
        assert (health.outcome, health.fields[SOURCE].startswith(b"the disk is full")) == (FAIL_INFRA, True)
        assert other.ask(PUSH, "default/q", b"no").outcome == FAIL_INFRA
        disk.resize(64 * MIB)
        answer = read_answer(peer)
        assert (answer.outcome, answer.payload) == (SUCCESS_OK, b"kept")
        disk.wait_for("there is room on the disk again: service continues")
        wait_for(lambda: other.ask(PUSH, "default/q", b"yes").outcome == SUCCESS_OK)
        wait_for(lambda: read_answer(other.send(kokaq(NOP, type_byte=0x42))).outcome == SUCCESS_OK)  # upkeep has failed
        assert broker.stop() == 0


def test_a_stop_on_a_full_disk_ends_and_loses_nothing_confirmed(disk: Disk) -> None:
    with disk.broker as broker:
        peer = broker.dial("kokaq", kind=Kokaq).make("default/q")
        peer.push("default/q", b"kept")
        disk.resize(0)
        peer.send(kokaq(POP, "default/q"))
        disk.wait_for(STUCK)
        assert broker.stop() == 1  # the pop is not on disk, and was not answered
        disk.resize(64 * MIB)
        broker.start()
        assert broker.dial("kokaq", kind=Kokaq).pop_all("default/q") == [b"kept"]
        assert broker.stop() == 0


def test_a_disk_that_publishers_fill_is_emptied_by_consumers_alone(tmp_path: Path) -> None:
    """Publish as fast as possible until refused, then consume: space is freed, and publishing is accepted again."""
    disk = Disk(tmp_path, min_free=2 * MIB, segment=MIB, retention=1)
    disk.resize(24 * MIB)
    with disk.broker as broker:
        peer = broker.dial("kokaq", kind=Kokaq).make("default/q")
        pushed = 0
        while peer.ask(PUSH, "default/q", bytes(60_000)).outcome == SUCCESS_OK:
            pushed += 1
        assert pushed * 60_000 > 6 * MIB
        assert len(peer.pop_all("default/q")) == pushed
        wait_for(lambda: peer.ask(PUSH, "default/q", bytes(60_000)).outcome == SUCCESS_OK, "no room came back")
        assert broker.events(STUCK) == []
        assert broker.stop() == 0
