"""A broker returns unused memory to the system when it is idle, and not before."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest

from penstock.core.recovery.table import Table
from penstock.journal.files.log import FileLog
from penstock.server.engine.commits import InlineCommit
from penstock.server.engine.engine import Engine
from penstock.server.logs import Logger
from penstock.server.maintenance import idle_memory
from penstock.server.maintenance.idle_memory import WORK, IdleMemory
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.system.collector import free_spares
from support.simdisk import SimDisk


class Scene:
    """A broker without peers on a log in files."""

    def __init__(self) -> None:
        self.log = FileLog(SimDisk())
        engine = Engine(self.log, Table(), 1)
        self.runtime = Runtime(BrokerOptions(), engine, InlineCommit(engine), Logger())
        self.memory = IdleMemory(self.runtime, self.log)

    def work(self, messages: int) -> None:
        """Publish this many messages."""
        broker = self.runtime.broker
        queue = broker.queue("default", "x") or broker.create_queue("default", "x", 1)
        broker.publish(broker.connect(1, b"test"), queue, [b"x"] * messages, 1)
        self.runtime.engine.commit(1)


def live(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        try:
            await story(scene)
        finally:
            scene.runtime.stop()
            scene.log.close()

    asyncio.run(main())


def test_the_heap_is_trimmed_once_after_work() -> None:
    async def story(scene: Scene) -> None:
        look = scene.memory.check
        scene.work(WORK)
        assert not look(), "there was work just now"
        assert look()
        assert not look(), "there was no work since"
        scene.work(10)
        assert [look(), look()] == [False, False], "too little work to be worth it"

    live(story)


def test_nothing_is_given_back_while_peers_are_active() -> None:
    async def story(scene: Scene) -> None:
        scene.work(WORK)
        for at in range(1, 4):
            scene.runtime.turns.received_at = float(at)
            assert not scene.memory.check()
        assert scene.memory.check()

    live(story)


def test_blocks_that_were_read_for_a_backlog_are_forgotten() -> None:
    async def story(scene: Scene) -> None:
        scene.work(1)
        last = scene.log.end - 1
        scene.log.messages([last])
        scene.memory.check()
        assert scene.log._locator._stretches, "a block was read just now"
        scene.memory.check()
        assert not scene.log._locator._stretches

    live(story)


def test_with_many_peers_or_queues_no_one_waits_for_a_full_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(idle_memory, "free_spares", lambda: looks.append(1))

    async def story(scene: Scene) -> None:
        for few in (1_000, 0):
            monkeypatch.setattr(idle_memory, "FEW", few)
            scene.work(WORK)
            assert [scene.memory.check(), scene.memory.check()] == [False, True]
        assert len(looks) == 1

    live(story)


def test_with_many_messages_out_no_one_waits_for_a_full_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(idle_memory, "free_spares", lambda: looks.append(1))
    monkeypatch.setattr(idle_memory, "FEW", 10)

    async def story(scene: Scene) -> None:
        broker = scene.runtime.broker
        peer = broker.connect(2, b"test")
        for window in (50, 150):
            scene.work(WORK)
            [queue] = broker.queues.values()
            broker.subscribe(peer, queue, window, 1)
            scene.runtime.engine.commit(1)
            assert [scene.memory.check(), scene.memory.check()] == [False, True]
            assert (broker.out, len(looks)) == (window, 1)

    live(story)


def test_spare_objects_are_freed() -> None:
    many = [tuple(range(size)) for size in range(1, 11) for _ in range(500)]
    del many
    before = sys.getallocatedblocks()
    free_spares()
    assert before - sys.getallocatedblocks() > 2_000
