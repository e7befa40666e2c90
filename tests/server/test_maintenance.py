"""The maintenance of a running broker, when it fails."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest

from penstock.flight import flight_requests as requests
from penstock.journal.contract import OwnedJournal, OwnerOptions
from penstock.journal.errors import LogAway, LogFailed
from penstock.journal.files.journal import OwnedFiles
from penstock.journal.memory import OwnedMemory
from penstock.server.engine.commits import GroupCommit
from penstock.server.logs import Logger
from penstock.server.maintenance import schedule
from penstock.server.maintenance.retention import Retention
from penstock.server.maintenance.upkeep import RemovalPlan
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.process.opening import Opened, open_engine
from penstock.server.registry.readers import Pin
from support.simdisk import SimDisk


class Scene:
    """A broker with its maintenance, and the unhandled errors of its loop."""

    def __init__(
        self,
        options: OwnerOptions | None = None,
        retention: Retention | None = None,
        journal: OwnedJournal | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.astray: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.astray.append(context))
        self.disk = SimDisk()
        journal = journal or OwnedFiles(self.disk, options)
        self.opened: Opened = open_engine(journal, 1, retention, min_free=0)
        self.words = io.StringIO()
        engine = self.opened.engine
        self.commits = GroupCommit(engine, lambda: None if loop.is_closed() else self._committed(loop), self._failed)
        self.runtime = Runtime(BrokerOptions(), engine, self.commits, Logger(self.words))
        self.maintenance = schedule.Maintenance(self.runtime, self.opened.upkeep)
        self.commits.start()

    def _committed(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self.runtime.committed)

    def _failed(self, error: Exception) -> None:
        raise error

    async def committed(self) -> None:
        """Wait until everything is on disk."""
        self.runtime.touched()
        while self.runtime.broker.committed < self.runtime.broker.log.next_position:
            await asyncio.sleep(0.001)

    async def until(self, what: Callable[[], object]) -> None:
        while not what():
            await asyncio.sleep(0.002)

    async def end(self) -> None:
        await self.maintenance.stop()
        await self.maintenance.finish()
        self.runtime.stop()
        self.commits.close(1)


def test_a_fault_in_one_chore_does_not_end_the_watch_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "INTERVAL", 0.005)

    async def live() -> None:
        scene = Scene()
        monkeypatch.setattr(scene.opened.upkeep, "plan", lambda now, pins: 1 // 0)
        scene.runtime.touched()  # the first commit begins a segment, so there is something to tidy
        scene.maintenance.start()
        while "upkeep failed" not in scene.words.getvalue():
            await asyncio.sleep(0.005)
        scene.opened.upkeep.admission.min_free = 2**62
        while not scene.runtime.broker.disk_full:
            await asyncio.sleep(0.005)
        await scene.maintenance.stop()
        await scene.maintenance.finish()
        scene.runtime.stop()
        scene.commits.close(1)

    asyncio.run(asyncio.wait_for(live(), 30))


def test_a_stop_while_segments_are_deleted_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    async def live() -> None:
        scene = Scene()
        monkeypatch.setattr(scene.opened.upkeep.compaction, "trim", lambda before: go_on.wait(10))
        trimming = asyncio.create_task(scene.maintenance._trim(1))
        await asyncio.sleep(0.02)
        trimming.cancel()
        await asyncio.wait([trimming])
        go_on.set()
        scene.runtime.stop()
        scene.commits.close(1)
        await asyncio.sleep(0.02)
        assert scene.astray == []

    asyncio.run(asyncio.wait_for(live(), 30))


def test_a_disk_that_fails_while_segments_are_deleted_ends_the_broker() -> None:
    """The log is unusable, so the failure must not wait for the next message, which would be lost."""

    async def live() -> None:
        scene = Scene()
        failures: list[Exception] = []
        scene.runtime.fail = failures.append
        scene.opened.upkeep.log._failures.fatal = LogFailed("the disk is broken")  # type: ignore[attr-defined]
        with pytest.raises(LogFailed):
            await scene.maintenance._trim(1)
        assert [str(failure) for failure in failures] == ["the disk is broken"]
        scene.runtime.stop()

    asyncio.run(asyncio.wait_for(live(), 30))


def test_a_database_that_is_away_while_extents_are_given_back_does_not_end_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def live() -> None:
        scene = Scene()
        failures: list[Exception] = []
        scene.runtime.fail = failures.append

        def trim(before: int) -> None:
            raise LogAway("not now")

        monkeypatch.setattr(scene.opened.upkeep.compaction, "trim", trim)
        with pytest.raises(LogAway):
            await scene.maintenance._trim(1)
        assert failures == []
        scene.runtime.stop()

    asyncio.run(asyncio.wait_for(live(), 30))


def test_a_pin_that_can_not_be_kept_is_dropped_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "INTERVAL", 0.005)

    async def live() -> None:
        scene = Scene()
        readers = scene.runtime.readers
        pinned = requests.Report(
            reader="lake", view="messages", where="*", position=1, lag_rows=0, lag_seconds=0.0, pin=True
        )
        readers.report(pinned, 1)
        upkeep = scene.opened.upkeep
        assert readers.pins() == [Pin("lake", 1, 1)]
        monkeypatch.setattr(Retention, "floor", lambda *_: 2)
        monkeypatch.setattr(upkeep.log, "set_floor", lambda position: None)
        scene.runtime.touched()  # the first commit begins a segment, so there is something to tidy
        scene.maintenance.start()
        while "history is not kept for a reader any more" not in scene.words.getvalue():
            await asyncio.sleep(0.005)
        assert readers.pins() == []
        await scene.maintenance.stop()
        await scene.maintenance.finish()
        scene.runtime.stop()
        scene.commits.close(2)
        assert scene.astray == []

    asyncio.run(live())


def test_upkeep_that_fails_is_seen_and_tried_again_less_and_less_often_until_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule, "INTERVAL", 0.001)

    async def live() -> None:
        scene = Scene()
        plan, waits = scene.opened.upkeep.plan, []

        def fail(now: int, pins: Iterable[Pin]) -> RemovalPlan:
            waits.append(looks)
            raise LogFailed("not now")

        looks = 0
        is_due = scene.maintenance._is_due

        def count() -> bool:
            nonlocal looks
            looks += 1
            return is_due()

        monkeypatch.setattr(scene.maintenance, "_is_due", count)
        monkeypatch.setattr(scene.opened.upkeep, "plan", fail)
        await scene.committed()
        scene.maintenance.start()
        await scene.until(lambda: len(waits) == 5)
        assert [after - before for before, after in pairwise(waits)] == [2, 4, 8, 16]
        await scene.until(scene.runtime.health.trouble)
        assert scene.runtime.health.trouble() == "upkeep fails: not now"
        monkeypatch.setattr(scene.opened.upkeep, "plan", plan)
        await scene.until(lambda: not scene.runtime.health.trouble())
        assert scene.opened.upkeep.checkpoints.positions()
        assert scene.maintenance._reading is None  # a plan contains the whole state
        await scene.end()

    asyncio.run(asyncio.wait_for(live(), 30))


def test_the_disk_is_watched_while_upkeep_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "INTERVAL", 0.002)
    begun, go_on = threading.Event(), threading.Event()

    async def live() -> None:
        scene = Scene()
        plan = scene.opened.upkeep.plan

        def slow(now: int, pins: Iterable[Pin]) -> RemovalPlan:
            begun.set()
            go_on.wait(20)
            return plan(now, pins)

        monkeypatch.setattr(scene.opened.upkeep, "plan", slow)
        await scene.committed()
        scene.maintenance.start()
        await scene.until(begun.is_set)
        scene.disk.space = 0
        await scene.until(lambda: scene.runtime.broker.disk_full)
        go_on.set()
        scene.disk.space = 2**40
        await scene.until(lambda: not scene.runtime.broker.disk_full)
        await scene.end()

    asyncio.run(asyncio.wait_for(live(), 30))


SMALL = OwnerOptions(extent_bytes=100_000, reserve=8 * 1024)


async def half_alive(scene: Scene, segments: int) -> int:
    """A journal in which a little less than half is alive. Returns the number of live messages."""
    broker, now = scene.runtime.broker, scene.runtime.now()
    broker.create_namespace("default", now)
    kept, gone = (broker.create_queue("default", name, now) for name in ("kept", "gone"))
    connection = broker.connect(1, b"test")
    while len(scene.opened.upkeep.log.extents()) <= segments:
        broker.publish(connection, kept, [bytes(2_000)] * 4, now)
        broker.publish(connection, gone, [bytes(2_000)] * 6, now)
        await scene.committed()
        while broker.pop(connection, gone, now)[0]:
            pass
    await scene.committed()
    return len(kept.ready)


async def consume(scene: Scene, waiting: int) -> None:
    """Consume the live messages."""
    broker = scene.runtime.broker
    queue, connection = broker.queue("default", "kept"), broker.connect(2, b"test")
    assert queue is not None
    for _ in range(waiting):
        assert broker.pop(connection, queue, scene.runtime.now())[0]
    await scene.committed()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run maintenance with almost no delays."""
    monkeypatch.setattr(schedule, "INTERVAL", 0.005)
    monkeypatch.setattr(schedule, "PRESSED", 2)


