"""Processes of servers, each in its own session, which is measured and stopped as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.demo.processes import accepts

#: Seconds that a server may take to start: an Erlang one on a busy machine needs a while.
START_PATIENCE = 180.0
#: Seconds that a server may take to end after SIGTERM.
STOP_PATIENCE = 60.0


class ServerError(Exception):
    """A server did not start. The text contains the end of its log."""


class Process:
    """A server's process and its children, all in one session."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None):
        self.name = name
        self._helper: Process | None = None
        self.log = folder / "log"
        #: When it was started, on the monotonic clock.
        self.started = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                list(command),
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def with_helper(self, helper: Process) -> Process:
        """Add a process that it needs, which is stopped after it."""
        self._helper = helper
        return self

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until it is ready. Raises ServerError."""
        until = time.monotonic() + START_PATIENCE
        while not ready():
            if self._process.poll() is not None:
                raise ServerError(f"{self.name} ended with {self._process.returncode}: {self._said()}")
            if time.monotonic() > until:
                raise ServerError(f"{self.name} was not ready after {START_PATIENCE:.0f} s: {self._said()}")
            time.sleep(0.01)

    def wait_for_port(self, port: int) -> None:
        """Wait until it accepts connections."""
        self.wait_for(lambda: accepts(port))

    def stop(self) -> None:
        """Terminate it, and kill what is left of its session."""
        self._process.terminate()
        try:
            self._process.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for pid in self._session():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            if self._helper:
                self._helper.stop()

    def anonymous_bytes(self) -> int:
        """Anonymous memory of the session, without mapped files."""
        return sum(map(_anonymous, self._session()))

    def cpu_seconds(self) -> float:
        """CPU time of the session's living processes."""
        return sum(map(_cpu, self._session()))

    def _session(self) -> list[int]:
        pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        return [pid for pid in pids if _session_of(pid) == self._process.pid]

    def _said(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-5:]) or "its log is empty"


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _session_of(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[3]) if fields else -1


def _cpu(pid: int) -> float:
    fields = _fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))
