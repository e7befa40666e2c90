"""A database with a synchronous standby, brokers that take over from each other, and faulty links between them."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.demo.postgresql import Pair
from support.brokers import FREE, BrokerProcess
from support.databaseproxy import DatabaseProxy, Way, database_proxy
from support.postgres import running_pair

DATABASE = "penstock"
#: The brokers' role, which is not the superuser's.
ROLE, PASSWORD = "brokers", "secret"
#: Seconds after which a wait has failed, even on a busy machine.
PATIENCE = 90.0


def wait_until(what: Callable[[], Any], otherwise: str, patience: float = PATIENCE) -> Any:
    """Poll until the result is true, and return it."""
    deadline = time.monotonic() + patience
    while not (found := what()):
        if time.monotonic() > deadline:
            raise AssertionError(otherwise)
        time.sleep(0.01)
    return found


class Route:
    """One broker's own proxies to both servers of a pair, so that its faults do not disturb other brokers."""

    def __init__(self, pair: Pair, stack: ExitStack) -> None:
        servers = (pair.primary, pair.standby)
        self._proxies: list[DatabaseProxy] = [stack.enter_context(database_proxy(each.port)) for each in servers]

    def url(self, lease: float) -> str:
        """The journal's URL through the proxies."""
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies)
        options = f"target_session_attrs=read-write&sslmode=disable&gssencmode=disable&lease={lease:g}"
        return f"postgresql://{ROLE}:{PASSWORD}@{hosts}/{DATABASE}?{options}"

    def cut(self) -> None:
        """Close all connections; new ones can be made."""
        for proxy in self._proxies:
            proxy.cut()

    def refuse(self) -> None:
        """Refuse every connection."""
        for proxy in self._proxies:
            proxy.refuse()

    def swallow(self, *ways: Way) -> None:
        """Drop all traffic silently."""
        for proxy in self._proxies:
            proxy.swallow(*ways)

    def cut_in(self, statements: int) -> None:
        """Lose the answer to one of the next statements along with its connection."""
        for proxy in self._proxies:
            proxy.cut_at_statement(statements, "after")

    def throttle(self, rate: int) -> None:
        """Limit the bytes per second in each direction; 0: no limit."""
        for proxy in self._proxies:
            proxy.throttle(rate)

    def mend(self) -> None:
        """Remove all faults."""
        self.throttle(0)
        for proxy in self._proxies:
            proxy.accept()
            proxy.release()


class Node(BrokerProcess):
    """A broker on the journal in the database."""

    def __init__(self, folder: Path, route: Route, lease: float, **options: Any) -> None:
        folder.mkdir()
        kokaq = {"address": FREE, "create_queues": True}
        given: dict[str, Any] = {
            "phpmq": [FREE],
            "sspq": [FREE],
            "kokaq": [kokaq],
            "journal": {"url": route.url(lease)},
        }
        super().__init__(folder, **{**given, **options})
        self.route = route

    def ready_file(self) -> dict[str, Any]:
        """Return the contents of its ready file; empty while there is none."""
        try:
            found: dict[str, Any] = json.loads(self.ready.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found if self.running and found["pid"] == self.pid else {}

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self.process is not None and self.process.poll() is None

    @property
    def role(self) -> str:
        """The role it reports."""
        return str(self.ready_file().get("role", ""))

    def place(self, protocol: str) -> str | None:
        """The address where it serves a protocol, if it does."""
        ready = self.ready_file()
        if ready.get("role") != "serving":
            return None
        found = [each["address"] for each in ready["listeners"] if each["protocol"] == protocol]
        return found[0].rpartition("/")[2] if found else None

    def freeze(self) -> None:
        """Send SIGSTOP: the process stops, and its connections stay open."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, which also ends a stopped process."""
        super().kill()
        self.ready.unlink(missing_ok=True)


class Cluster:
    """The database, its proxies and the brokers."""

    def __init__(self, folder: Path, *, lease: float, brokers: int = 2, **options: Any) -> None:
        self.folder = folder
        self.lease = lease
        self._options = options
        self._count = brokers
        self._stack = ExitStack()
        self.nodes: list[Node] = []

    def start(self) -> None:
        """Start the database, then the brokers. One of them serves on return."""
        self.pair = self._stack.enter_context(running_pair())
        self.pair.primary.execute(f"create role {ROLE} login password '{PASSWORD}'")
        self.pair.primary.execute(f"create database {DATABASE} owner {ROLE}")
        for number in range(self._count):
            route = Route(self.pair, self._stack)
            node = Node(self.folder / f"broker{number}", route, self.lease, **self._options)
            self.nodes.append(node)
            self._stack.callback(node.kill)
            node.begin()
        self.wait_for_owner()

    def stop(self) -> None:
        """End the brokers and remove the database."""
        self._stack.close()

    def owner(self) -> Node | None:
        """Return the broker that reports itself as serving."""
        serving = [node for node in self.nodes if node.role == "serving"]
        return serving[0] if serving else None

    def wait_for_owner(self, other_than: Node | None = None) -> Node:
        """Wait until a broker serves."""

        def found() -> Node | None:
            nodes = [node for node in self.nodes if node is not other_than and node.role == "serving"]
            return nodes[0] if nodes else None

        node: Node = wait_until(found, f"no broker serves:\n{self.logs()}")
        return node

    def begin(self) -> None:
        """Start the brokers that are not running."""
        for node in self.nodes:
            if not node.running:
                node.begin()

    def restore(self) -> None:
        """Run all brokers again, with one serving and the rest standing by."""
        for node in self.nodes:
            node.route.mend()
        self.begin()
        roles = ["serving", *["standby"] * (len(self.nodes) - 1)]
        wait_until(lambda: sorted(node.role for node in self.nodes) == roles, f"not recovered:\n{self.logs()}")

    def restore_standby(self) -> None:
        """After a failover: make a new standby of the new primary, in the old one's place and on its port."""
        pair = self.pair
        shutil.rmtree(pair.standby.data)
        pair.standby.copy_of(pair.primary, "standby")
        pair.standby.start()
        pair.make_synchronous()

    def url(self) -> str:
        """The journal's URL without proxies, as the brokers' role."""
        parts = urlsplit(self.pair.url(DATABASE))
        return parts._replace(netloc=f"{ROLE}:{PASSWORD}@{parts.netloc.rpartition('@')[2]}").geturl()

    def logs(self) -> str:
        """Return the last log lines of all brokers, for failure messages."""
        tails = [f"{node.folder.name} ({node.role or 'ended'}): {node.log.read_text()[-1500:]}" for node in self.nodes]
        return "\n".join(tails)
