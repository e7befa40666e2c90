"""A disk that fills: publishing is refused in time, consuming goes on to the last message, compaction frees as it goes;
and if another program fills it, the broker waits for space.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.core.commands.publish import PublishRefusal
from penstock.core.queue import Connection, Queue
from penstock.journal.contract import OwnerOptions
from penstock.journal.errors import LogFull
from penstock.journal.files.disk import Disk, RealDisk
from penstock.server.maintenance.retention import Retention
from penstock.server.process.opening import Opened
from support.journals import open_folder
from support.retaining import retain
from support.simdisk import SimDisk
from support.workload import MORNING

MIB = 2**20
OPTIONS = OwnerOptions(extent_bytes=MIB, reserve=64 * 1024)


def start(disk: Disk, min_free: int, retention: Retention | None = None) -> tuple[Opened, Connection, Queue]:
    retention = retention or Retention(age=0, bytes=1)
    opened = open_folder(disk, MORNING, OPTIONS, retention, min_free=min_free)
    broker = opened.engine.broker
    queue = broker.queue("default", "q")
    if queue is None:
        broker.create_namespace("default", MORNING)
        queue = broker.create_queue("default", "q", MORNING)
    return opened, broker.connect(1, b"test"), queue


def publish_until_refused(opened: Opened, connection: Connection, queue: Queue, payload: bytes) -> int:
    """Publish without measuring the disk, to test the broker's accounting. Returns the number of accepted ones."""
    count = 0
    while True:
        done = opened.engine.broker.publish(connection, queue, [payload] * 8, MORNING)
        count += done.accepted
        if done.refusal is not None:
            assert done.refusal is PublishRefusal.DISK
            return count
        opened.engine.commit(MORNING)


def consume_all(opened: Opened, connection: Connection, queue: Queue) -> int:
    """Receive and acknowledge one by one, each in a commit of its own, which costs the most space."""
    count = 0
    while outs := opened.engine.broker.lock(connection, queue, MORNING):
        (out,) = outs
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
        return upkeep.admission.look()

    assert not has_changed(8 * MIB)
    assert has_changed(8 * MIB - 1)
    assert broker.publish(connection, queue, [b"no"], MORNING).refusal is PublishRefusal.DISK
    assert not has_changed(9 * MIB - 1)  # above the mark, but not enough to accept publishes again
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
        upkeep.admission.look()
        done = broker.publish(connection, queue, [bytes(16_000)] * 8, MORNING)
        published += done.accepted
        if done.refusal is not None:
            break
        engine.commit(MORNING)
    assert done.refusal is PublishRefusal.DISK
    assert published > 500
    assert consume_all(opened, connection, queue) == published
    upkeep.checkpoint(MORNING)
    assert retain(upkeep, MORNING) > 5
    assert upkeep.admission.look()
    assert broker.publish(connection, queue, [b"again"], MORNING).accepted == 1
    engine.commit(MORNING)
    engine.log.close()


@pytest.mark.parametrize(("min_free", "size"), [(0, 10), (64 * 1024, 1_000), (0, 100_000), (MIB, 10), (MIB, 10_000)])
def test_all_accepted_messages_can_be_consumed_one_commit_each_without_freed_space(min_free: int, size: int) -> None:
    """Retention keeps everything, so refusal must leave room for every acknowledgement."""
    disk = SimDisk()
    disk.space = 2 * MIB
    opened, connection, queue = start(disk, min_free, Retention())
    opened.upkeep.admission.look()
    published = publish_until_refused(opened, connection, queue, bytes(size))
    assert published * (size + 300) > MIB // 2
    assert disk.left >= min_free - OPTIONS.reserve
    assert consume_all(opened, connection, queue) == published
    opened.upkeep.checkpoint(MORNING)
    opened.engine.log.close()


def test_refusing_begins_in_time_while_nothing_gets_to_the_disk() -> None:
    """With any publishing rate, because staged and in-flight bytes count, not the disk's size a second ago."""
    disk = SimDisk()
    disk.space = 20 * MIB
    opened, connection, queue = start(disk, 4 * MIB)
    engine = opened.engine
    engine.commit(MORNING)
    opened.upkeep.admission.look()
    on_its_way = []
    while not engine.broker.publish(connection, queue, [bytes(50_000)] * 8, MORNING).refusal:
        if engine.broker.log.size > MIB:
            on_its_way += engine.stage(MORNING)
    assert len(queue.ready) * 50_000 > 12 * MIB
    engine.write([*on_its_way, *engine.stage(MORNING)])
    assert disk.left >= 4 * MIB - 64 * 1024
    engine.log.close()


def test_a_single_publish_larger_than_the_room_is_refused() -> None:
    disk = SimDisk()
    disk.space = 8 * MIB
    opened, connection, queue = start(disk, 4 * MIB)
    opened.engine.commit(MORNING)
    opened.upkeep.admission.look()
    assert opened.engine.broker.publish(connection, queue, [bytes(5 * MIB)], MORNING).refusal is PublishRefusal.DISK
    assert opened.engine.broker.publish(connection, queue, [bytes(MIB)], MORNING).accepted == 1


