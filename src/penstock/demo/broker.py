"""``penstock serve`` as a child process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.demo.processes import ChildProcess, ProcessFailed, RunLock

#: Seconds that a broker may take to start: reading a large journal takes a while.
START_SECONDS = 120.0
#: Seconds between two looks at its ready file.
POLL_SECONDS = 0.005


class BrokerProcess(ChildProcess):
    """A broker. Once it is ready, ``addresses`` are by protocol, as host:port; those of flight and http are URLs."""

    def __init__(
        self,
        flags: Sequence[str],
        log: Path | None = None,
        lock: RunLock | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = TemporaryDirectory(prefix="penstock-ready-")
        self._ready = Path(self._folder.name, "ready.json")
        command = ["penstock", "serve", f"--ready-file={self._ready}", *flags]
        super().__init__(command, log, lock, environment=environment)
        self.addresses: dict[str, str] = {}

    def wait(self, role: str = "serving") -> None:
        """Wait until it serves, or is in another role. Raises ProcessFailed."""
        deadline = time.monotonic() + START_SECONDS
        while (ready := self._ready_file()).get("role") != role:
            if not self.running:
                raise ProcessFailed(f"the broker did not start:{self.log_end()}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"the broker takes too long to start:{self.log_end()}")
            time.sleep(POLL_SECONDS)
        self.addresses = {each["protocol"]: each["address"] for each in ready["listeners"]}

    def stop(self) -> None:
        """Let it drain, or kill it when that takes too long."""
        super().stop()
        self._folder.cleanup()

    def _ready_file(self) -> dict[str, Any]:
        try:
            ready: dict[str, Any] = json.loads(self._ready.read_text())
        except FileNotFoundError:
            return {}
        return ready


@contextmanager
def running_broker(flags: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    """A broker that serves, and is stopped at the end. Its log goes to our standard error. Raises ProcessFailed."""
    broker = BrokerProcess(flags, environment=environment)
    try:
        broker.wait()
        yield broker
    finally:
        broker.stop()
