"""Child processes that end with us, and the lock that shows whether an earlier run has left some behind."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from penstock.companions.parent import with_parent

#: Seconds that a process may take to stop before it is killed.
STOP_SECONDS = 30.0
#: Seconds to wait for the processes of an earlier run on the same lake to end.
EARLIER_SECONDS = 40.0


def free_port() -> int:
    """A port of 127.0.0.1 that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    """Whether this port of 127.0.0.1 accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class ProcessFailed(Exception):
    """A process did not start, or ended by itself. Notes are the end of its log, or what to do."""

    def __init__(self, text: str) -> None:
        first, *more = text.splitlines()
        super().__init__(first)
        for line in more:
            self.add_note(line)


class RunLock:
    """A lock that all processes of a run inherit: free once the last of them has ended."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self.descriptor = self._file.fileno()

    def acquire(self, report: Callable[[str], None]) -> None:
        """Wait for an earlier run to end. Raises ProcessFailed."""
        deadline = time.monotonic() + EARLIER_SECONDS
        reported = False
        while not self._try():
            if time.monotonic() > deadline:
                raise ProcessFailed(f"another `penstock up` is running on this lake ({self._file.name}): stop it first")
            if not reported:
                report("waiting for an earlier run to end")
                reported = True
            time.sleep(0.1)

    def release(self) -> None:
        """Release our share of it."""
        self._file.close()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class ChildProcess:
    """A module run by Python in a session of its own: Ctrl-C reaches only us, and we stop everything in order."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path | None = None,
        lock: RunLock | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        pipes: bool = False,
    ) -> None:
        """Without ``log`` its standard error is ours. With ``pipes`` we write its input and read its output."""
        self._log = log
        stream = subprocess.PIPE if pipes else subprocess.DEVNULL
        with log.open("ab") if log else nullcontext() as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=stream,
                stdout=stream,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                pass_fds=(lock.descriptor,) if lock else (),
                preexec_fn=with_parent(),  # noqa: PLW1509 - threads start once all children have
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def stop(self) -> None:
        """Let it finish what it does, or kill it when that takes too long."""
        self._stop(self.process.terminate)

    def kill(self) -> None:
        """End it as a loss of power would."""
        self.process.kill()
        self.process.wait()

    def log_end(self) -> str:
        """The last lines of its log and the log's path, to follow a colon; empty without a log."""
        if self._log is None:
            return ""
        lines = self._log.read_text(errors="replace").strip().splitlines()[-3:]
        return "\n".join(["", *lines, f"(all of it: {self._log})"]) if lines else f" (its log: {self._log})"

    def _stop(self, request: Callable[[], None]) -> None:
        if self.running:
            request()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