def half_alive(disk: SimDisk, segments: int) -> tuple[Opened, Connection, Queue]:
    """A journal past retention, in whose every segment a little less than half is alive."""
    opened, connection, queue = start(disk, 0)
    broker, engine = opened.engine.broker, opened.engine
    other = broker.create_queue("default", "other", MORNING)
    while len(engine.log.extents()) <= segments:
        broker.publish(connection, queue, [bytes(2_000)] * 4, MORNING)
        broker.publish(connection, other, [bytes(2_000)] * 5, MORNING)
        engine.commit(MORNING)
        while broker.pop(connection, other, MORNING)[0]:
            pass
    engine.commit(MORNING)
    opened.upkeep.checkpoint(MORNING)
    opened.upkeep.checkpoint(MORNING)
    return opened, connection, queue


def test_compaction_needs_room_for_one_segment_not_for_all_it_copies() -> None:
    """As with a journal of 2.6 GB and 1.1 GB free, where copying all at once would fill the disk."""
    disk = SimDisk()
    opened, connection, queue = half_alive(disk, 20)
    before = disk.space - disk.left
    waiting = len(queue.ready)
    disk.space = before + MIB  # a twentieth of the journal; the copies are nearly half of it
    fullest = disk.left

    def free() -> int:
        nonlocal fullest
        fullest = min(fullest, disk.left)
        return disk.left

    disk.free = free  # type: ignore[method-assign]
    assert retain(opened.upkeep, MORNING) >= 19
    assert fullest > 128 * 1024
    assert disk.left > 8 * MIB
    assert consume_all(opened, connection, queue) == waiting
    opened.engine.log.close()


def test_compaction_without_room_for_a_step_only_deletes() -> None:
    disk = SimDisk()
    opened, connection, queue = half_alive(disk, 6)
    disk.space -= disk.left
    disk.space += 300_000
    position = opened.engine.log.end
    assert retain(opened.upkeep, MORNING) == 0  # every segment contains some to copy
    assert opened.engine.log.end == position
    segments = opened.upkeep.log.extents()
    while queue.ready and opened.engine.broker.lowest_position() < segments[3].first:
        assert opened.engine.broker.pop(connection, queue, MORNING)[0]
    opened.engine.commit(MORNING)
    plan = opened.upkeep.plan(MORNING)
    assert [step.size == 0 for step in plan.steps[:4]] == [True, True, True, False]
    assert retain(opened.upkeep, MORNING) == len(plan.steps)  # the first deletions make room for the rest
    assert disk.left > 2 * MIB
    opened.engine.log.close()


@pytest.mark.parametrize("dead", [1, 2, 3, 8])
def test_compaction_frees_twice_its_copies_even_if_copies_are_larger_than_the_messages(dead: int) -> None:
    disk = SimDisk()
    opened, connection, queue = start(disk, 0)
    engine, broker, log = opened.engine, opened.engine.broker, opened.upkeep.log
    other = broker.create_queue("default", "other", MORNING)
    while len(log.extents()) < 4:
        broker.publish(connection, queue, [b"0123456789"] * 500, MORNING)
        broker.publish(connection, other, [b"0123456789"] * 500 * dead, MORNING)
        broker.purge(connection, other, MORNING)
        engine.commit(MORNING)
    opened.upkeep.checkpoint(MORNING)
    before = {segment.name: segment.size for segment in log.extents()}
    retain(opened.upkeep, MORNING)
    after = {segment.name: segment.size for segment in log.extents()}
    freed = sum(size for name, size in before.items() if name not in after)
    copied = sum(after.values()) - sum(before.values()) + freed
    assert 2 * copied <= freed
    assert bool(freed) == (dead == 8)
    log.close()


def test_space_is_given_back_without_room_for_a_checkpoint() -> None:
    disk = SimDisk()
    opened, connection, queue = half_alive(disk, 4)
    while opened.engine.broker.pop(connection, queue, MORNING)[0]:
        pass
    opened.engine.commit(MORNING)
    opened.upkeep.checkpoint(MORNING)
    disk.space -= disk.left
    plan = opened.upkeep.plan(MORNING)
    assert plan.unwritten is not None
    assert len(plan.steps) >= 3
    opened.upkeep.compaction.trim(plan.steps[-1].before)
    assert disk.left > 2 * MIB


def test_a_disk_that_another_program_fills_stops_the_broker_and_loses_nothing(small_disk: Path) -> None:
    """On a real file system that is full, nothing is confirmed, and the same write resumes when there is room."""
    ballast = small_disk / "somebody-elses-file"
    opened, connection, queue = start(RealDisk(small_disk), 0)
    engine, broker = opened.engine, opened.engine.broker
    opened.upkeep.admission.look()
    opened.upkeep.fill_reserve()
    published = 0
    for _ in range(20):
        published += broker.publish(connection, queue, [bytes(16_000)] * 8, MORNING).accepted
        engine.commit(MORNING)
    _fill(ballast)
    assert broker.publish(connection, queue, [bytes(4 * MIB)], MORNING).accepted == 1
    staged = engine.stage(MORNING)
    committed = broker.committed
    with pytest.raises(LogFull, match="No space left"):
        engine.write(staged)
    engine.advance()
    assert broker.committed == committed
    ballast.unlink()
    engine.write(staged)
    engine.advance()
    assert consume_all(opened, connection, queue) == published + 1
    engine.log.close()
    opened, connection, queue = start(RealDisk(small_disk), 0)
    assert ([line for line in opened.report if "no usable checkpoint" not in line], len(queue.ready)) == ([], 0)
    opened.engine.log.close()


def _fill(ballast: Path) -> None:
    """Write until the file system is full."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))
