"""A real Prometheus for the tests of metrics, rules and the dashboard.

``PROMETHEUS=/path`` names one, with ``promtool`` beside it; otherwise those on the PATH are used. Without any, tests
fail and say how to install one. ``python -m support.prometheus`` installs Debian's, for root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from support import debian
from support.web import eventually

HOW = "install one (Debian: apt-get install prometheus), or name one: PROMETHEUS=/path/to/prometheus"


def named(name: str = "prometheus") -> str | None:
    """The program from ``PROMETHEUS``, or on the PATH."""
    given = os.environ.get("PROMETHEUS")
    return str(Path(given).with_name(name)) if given else shutil.which(name)


def program(name: str) -> str:
    """The program. Fails without one, because a skipped test proves nothing."""
    path = named(name)
    if path is None:
        pytest.fail(f"the tests of monitoring need a Prometheus: {HOW}", pytrace=False)
    return path


def promtool(*arguments: str, stdin: bytes = b"") -> None:
    """Run promtool, and fail with its output if it fails."""
    done = subprocess.run([program("promtool"), *arguments], input=stdin, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str) -> Any:
        """The data of an answer."""
        with urlopen(f"http://{self._address}/api/v1/{path}", timeout=10) as answer:
            response = json.loads(answer.read())
        assert response["status"] == "success", response
        return response["data"]

    def query(self, expression: str) -> list[Any]:
        """The current series of an expression."""
        result: list[Any] = self.ask(f"query?query={quote(expression)}")["result"]
        return result

    def answers(self) -> bool:
        """Whether it answers."""
        try:
            return bool(self.ask("status/buildinfo"))
        except (URLError, ConnectionError):
            return False


@contextmanager
def running(configuration: Path, address: str) -> Iterator[Prometheus]:
    """Run one with this configuration, and its data in the same folder."""
    options = [f"--config.file={configuration}", f"--storage.tsdb.path={configuration.parent / 'tsdb'}"]
    options += [f"--web.listen-address={address}", "--log.level=error"]
    with open(configuration.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen([program("prometheus"), *options], stdout=log, stderr=log)
    server = Prometheus(address)
    try:
        eventually(lambda: process.poll() is not None or server.answers(), 60)
        assert process.poll() is None, configuration.with_suffix(".log").read_text()
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def install() -> int:
    """Install Prometheus if there is none. Returns the exit code."""
    if not named():
        debian.install("prometheus", "the tests of monitoring")
    if not named():
        print(f"set-up: no Prometheus, so the tests of monitoring will fail: {HOW}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(install())
