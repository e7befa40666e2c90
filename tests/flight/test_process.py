"""The endpoint's process alone: its settings on standard input, its reports on standard output."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.companions.settings import CompanionSettings
from penstock.server.flight.flight_companion import flight_process
from penstock.server.logs import Logger
from support.folders import Life


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Life(tmp_path / "data").run(5).stop()
    return tmp_path / "data"


def run(settings: bytes) -> tuple[int, list[Any]]:
    """Run the process with these settings. Returns exit code and reports."""
    done = subprocess.run([sys.executable, "-m", "penstock.flight"], input=settings, capture_output=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_without_settings_it_ends() -> None:
    assert run(b"") == (0, [])


def test_it_reports_its_address_and_ends_with_its_input(folder: Path) -> None:
    code, [report, *beats] = run(json.dumps({"journal": f"file:{folder}", "address": "127.0.0.1:0"}).encode() + b"\n")
    assert (code, report["type"], {each["type"] for each in beats} - {"alive"}) == (0, "ready", set())
    assert report["address"].startswith("grpc://127.0.0.1:")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"address": "192.0.2.1:0"}, "Cannot assign requested address"),
        ({"address": "127.0.0.1:0", "tls_certificate": "/nowhere"}, "/nowhere: No such file"),
        ({"address": "127.0.0.1:0", "journal": "/nowhere"}, "not the data folder of a broker"),
    ],
)
def test_it_reports_why_it_does_not_start(folder: Path, settings: dict[str, str], reason: str) -> None:
    code, [report] = run(json.dumps({"journal": f"file:{folder}", **settings}).encode() + b"\n")
    assert (code, report["type"]) == (1, "failed")
    assert reason in report["reason"]


def test_it_has_a_lower_priority_than_the_broker(folder: Path) -> None:
    settings = json.dumps({"journal": f"file:{folder}", "address": "127.0.0.1:0"}).encode() + b"\n"
    command = [sys.executable, "-m", "penstock.flight"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(settings)
        process.stdin.flush()
        process.stdout.readline()
        assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_restart_is_retried_until_it_succeeds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    python = sys.executable

    async def logged(text: str) -> None:
        async with asyncio.timeout(60):
            while text not in log.getvalue():
                await asyncio.sleep(0.02)

    async def live() -> None:
        process = flight_process(CompanionSettings(journal=f"file:{folder}", address="127.0.0.1:0"), Logger(log))
        await process.start()
        try:
            monkeypatch.setattr(sys, "executable", "/nowhere/python")
            assert process._process is not None
            process._process.kill()
            await logged("the Flight endpoint does not start")
            monkeypatch.setattr(sys, "executable", python)
            await logged("the Flight endpoint is ready")
        finally:
            await process.stop()

    asyncio.run(live())
