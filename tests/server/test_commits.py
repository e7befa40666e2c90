"""Maintenance beside group commit: jobs in the writing thread, and messages that are being carried forward."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.core.properties import Properties
from penstock.core.queue import Queue
from penstock.core.recovery.table import Table
from penstock.journal import committer
from penstock.journal.contract import OwnerOptions
from penstock.journal.errors import LogFailed
from penstock.server.engine.commits import SMALL, SMALL_UNSYNCED, GroupCommit
from penstock.server.engine.engine import Engine
from penstock.server.maintenance.retention import Retention
from penstock.server.process.opening import Opened
from support.inprocess import GatedLog
from support.journals import open_folder
from support.retaining import carry, retain
from support.simdisk import SimDisk
from support.workload import MORNING


def opened_with_old_message() -> tuple[Opened, Queue, int]:
    """A folder whose first segments contain one live message and are past retention. Nothing is cached."""
    opened = open_folder(
        SimDisk(), MORNING, OwnerOptions(extent_bytes=2000, reserve=4096), Retention(0, 1), cache_bytes=0
    )
    engine, broker = opened.engine, opened.engine.broker
    broker.create_namespace("default", MORNING)
    queue = broker.create_queue("default", "q", MORNING)
    connection = broker.connect(1, b"test")
    kept = broker.publish(connection, queue, [b"kept"], MORNING, Properties(priority=0)).first
    for number in range(20):
        broker.publish(connection, queue, [bytes(500)], MORNING, Properties(priority=1))
        engine.commit(MORNING)
        assert broker.pop(connection, queue, MORNING)[0]
        engine.commit(MORNING + number)
    opened.upkeep.checkpoint(MORNING)
    return opened, queue, kept


def test_a_message_on_its_way_to_a_new_place_can_be_read_all_the_time() -> None:
    opened, _, kept = opened_with_old_message()
    engine, upkeep = opened.engine, opened.upkeep
    plan = upkeep.plan(MORNING)
    assert plan.steps
    for step in plan.steps:
        for _ in carry(upkeep, plan, step, MORNING):
            assert engine.payloads([kept]) == [b"kept"]  # the copy is not in the log yet
            engine.commit(MORNING)
        upkeep.compaction.trim(step.before)
        assert engine.log.start >= step.before
    upkeep.compaction.forget_places(plan.table)
    assert engine.moved[kept] > kept
    assert engine.payloads([kept]) == [b"kept"]


def test_jobs_run_in_the_thread_that_writes() -> None:
    opened = open_folder(SimDisk(), MORNING)
    threads: list[str] = []
    commits = GroupCommit(opened.engine, lambda: None, lambda error: None)
    commits.start()
    done = threading.Event()
    commits.call(lambda: threads.append(threading.current_thread().name))
    commits.call(done.set)
    assert done.wait(10)
    commits.close(MORNING)
    assert threads == ["penstock-journal"]


@pytest.mark.parametrize("small", [SMALL, SMALL_UNSYNCED])
def test_a_small_commit_is_done_on_return_and_a_large_one_by_the_thread(
    monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(committer, "QUICK", 10.0)
    opened = open_folder(SimDisk(), MORNING)
    engine, broker = opened.engine, opened.engine.broker
    notified = threading.Event()
    commits = GroupCommit(engine, notified.set, lambda error: None, at_once=lambda: small)
    broker.create_namespace("default", MORNING)
    queue = broker.create_queue("default", "q", MORNING)
    connection = broker.connect(1, b"test")
    commits.start()
    while broker.committed < broker.log.next_position:  # the first rows begin a segment, and its catalogue follows
        commits.flush(MORNING)
        commits.advance()
    while commits._committer._wanted.is_set or commits._committer._appending.locked():
        time.sleep(0.001)
    notified.clear()
    broker.publish(connection, queue, [bytes(small - 1000)], MORNING)
    commits.flush(MORNING)
    assert broker.committed == broker.log.next_position
    assert not notified.is_set()
    broker.publish(connection, queue, [bytes(small)], MORNING)
    commits.flush(MORNING)
    assert notified.wait(10)
    commits.close(MORNING)
    assert engine.log.committed == broker.log.next_position


def test_a_catalogue_that_a_small_commit_asks_for_is_committed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would commit it, and a stopping broker would wait for it until its timeout."""
    monkeypatch.setattr(committer, "QUICK", 10.0)
    opened = open_folder(SimDisk(), MORNING, OwnerOptions(extent_bytes=2000, reserve=4096))
    engine, broker = opened.engine, opened.engine.broker
    commits = GroupCommit(engine, lambda: None, lambda error: None, at_once=lambda: SMALL)
    broker.create_namespace("default", MORNING)
    queue = broker.create_queue("default", "q", MORNING)
    connection = broker.connect(1, b"test")
    engine.commit(MORNING)
    engine.commit(MORNING)
    extents = len(engine.log.extents())
    for _ in range(3):
        broker.publish(connection, queue, [bytes(1000)], MORNING)
        commits.flush(MORNING)
    assert not broker.log.staged, "the thread has the catalogue of the next extent"
    commits.close(MORNING)
    assert len(engine.log.extents()) == extents + 1
    assert engine.log.committed == broker.log.next_position


