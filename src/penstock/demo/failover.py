"""A PostgreSQL with a synchronous standby and two brokers on it, so that any one process may be killed.

Everything is on one machine and both brokers have the same addresses: a standby opens its listeners only when it takes
over, as behind an address that moves with the broker.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.demo.broker import BrokerProcess
from penstock.demo.postgresql import Pair
from penstock.demo.processes import RunLock

#: What is killed, in words, and the function that does so.
Loss = tuple[str, Callable[[], None]]


class FailoverSetup:
    """The servers, and the broker that stands by. Methods raise ProcessFailed."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-failover-"))
        self._folder.chmod(0o755)  # PostgreSQL may run as another user
        self._pair = Pair(self._folder / "postgresql")
        self._standby: BrokerProcess | None = None

    def start_database(self) -> None:
        """Create and start the primary and its standby."""
        self._pair.start()

    def storage_flags(self, name: str) -> list[str]:
        """The flags of a broker for a data folder of its own and the common journal."""
        return [f"--data={self._folder / name}", f"--journal={self._pair.url()}"]

    def start_standby(self, flags: Sequence[str], log: Path, lock: RunLock) -> None:
        """Start the second broker, and wait until it stands by."""
        self._standby = BrokerProcess([*self.storage_flags("second"), *flags], log, lock)
        self._standby.wait("standby")

    def lose_broker(self, serving: BrokerProcess) -> BrokerProcess:
        """Kill the broker that serves, as a loss of power would. Returns the one that takes over."""
        assert self._standby is not None
        serving.process.kill()
        self._standby.wait()
        taken_over, self._standby = self._standby, serving
        return taken_over

    def lose_primary(self) -> None:
        """Kill the database's primary, and promote its standby."""
        self._pair.fail_over()

    def stop(self) -> None:
        """Stop what is left, and remove everything."""
        if self._standby is not None:
            self._standby.stop()
        self._pair.remove()
        shutil.rmtree(self._folder, ignore_errors=True)
