"""A demo without a single machine to lose: a PostgreSQL with a synchronous standby, and two brokers on it.

Everything is on one machine, so both brokers have the same addresses: who stands by opens its listeners only when it
serves, as behind an address that moves with the broker. All of it is gone afterwards.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.cli.up.children import BrokerChild, RunLock
from penstock.cli.up.postgresql import Pair


class FailoverSetup:
    """The servers and the brokers. ``first`` serves until it is killed."""

    def __init__(self) -> None:
        #: PostgreSQL may run as another user, who has to reach it.
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-failover-"))
        self._folder.chmod(0o755)
        self._pair = Pair(self._folder / "postgresql")
        self._second: BrokerChild | None = None

    def start_database(self) -> None:
        """Make and start the primary and its standby. Raises CouldNot."""
        self._pair.start()

    def flags(self, name: str) -> list[str]:
        """Of a broker: a folder of its own, and the journal that is everybody's."""
        return ["--data", str(self._folder / name), "--journal", self._pair.url()]

    def stand_by(self, flags: Sequence[str], log: Path, lock: RunLock) -> None:
        """Start the second broker, and wait until it stands by. Raises CouldNot."""
        self._second = BrokerChild([*self.flags("second"), *flags], log, lock)
        self._second.wait_for_role("standby")

    def lose_broker(self, serving: BrokerChild) -> BrokerChild:
        """Kill the broker that serves, as a loss of power would. Returns the one that takes over."""
        assert self._second is not None
        serving.process.kill()
        self._second.wait_for_role("serving")
        taken_over, self._second = self._second, serving
        return taken_over

    def lose_primary(self) -> None:
        """Kill the database's primary, and promote its standby."""
        self._pair.fail_over()

    def stop(self) -> None:
        """End what is left, and remove everything."""
        if self._second is not None:
            self._second.stop()
        self._pair.remove()
        shutil.rmtree(self._folder, ignore_errors=True)


#: What a demo says, and then does while messages flow.
Loss = tuple[str, Callable[[], None]]