def test_compaction_beside_a_broker_does_not_fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of all segments would exceed the free space; those of one segment fit."""
    monkeypatch.setattr(schedule, "INTERVAL", 0.005)

    async def live() -> None:
        scene = Scene(SMALL, Retention(age=0, bytes=1))
        waiting = await half_alive(scene, 15)
        upkeep, disk = scene.opened.upkeep, scene.disk
        upkeep.checkpoint(scene.runtime.now())
        before = len(upkeep.log.extents())
        disk.space += 120_000 - disk.left
        scene.maintenance.start()
        await scene.until(lambda: len(upkeep.log.extents()) < before // 2)
        assert scene.commits.full is None
        assert disk.left > 500_000
        queue = scene.runtime.broker.queue("default", "kept")
        assert queue is not None
        connection = scene.runtime.broker.connect(2, b"test")
        for _ in range(waiting):
            (popped,), _ = scene.runtime.broker.pop(connection, queue, scene.runtime.now())
            assert scene.runtime.engine.payloads([popped.position]) == [bytes(2_000)]
        await scene.committed()
        await scene.end()
        assert scene.astray == []

    asyncio.run(asyncio.wait_for(live(), 30))


def test_while_the_disk_is_nearly_full_space_is_given_back_as_soon_as_it_is_consumed(hurried: None) -> None:
    """A few acknowledgements finish no segment, so waiting for that would never end."""

    async def live() -> None:
        scene = Scene(SMALL, Retention(age=0, bytes=1))
        waiting = await half_alive(scene, 6)
        upkeep, disk, broker = scene.opened.upkeep, scene.disk, scene.runtime.broker
        scene.maintenance.start()
        await scene.until(upkeep.checkpoints.positions)
        await scene.until(lambda: scene.maintenance._waited > 2)
        last = upkeep.log.extents()[-1].first
        disk.space += 40_000 - disk.left  # less than 256 bytes for each message
        upkeep.admission.min_free = 50_000
        await scene.until(lambda: broker.disk_full)
        await consume(scene, waiting)
        await scene.until(lambda: not broker.disk_full)
        assert len(upkeep.log.extents()) <= 3
        assert upkeep.log.extents()[-1].first == last
        await scene.end()

    asyncio.run(asyncio.wait_for(live(), 30))


def test_a_journal_in_memory_frees_consumed_messages_before_publishing_resumes(hurried: None) -> None:
    """No segment is finished while publishing is refused, and the memory is full of history that is not needed."""

    async def live() -> None:
        journal = OwnedMemory(SMALL)
        scene = Scene(retention=Retention(age=0, bytes=SMALL.extent_bytes), journal=journal)
        waiting = await half_alive(scene, 6)
        memory, broker = scene.runtime.state_memory, scene.runtime.broker
        memory.stored, memory.limit = lambda: journal.memory_bytes, 3 * SMALL.extent_bytes
        await scene.until(memory.watch)
        assert broker.memory_full
        scene.maintenance.start()
        await scene.until(scene.opened.upkeep.checkpoints.positions)
        await consume(scene, waiting)
        await scene.until(memory.watch)
        assert not broker.memory_full
        await scene.end()
        journal.close()

    asyncio.run(asyncio.wait_for(live(), 30))