def test_without_any_checkpoint_the_counters_of_moved_messages_still_add_up() -> None:
    """A message is re-driven to another queue, its original segment is deleted, then the checkpoints are lost."""
    opened, queue, kept = opened_with_old_message()
    engine, broker, disk = opened.engine, opened.engine.broker, opened.upkeep.log._disk  # type: ignore[attr-defined]
    assert isinstance(disk, SimDisk)
    other = broker.create_queue("default", "other", MORNING)
    connection = broker.connect(2, b"test")
    broker.subscribe(connection, queue, 1, MORNING)
    broker.reject(connection, queue, [kept], MORNING)
    broker.redrive(connection, queue, MORNING, to=other)
    engine.commit(MORNING)
    assert retain(opened.upkeep, MORNING)
    engine.log.close()
    for name in disk.names():
        if name.endswith(".ckpt"):
            disk.unlink(name)
    again = open_folder(disk, MORNING).engine.broker
    assert again.queue("default", "other") is not None
    assert {q.name: q.counters.as_dict() for q in again.queues.values()} == {
        q.name: q.counters.as_dict() for q in broker.queues.values()
    }


def test_closing_reports_a_failure_of_the_last_write() -> None:
    """Nothing is staged, but the last write is still in flight when closing begins, so its failure must count."""
    log = GatedLog()
    engine = Engine(log, Table(), MORNING)
    failures: list[Exception] = []
    commits = GroupCommit(engine, lambda: None, failures.append)
    commits.start()
    log.hold()
    log.broken = True
    commits.flush(MORNING)
    engine.broker.log.take()  # the catalogue at the start of a new segment
    while commits._handed:
        time.sleep(0.001)
    threading.Timer(0.05, log.go_on).start()
    with pytest.raises(LogFailed, match="the disk is broken"):
        commits.close(MORNING)
    assert len(failures) == 1


def test_a_copy_of_an_old_message_does_not_erase_a_later_request_of_the_same_id() -> None:
    """The first one's window had passed when the second came; then the first is carried and checkpoints are lost."""
    opened, queue, _ = opened_with_old_message()
    engine, broker, disk = opened.engine, opened.engine.broker, opened.upkeep.log._disk  # type: ignore[attr-defined]
    assert isinstance(disk, SimDisk)
    connection = broker.connect(2, b"test")
    broker.publish(connection, queue, [b"old"], MORNING, Properties(request_id=b"r"))
    for _ in range(20):
        broker.publish(connection, queue, [bytes(500)], MORNING, Properties(priority=1))
        engine.commit(MORNING)
        assert broker.pop(connection, queue, MORNING)[0]
        engine.commit(MORNING)
    later = MORNING + queue.policy.deduplication
    opened.upkeep.checkpoint(later)
    second = broker.publish(connection, queue, [b"new"], later, Properties(request_id=b"r"))
    engine.commit(later)
    assert not second.duplicate
    assert retain(opened.upkeep, later)
    assert engine.log.start > second.first - 20
    engine.log.close()
    for name in disk.names():
        if name.endswith(".ckpt"):
            disk.unlink(name)
    again = open_folder(disk, later).engine.broker
    restored = again.queue("default", "q")
    assert restored is not None
    assert (
        again.publish(again.connect(3, b"test"), restored, [b"new"], later, Properties(request_id=b"r")).first
        == second.first
    )
