"""A disk that fills: publishing is refused in time, consuming goes on; and what happens when it fills all the same."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.publishing import Refusal
from penstock.core.queue import Connection, Queue
from penstock.journal.disk import Disk, RealDisk
from penstock.journal.errors import LogFailed
from penstock.journal.files import FileLogOptions
from penstock.server.opening import Opened, open_folder
from penstock.server.upkeep import Retention
from support.simdisk import SimDisk
from support.workload import MORNING

MIB = 2**20
#: More events than there are about other things than messages.
FEW = 50
OPTIONS = FileLogOptions(segment_bytes=MIB, reserve=64 * 1024)


def start(disk: Disk, min_free: int) -> tuple[Opened, Connection, Queue]:
    opened = open_folder(disk, MORNING, OPTIONS, Retention(age=0, bytes=1), min_free=min_free)
    broker = opened.engine.broker
    queue = broker.queue("default", "q")
    if queue is None:
        broker.create_namespace("default", MORNING)
        queue = broker.create_queue("default", "q", MORNING)
    return opened, broker.connect(1, b"test"), queue


def publish_for_ever(opened: Opened, connection: Connection, queue: Queue) -> None:
    while True:
        opened.engine.broker.publish(connection, queue, [bytes(16_000)] * 8, MORNING)
        opened.engine.commit(MORNING)


def consume_all(opened: Opened, connection: Connection, queue: Queue) -> int:
    """Take and acknowledge one after the other, each in a commit of its own: what costs most space."""
    count = 0
    while (out := opened.engine.broker.lock(connection, queue, MORNING)) is not None:
        assert len(opened.engine.payloads([out.item.position])) == 1
        opened.engine.broker.acknowledge(connection, queue, [out.item.position], MORNING)
        opened.engine.commit(MORNING)
        count += 1
    return count


def test_the_mark_is_passed_and_passed_back_with_some_slack() -> None:
    disk = SimDisk()
    opened, connection, queue = start(disk, 8 * MIB)
    broker, upkeep = opened.engine.broker, opened.upkeep
    opened.engine.commit(MORNING)
    used = disk.space - disk.free()

    def has_changed(free: int) -> bool:
        disk.space = used + free
        return upkeep.watch_disk()

    assert not has_changed(8 * MIB)
    assert has_changed(8 * MIB - 1)
    assert broker.publish(connection, queue, [b"no"], MORNING).refusal is Refusal.DISK
    assert not has_changed(9 * MIB - 1)  # more than the mark, but not enough to let publishers in again
    assert broker.disk_full
    assert has_changed(9 * MIB)
    assert broker.publish(connection, queue, [b"yes"], MORNING).accepted == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 16 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "penstock-test", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_on_a_small_disk_publishing_stops_in_time_and_consuming_makes_room(small_disk: Path) -> None:
    opened, connection, queue = start(RealDisk(small_disk), 4 * MIB)
    engine, broker, upkeep = opened.engine, opened.engine.broker, opened.upkeep
    published = 0
    for _ in range(1000):
        upkeep.watch_disk()
        done = broker.publish(connection, queue, [bytes(16_000)] * 8, MORNING)
        published += done.accepted
        if done.refusal is not None:
            break
        engine.commit(MORNING)
    assert done.refusal is Refusal.DISK
    assert published > 500
    assert consume_all(opened, connection, queue) == published
    upkeep.checkpoint(MORNING)
    assert upkeep.retain(MORNING) > 5
    assert upkeep.watch_disk()
    assert broker.publish(connection, queue, [b"again"], MORNING).accepted == 1
    engine.commit(MORNING)
    engine.log.close()


def test_a_disk_that_fills_all_the_same_ends_the_broker_and_loses_nothing(small_disk: Path) -> None:
    opened, connection, queue = start(RealDisk(small_disk), 0)
    engine, broker = opened.engine, opened.engine.broker
    with pytest.raises(LogFailed, match="No space left"):
        publish_for_ever(opened, connection, queue)
    committed = broker.committed
    broker.publish(connection, queue, [b"small enough to fit"], MORNING)
    with pytest.raises(LogFailed):  # and never again
        engine.commit(MORNING)
    engine.settle()
    assert broker.committed == committed
    engine.log.close()

    # What was cut off of the unfinished write is room enough for a start; nobody may publish, anybody may consume.
    opened, connection, queue = start(RealDisk(small_disk), 4 * MIB)
    assert committed - FEW <= queue.ready < committed + 8
    assert opened.upkeep.watch_disk()
    assert opened.engine.broker.publish(connection, queue, [b"no"], MORNING).refusal is Refusal.DISK
    assert opened.engine.broker.pop(connection, queue, MORNING) is not None
    opened.engine.commit(MORNING)
    opened.engine.log.close()


def test_after_room_was_made_a_start_finds_everything_that_was_confirmed(small_disk: Path) -> None:
    ballast = small_disk / "somebody-elses-file"
    ballast.write_bytes(bytes(6 * MIB))
    opened, connection, queue = start(RealDisk(small_disk), 0)
    with pytest.raises(LogFailed):
        publish_for_ever(opened, connection, queue)
    confirmed = opened.engine.log.committed - FEW
    opened.engine.log.close()
    ballast.unlink()
    opened, connection, queue = start(RealDisk(small_disk), 4 * MIB)
    assert confirmed <= queue.ready <= confirmed + FEW + 8
    assert consume_all(opened, connection, queue) >= confirmed
    opened.engine.log.close()
