"""What ``penstock up`` runs: a broker and, on Spark, the pipelines that turn its traffic into tables.

::

    lock ─► [PostgreSQL pair] ─► broker ─► [second broker, stands by] ─► Spark with archive and insight

It starts in this order and stops in the reverse one: readers first, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from penstock.demo.broker import BrokerProcess
from penstock.demo.failover import FailoverSetup, Loss
from penstock.demo.pipelines import PipelinesProcess, Task
from penstock.demo.processes import ProcessFailed, RunLock

#: In place of a database's URL: start a PostgreSQL pair, and a second broker on it.
OWN_POSTGRESQL = "postgresql"


class StackOptions(Struct, frozen=True, kw_only=True):
    """Where everything is."""

    data: str
    lake: Path
    #: A database's URL or OWN_POSTGRESQL; None for files in ``data``.
    journal: str | None
    #: Addresses by protocol, and that of flight.
    listeners: Mapping[str, str]
    http: str
    #: Seconds between batches of the pipelines.
    batch_seconds: float


class Stack:
    """All processes of a run. ``report`` receives a line for each step. Methods raise ProcessFailed."""

    def __init__(self, options: StackOptions, report: Callable[[str], None]) -> None:
        self.options = options
        self.ready = False
        self.broker: BrokerProcess
        self.pipelines: PipelinesProcess
        self._report = report
        self._logs = options.lake / "_penstock" / "up"
        self._lock: RunLock
        self._setup: FailoverSetup | None = None
        self._running = ExitStack()

    @property
    def token_file(self) -> Path:
        """The broker's first admin token, if these data are new."""
        return self._logs / "admin-token"

    def start(self) -> None:
        """Start everything, and wait until it runs."""
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(self._logs / "lock")
        except OSError as error:
            raise ProcessFailed(f"the lake {self.options.lake} can't be written to: {error.strerror}") from None
        self._running.callback(self._lock.release)
        self._lock.acquire(self._report)
        self._start_brokers()
        self._report("starting Spark")
        endpoint, lake = self.broker.addresses["flight"], str(self.options.lake)
        task = Task(endpoint=endpoint, lake=lake, batch_seconds=self.options.batch_seconds)
        self.pipelines = PipelinesProcess(task, self._logs / "spark.log", self._lock)
        self._running.callback(self.pipelines.stop)
        self.pipelines.wait()
        self.ready = True

    def stop(self) -> None:
        """Stop what runs."""
        self._running.close()

    def check(self) -> None:
        """Raise if a part has ended by itself."""
        broker = self.broker
        if not broker.running and broker is self.broker:  # after a take-over it is the other one
            raise ProcessFailed(f"the broker has ended:{broker.log_end()}")
        self.pipelines.check()

    @property
    def losses(self) -> list[Loss]:
        """What the demonstration kills while messages flow."""
        setup = self._setup
        if setup is None:
            return []

        def lose_broker() -> None:
            self.broker = setup.lose_broker(self.broker)

        return [
            ("the broker that serves is killed; the other one takes over", lose_broker),
            ("the database's primary is killed, and its standby promoted", setup.lose_primary),
        ]

    def _start_brokers(self) -> None:
        options = self.options
        storage = [f"--data={options.data}", *([f"--journal={options.journal}"] if options.journal else [])]
        if options.journal == OWN_POSTGRESQL:
            self._report("starting PostgreSQL, and a synchronous standby of it")
            self._setup = FailoverSetup()
            self._running.callback(self._setup.stop)
            self._setup.start_database()
            storage = self._setup.storage_flags("first")
        self._report("starting the broker")
        listeners = [f"--{name}={address}" for name, address in options.listeners.items()]
        flags = ["--log-format=text", *storage, *listeners, *self._http_flags()]
        self.broker = BrokerProcess(flags, self._logs / "broker.log", self._lock)
        self._running.callback(self._stop_broker)
        self.broker.wait()
        if "flight" not in self.broker.addresses:
            reason = self.broker.log_end()
            raise ProcessFailed(f"the broker has no Flight endpoint, which the pipelines read from:{reason}")
        if self._setup is not None:
            self._report("starting another broker, which stands by")
            same = [f"--{name}={self.broker.addresses[name].rpartition('://')[2]}" for name in options.listeners]
            flags = ["--log-format=text", *same, "--http=off"]
            self._setup.start_standby(flags, self._logs / "second-broker.log", self._lock)

    def _stop_broker(self) -> None:
        self.broker.stop()  # after a take-over it is another one

    def _http_flags(self) -> list[str]:
        """HTTP where it is installed; it shows the pipelines too."""
        if self.options.http == "off" or find_spec("uvicorn") is None:
            return ["--http=off"]
        return [f"--http={self.options.http},lake={self.options.lake}", f"--admin-token-file={self.token_file}"]
