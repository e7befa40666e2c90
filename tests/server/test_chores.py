"""The chores of a running broker, when something goes wrong with them."""

from __future__ import annotations

import asyncio
import io
import threading
from typing import Any

import pytest

from penstock.flight import requests
from penstock.journal.errors import LogFailed
from penstock.server import chores
from penstock.server.commits import GroupCommit
from penstock.server.logs import Log
from penstock.server.opening import Opened, open_folder
from penstock.server.options import Options
from penstock.server.readers import Pin
from penstock.server.runtime import Runtime
from support.simdisk import SimDisk


class Scene:
    """A broker with chores, and what its loop could not place."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.astray: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self.astray.append(context))
        self.opened: Opened = open_folder(SimDisk(), 1, min_free=0)
        self.words = io.StringIO()
        engine = self.opened.engine
        self.commits = GroupCommit(engine, lambda: None if loop.is_closed() else self._committed(loop), self._failed)
        self.runtime = Runtime(Options(), engine, self.commits, Log(self.words))
        self.chores = chores.Chores(self.runtime, self.opened.upkeep)
        self.commits.start()

    def _committed(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(self.runtime.committed)

    def _failed(self, error: Exception) -> None:
        raise error


def test_a_fault_in_one_chore_does_not_end_the_watch_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "INTERVAL", 0.005)

    async def live() -> None:
        scene = Scene()
        monkeypatch.setattr(scene.opened.upkeep, "plan", lambda now: 1 // 0)
        scene.runtime.touched()  # the first commit begins a segment, so there is something to tidy
        scene.chores.start()
        while "upkeep failed" not in scene.words.getvalue():
            await asyncio.sleep(0.005)
        scene.opened.upkeep.admission.min_free = 2**62
        while not scene.runtime.broker.disk_full:
            await asyncio.sleep(0.005)
        await scene.chores.stop()
        scene.runtime.stop()
        scene.commits.close(1)

    asyncio.run(asyncio.wait_for(live(), 30))


def test_a_stop_while_segments_are_deleted_is_nobodys_error(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    async def live() -> None:
        scene = Scene()
        monkeypatch.setattr(scene.opened.upkeep, "trim", lambda before: go_on.wait(10))
        trimming = asyncio.create_task(scene.chores._trim(1))
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
    """The log takes nothing any more: who waits for the next message to find out has lost it."""

    async def live() -> None:
        scene = Scene()
        failures: list[Exception] = []
        scene.runtime.fail = failures.append
        scene.opened.upkeep.log._failed = LogFailed("the disk is broken")
        with pytest.raises(LogFailed):
            await scene.chores._trim(1)
        assert [str(failure) for failure in failures] == ["the disk is broken"]
        scene.runtime.stop()

    asyncio.run(asyncio.wait_for(live(), 30))


def test_a_pin_that_can_not_be_kept_is_dropped_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "INTERVAL", 0.005)

    async def live() -> None:
        scene = Scene()
        readers = scene.runtime.readers
        told = requests.Report(
            reader="lake", view="messages", where="*", position=1, lag_rows=0, lag_seconds=0.0, pin=True
        )
        readers.report(told, 1)
        upkeep = scene.opened.upkeep
        assert upkeep.pins() == readers.pins() == [Pin("lake", 1, 1)]
        monkeypatch.setattr(upkeep, "floor", lambda now: 2)
        monkeypatch.setattr(upkeep.log, "set_floor", lambda position: None)
        scene.runtime.touched()  # the first commit begins a segment, so there is something to tidy
        scene.chores.start()
        while "history is not kept for a reader any more" not in scene.words.getvalue():
            await asyncio.sleep(0.005)
        assert readers.pins() == []
        await scene.chores.stop()
        scene.runtime.stop()
        scene.commits.close(2)
        assert scene.astray == []

    asyncio.run(live())
