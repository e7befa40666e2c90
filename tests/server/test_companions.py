"""Companion processes are watched: one that hangs is killed and restarted."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.admin.settings import AdminSettings
from penstock.companions.settings import CompanionSettings
from penstock.server.admin.http_companion import http_process
from penstock.server.companions import companion_process as endpoints
from penstock.server.companions.companion_process import CompanionProcess
from penstock.server.flight.flight_companion import flight_process
from penstock.server.logs import Logger
from support.folders import Life

HUNG = 2.0


@pytest.fixture(params=["http", "flight"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Logger], CompanionProcess]:
    folder = tmp_path / "data"
    Life(folder).run(5).stop()
    journal, address = f"file:{folder}", "127.0.0.1:0"
    if request.param == "flight":
        return lambda log: flight_process(CompanionSettings(journal=journal, address=address), log)
    settings = AdminSettings(version="0", code="from source", data="", journal=journal, address=address)
    return lambda log: http_process(settings, log)


def live(make: Callable[[Logger], CompanionProcess], story: Callable[[CompanionProcess], Awaitable[None]]) -> str:
    """Run a story with a live process. Returns the log."""
    words = io.StringIO()

    async def run() -> None:
        process = make(Logger(words))
        await process.start()
        try:
            async with asyncio.timeout(60):
                await story(process)
        finally:
            await process.stop()

    asyncio.run(run())
    return words.getvalue()


def pid_of(process: CompanionProcess) -> int:
    assert process._process is not None
    return process._process.pid


def test_one_that_hangs_is_killed_and_started_again(
    make: Callable[[Logger], CompanionProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "HUNG_SECONDS", HUNG)

    async def story(process: CompanionProcess) -> None:
        hung, before = pid_of(process), process.address
        os.kill(hung, signal.SIGSTOP)
        host, _, port = before.partition("://")[2].rpartition(":")
        while pid_of(process) == hung:
            await asyncio.sleep(0.02)
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            break
        assert process.address == before

    log = live(make, story)
    assert "hangs and is killed" in log


def test_a_broker_that_was_stopped_does_not_blame_its_companion(
    make: Callable[[Logger], CompanionProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that the companion sent meanwhile is read before it counts as hung."""
    monkeypatch.setattr(endpoints, "HUNG_SECONDS", HUNG)

    async def story(process: CompanionProcess) -> None:
        before, beats = pid_of(process), 0
        heard = process._next

        async def counted(each: asyncio.subprocess.Process) -> object:
            nonlocal beats
            said = await heard(each)
            beats += 1
            return said

        monkeypatch.setattr(process, "_next", counted)
        while not beats:
            await asyncio.sleep(0.02)
        time.sleep(HUNG + 1)  # the broker is stopped
        beats = 0
        while beats < 3:
            await asyncio.sleep(0.02)
        assert pid_of(process) == before

    assert "hangs" not in live(make, story)
