"""``penstock up``: a broker, and Spark pipelines that turn what flows through it into tables, with one command.

::

    children    the processes
    console     the link that logs in to the web console
    driver      the process with Spark; lines are the messages to and from it
    demo        sample traffic, and the tables it becomes
    traffic     that traffic, through all three protocols
    failover    the demo with a broker and a database server that are killed
    postgresql  a PostgreSQL with a synchronous standby, where the journal is to be in one and none is given
    agreement   whether clients' counts, journal and tables say the same
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from penstock.cli.errors import FAILED, REFUSED, WRONG_USE, CommandError
from penstock.cli.output import json_option, note, print_json, say
from penstock.cli.up.children import BrokerChild, CouldNot, PipelinesChild, RunLock
from penstock.cli.up.console import LoginLink, log_in
from penstock.cli.up.failover import FailoverSetup, Loss
from penstock.cli.up.lines import Task
from penstock.protocols import protocols

#: In place of a URL: bring a PostgreSQL along.
OWN = "postgresql"
#: Where the extras come from, by the module that shows whether they are there.
EXTRAS = {"pyspark": "spark", "pyarrow": "flight"}


def listener_options(command: Any) -> Any:
    """An option for the listener of each protocol."""
    for protocol in reversed(protocols().values()):
        text = f"Speak {protocol.title} here. [default: {protocol.default_address}]"
        add = click.option(f"--{protocol.name}", default=protocol.default_address, metavar="ADDR", help=text)
        command = add(command)
    return command


@click.command("up", short_help="Run a broker and the pipelines that turn its traffic into tables.")
@click.option("--data", default="./penstock-data", metavar="DIR", help="The broker's data. [default: ./penstock-data]")
@click.option("--lake", default="./penstock-lake", metavar="DIR", help="The tables. [default: ./penstock-lake]")
@click.option(
    "--journal",
    metavar="URL",
    help="A database for the journal. With --demo also `postgresql`: one of our own, with a standby and two brokers, "
    "of which some are killed. [default: files in the data folder]",
)
@listener_options
@click.option("--flight", default="127.0.0.1:8815", metavar="ADDR", help="Arrow Flight. [default: 127.0.0.1:8815]")
@click.option("--http", default="127.0.0.1:9180", metavar="ADDR", help="API and console. [default: 127.0.0.1:9180]")
@click.option(
    "--every", default=2.0, type=click.FloatRange(0.1, 3600), metavar="S", help="Seconds between batches. [default: 2]"
)
@click.option("--demo", is_flag=True, help="Send sample traffic, show the tables it becomes, check them, and end.")
@json_option
def command(**flags: Any) -> int:
    """Run a broker with all protocols, and the pipelines archive and insight on local Spark.

    Everything that flows through the queues becomes tables in the lake, and a report in
    LAKE/insight/report.html. Ctrl-C stops everything in order; started again, it goes on where it was.

    For production, run the parts by themselves: `penstock serve` and `penstock pipeline`, on your own Spark.

    \b
    Examples:
      penstock up
      penstock up --demo
      penstock up --demo --journal postgresql
      penstock up --data /var/lib/penstock --lake /srv/lake --every 30

    Exit codes: 0 done, or stopped; 1 failed, or the demo's numbers do not agree; 2 wrong use; 3 something did not
    start; 130 Ctrl-C during the demo.
    """
    wanted = EXTRAS | ({"psycopg": "postgresql"} if flags["journal"] else {})
    missing = [extra for module, extra in wanted.items() if find_spec(module) is None]
    if missing:
        hint = f"pip install 'penstock[{','.join(missing)}]'"
        raise CommandError("Spark, Arrow or psycopg is not installed", hint, exit_code=REFUSED)
    if flags["journal"] == OWN and not flags["demo"]:
        hint = "name your own, as in --journal postgresql://mq@db.example.com/penstock"
        raise CommandError("a PostgreSQL of our own is for --demo, and gone after it", hint, exit_code=WRONG_USE)
    processes = Processes(flags)
    try:
        return processes.run()
    except CouldNot as error:
        error.exit_code = FAILED if processes.are_up else REFUSED
        raise
    finally:
        processes.stop()


class Processes:
    """Everything that runs, from the first process to the last."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self._flags = flags
        self._setup: FailoverSetup | None = None
        lake = flags["lake"] if flags["journal"] != OWN else f"{flags['lake']}-{secrets.token_hex(3)}"
        self.lake = Path(lake).absolute()  # one journal, one lake
        self.are_up = False
        self._login: LoginLink | None = None
        self._stopping = threading.Event()
        self._running: list[Callable[[], None]] = []

    def run(self) -> int:
        """Start, and run until a signal comes or the demo is over. Returns the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._stopping.set())
        self._start()
        if self._flags["demo"]:
            from penstock.cli.up.demo import demo  # noqa: PLC0415 - needs pyarrow

            return demo(self)
        self._tell_what_to_try()
        while not self._stopping.wait(0.5):
            self.check()
        return 0

    @property
    def interrupted(self) -> bool:
        """Somebody wants it to end."""
        return self._stopping.is_set()

    @property
    def as_json(self) -> bool:
        """Whether programs read the output."""
        return bool(self._flags["as_json"])

    def note(self, text: str) -> None:
        """A line about what is being done, for people."""
        if not self.as_json:
            note(text)

    def report(self, text: str) -> None:
        """A step is about to be taken. Raises InterruptedError if it should not."""
        if self.interrupted:
            raise InterruptedError
        self.note(text)

    def check(self) -> None:
        """Raise CouldNot if a part has ended by itself."""
        broker = self.broker
        if not broker.running and broker is self.broker:  # it is another one after a take-over
            raise CouldNot(f"the broker has ended:{self.broker.log_end()}")
        self.pipelines.check()

    def stop(self) -> None:
        """Stop what runs, in the order that loses nothing: first who reads, then who is read from."""
        if self.are_up:
            self.note("stopping")
        while self._running:
            self._running.pop()()

    def _start(self) -> None:
        self._logs = self.lake / "_penstock" / "up"
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(self._logs / "lock")
        except OSError as error:
            raise CouldNot(f"the lake {self.lake} can't be written to: {error.strerror}") from None
        self._running.append(self._lock.close)
        self._lock.take(self.note)
        self._start_broker()
        self._make_login()
        self.note("starting Spark")
        self._start_pipelines()
        self.are_up = True

    def _start_broker(self) -> None:
        if self._flags["journal"] == OWN:
            self.note("starting PostgreSQL, and a synchronous standby of it")
            self._setup = FailoverSetup()
            self._running.append(self._setup.stop)
            self._setup.start_database()
        self.note("starting the broker")
        flags = [part for name in (*protocols(), "flight") for part in self._flag(name)] + self._http()
        self.broker = BrokerChild([*self._storage(), *flags], self._logs / "broker.log", self._lock)
        self._running.append(self._stop_broker)
        self.broker.wait()
        if self._setup is not None:
            self.note("starting another broker, which stands by")
            there = [part for name in (*protocols(), "flight") for part in (f"--{name}", self._address(name))]
            self._setup.stand_by([*there, "--http", "off"], self._logs / "second-broker.log", self._lock)

    def _stop_broker(self) -> None:
        self.broker.stop()  # the one that serves by then

    def _storage(self) -> list[str]:
        """Where the journal is."""
        if self._setup is not None:
            return self._setup.flags("first")
        url = self._flags["journal"]
        return [*self._flag("data"), *(["--journal", url] if url else [])]

    def _address(self, name: str) -> str:
        """Where the broker listens, as a flag says it."""
        return self.broker.addresses[name].rpartition("://")[2]

    @property
    def losses(self) -> list[Loss]:
        """What the demo takes away while messages flow."""
        setup = self._setup
        if setup is None:
            return []

        def lose_broker() -> None:
            self.broker = setup.lose_broker(self.broker)

        return [
            ("the broker that serves is killed; the other one takes over", lose_broker),
            ("the database's primary is killed, and its standby promoted", setup.lose_primary),
        ]

    def _start_pipelines(self) -> None:
        endpoint = self.broker.addresses["flight"]
        task = Task(endpoint=endpoint, lake=str(self.lake), seconds=self._flags["every"])
        self.pipelines = PipelinesChild(task, self._logs / "spark.log", self._lock)
        self._running.append(self.pipelines.stop)
        self.pipelines.wait()

    def _flag(self, name: str) -> tuple[str, str]:
        return f"--{name}", self._flags[name]

    def _http(self) -> list[str]:
        """HTTP where it is installed. It shows the pipelines too; its first token is for the login link."""
        address = self._flags["http"]
        if address == "off" or find_spec("uvicorn") is None:
            return ["--http", "off"]
        return ["--http", f"{address},lake={self.lake}", "--admin-token-file", str(self._token_file)]

    @property
    def _token_file(self) -> Path:
        return self._logs / "admin-token"

    def _make_login(self) -> None:
        """A way into the console until we stop, if there is one."""
        address = self.broker.addresses.get("http")
        self._login = log_in(address, self._token_file) if address is not None else None
        if self._login is not None:
            self._running.append(self._login.revoke)

    def _console(self) -> list[str]:
        """What stands first of all that can be tried."""
        if self._login is not None:
            return ["See and steer it in a browser; this link logs in until Ctrl-C:", f"  {self._login.link}", ""]
        if "http" in self.broker.addresses:
            return ["See and steer it in a browser, with an admin token:", f"  {self.broker.addresses['http']}/", ""]
        return []

    def _tell_what_to_try(self) -> None:
        addresses = self.broker.addresses
        if self.as_json:
            console = {"console": self._login.link} if self._login is not None else {}
            facts = {"lake": str(self.lake), "spark": self.pipelines.spark, "pid": os.getpid()}
            print_json({"addresses": addresses, **console, **facts})
            return
        here, lake = _place_of_commands(), self._flags["lake"]
        python = f"{here}python"
        listed = "   ".join(f"{name} {where}" for name, where in addresses.items())
        say(
            "",
            f"broker     {listed}",
            f"           data in {self._flags['data']}",
            f"pipelines  archive and insight, on Spark {self.pipelines.spark}, every {self._flags['every']:g} s",
            f"           tables in {lake}, report in {lake}/insight/report.html",
            "",
            *self._console(),
            "Try, in another terminal:",
            f"  {here}penstock send phpmq://{addresses['phpmq']}/jobs hello world",
            f"  {here}penstock receive kokaq://{addresses['kokaq']}/default/jobs --count 1",
            f'  {python} -c "{reading_line(lake)}"',
            "",
            "Ctrl-C stops everything.",
        )


def reading_line(lake: str) -> str:
    """A line of Python that shows the archive: of Delta Lake, or of plain Parquet."""
    folder = Path(lake, "messages")
    if folder.exists() and not (folder / "_delta_log").exists():
        return f"import pandas; print(pandas.read_parquet('{lake}/messages'))"
    return f"import deltalake; print(deltalake.DeltaTable('{lake}/messages').to_pandas())"


def _place_of_commands() -> str:
    """What to write before the name of a command of ours, so that a shell finds it: nothing, or a folder."""
    folder = Path(sys.executable).parent
    found = shutil.which("penstock")
    return "" if found and Path(found).parent == folder else f"{os.path.relpath(folder)}/"
