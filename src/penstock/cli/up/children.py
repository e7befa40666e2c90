"""The processes of ``penstock up``: a broker, and Spark with the pipelines. Both end with whoever started them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.cli.errors import REFUSED, CommandError
from penstock.cli.up.lines import Broken, Going, Line, SparkReady, Task
from penstock.endpoint.parent import with_parent

#: Seconds that a broker may take to be ready: reading a large journal takes a while.
BROKER_SECONDS = 120.0
#: Seconds that Spark may take: a first start on a slow machine.
SPARK_SECONDS = 180.0
#: Seconds that they may take to end, before they are ended.
STOP_SECONDS = 30.0

#: Seconds to wait for an earlier run on the same lake, of which somebody is still about to end.
EARLIER_SECONDS = 40.0


class CouldNot(CommandError):
    """Something did not start, or has ended. The text says what and why, and what to look at."""

    def __init__(self, text: str) -> None:
        first, *more = text.splitlines()
        super().__init__(first, *more, exit_code=REFUSED)


class RunLock:
    """Held by a run and all its processes: whoever gets it knows that no process of an earlier run is left."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self.number = self._file.fileno()

    def take(self, tell: Callable[[str], None]) -> None:
        """Wait for it, a while. Raises CouldNot."""
        deadline = time.monotonic() + EARLIER_SECONDS
        waiting = False
        while not self._try():
            if time.monotonic() > deadline:
                raise CouldNot(f"another `penstock up` is running on this lake ({self._file.name}): stop it first")
            if not waiting:
                tell("waiting for an earlier run to end")
                waiting = True
            time.sleep(0.1)

    def close(self) -> None:
        """Release it."""
        self._file.close()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Child:
    """A process in a session of its own, so that Ctrl-C reaches us alone and we can stop things in order."""

    def __init__(self, command: Sequence[str], log: Path, lock: RunLock) -> None:
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                pass_fds=(lock.number,),
                preexec_fn=with_parent(),  # noqa: PLW1509 - no threads yet: they begin when all children have
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def end(self, ask: Callable[[], None]) -> None:
        """Ask it to end, and see to it."""
        if self.running:
            ask()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def log_end(self) -> str:
        """The last lines of its log, if it has any, and where there is more."""
        lines = self.log.read_text(errors="replace").strip().splitlines()[-3:]
        return "\n".join(["", *lines, f"(all of it: {self.log})"]) if lines else f" (its log: {self.log})"


class BrokerChild(Child):
    """``penstock serve``. ``addresses`` are by protocol, as host:port; those of flight and http are URLs."""

    def __init__(self, flags: Sequence[str], log: Path, lock: RunLock) -> None:
        self._ready = Path(tempfile.mkdtemp(prefix="penstock-up-")) / "ready.json"
        command = ["penstock", "serve", "--ready-file", str(self._ready), "--log-format", "text", *flags]
        super().__init__(command, log, lock)
        self.addresses: dict[str, str] = {}

    def wait(self) -> None:
        """Until it accepts everybody. Raises CouldNot."""
        self.wait_for_role("serving")
        if "flight" not in self.addresses:
            raise CouldNot(f"the broker has no Flight endpoint, which the pipelines read from:{self.log_end()}")

    def wait_for_role(self, role: str) -> None:
        """Until it serves, or stands by. Raises CouldNot."""
        deadline = time.monotonic() + BROKER_SECONDS
        while (ready := self._ready_file()).get("role") != role:
            if not self.running:
                raise CouldNot(f"the broker did not start:{self.log_end()}")
            if time.monotonic() > deadline:
                raise CouldNot(f"the broker takes too long to start:{self.log_end()}")
            time.sleep(0.02)
        self.addresses = {each["protocol"]: each["address"] for each in ready["listeners"]}

    def _ready_file(self) -> dict[str, Any]:
        """What the ready file says; nothing, if there is none."""
        try:
            ready: dict[str, Any] = json.loads(self._ready.read_text())
        except FileNotFoundError:
            return {}
        return ready

    def stop(self) -> None:
        """Let it drain."""
        self.end(self.process.terminate)
        self._ready.unlink(missing_ok=True)
        self._ready.parent.rmdir()


class PipelinesChild(Child):
    """Spark with both pipelines. ``rows`` is how many each has worked off, by name."""

    def __init__(self, task: Task, log: Path, lock: RunLock) -> None:
        super().__init__(["penstock.cli.up.driver"], log, lock)
        self.rows: dict[str, int] = {}
        self.spark = ""
        self._reason = ""
        self._heard = threading.Event()
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(task) + b"\n")
        self.process.stdin.flush()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait(self) -> None:
        """Until the pipelines run. Raises CouldNot."""
        self._heard.wait(SPARK_SECONDS)
        self.check()
        if not self.spark:
            raise CouldNot(f"Spark takes too long to start:{self.log_end()}")

    def check(self) -> None:
        """Raise CouldNot if it is over."""
        if not self.running:
            self._listener.join()
            reason = f" {self._reason}" if self._reason else self.log_end()
            raise CouldNot(f"the pipelines have ended:{reason}")

    def stop(self) -> None:
        """Let the batches that run finish."""
        assert self.process.stdin is not None
        self.end(self.process.stdin.close)
        self._listener.join()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                said: Line = msgspec.json.decode(line, type=Line)
            except msgspec.DecodeError:  # something in Spark has printed something
                continue
            match said:
                case SparkReady():
                    self.spark = said.spark
                    self._heard.set()
                case Going():
                    self.rows[said.pipeline] = said.rows
                case Broken():
                    self._reason = said.reason
        self._heard.set()
