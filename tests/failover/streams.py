"""Spark reads, copies and consumes while brokers take over from each other: the three queries of ``spark.fire.driver``.

Spark finds the Flight endpoint at one address, which forwards to the serving broker like a load balancer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from failover.cluster import Cluster, wait_until
from spark.fire.driver import Life
from spark.fire.killing import PATIENCE, RACE, TOO_BUSY, rows
from spark.fire.story import kill_group
from support.databaseproxy import DatabaseProxy, database_proxy
from support.figures import Difference
from support.sparks import PYTHON_PATH

#: Published over Kokaq: ``in`` is read and copied, ``work`` is consumed.
QUEUES = {"in": "kokaq", "work": "kokaq"}
COPIED = "copied"
#: Messages per batch at the end, when the rest has to be read. A batch in progress keeps its size.
WORK_OFF = 5000


class Streams:
    """A driver that is restarted when Spark itself fails, and its output."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._stack = ExitStack()
        self._ended = threading.Event()
        self._driver: subprocess.Popen[bytes] | None = None
        self._proxy: DatabaseProxy

    def start(self) -> None:
        """Start reading."""
        self._folder.mkdir()
        self._proxy = self._stack.enter_context(database_proxy(0))
        switch = threading.Thread(target=self._switch)
        switch.start()
        self._stack.callback(switch.join)
        self._stack.callback(self._ended.set)
        self._start(finish=False)
        wait_until(lambda: self.keep_up() and (self._folder / "running").exists(), "Spark reads nothing", PATIENCE)

    def stop(self) -> None:
        """End the driver and the proxy."""
        if self._driver is not None:
            kill_group(self._driver)
        self._stack.close()

    def check(self, sent: list[tuple[int, bytes]], consumed: list[tuple[int, bytes]], copied: list[bytes]) -> list[str]:
        """Return the failures: everything must be read, copied and consumed once."""
        pairs: dict[str, tuple[list[Any], list[Any]]] = {
            "read": (rows(self._folder / "read"), sent),
            "copied": (copied, [payload for _, payload in sent]),
            "consumed": (rows(self._folder / "consume"), consumed),
        }
        differences = {name: Difference.between(found, wanted) for name, (found, wanted) in pairs.items()}
        return [f"Spark, {name}: {difference}" for name, difference in differences.items() if difference]

    def finish(self) -> None:
        """Process the remaining messages."""
        while True:
            self._end_driver()
            self._start(finish=True)
            assert self._driver is not None
            if self._driver.wait(3 * PATIENCE) == 0:
                return

    def _switch(self) -> None:
        """Keep the address pointed at the serving broker."""
        while not self._ended.wait(0.05):
            for node in self._cluster.nodes:
                place = node.place("flight")
                if place is not None:
                    self._proxy.target = int(place.rpartition(":")[2])

    def _start(self, *, finish: bool) -> None:
        life = Life(f"grpc://127.0.0.1:{self._proxy.port}", str(self._folder), finish=finish)
        if finish:
            life = msgspec.structs.replace(life, limit=WORK_OFF)
        command = [sys.executable, "-m", "spark.fire.driver", msgspec.json.encode(life).decode()]
        with (self._folder / "driver.log").open("wb") as log:
            self._driver = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": PYTHON_PATH}, start_new_session=True
            )

    def keep_up(self) -> bool:
        """Restart the driver if Spark itself made it fail."""
        assert self._driver is not None
        if self._driver.poll() is not None:
            self._end_driver()
            self._start(finish=False)
        return True

    def _end_driver(self) -> None:
        """Kill the driver. Raises AssertionError if it failed before, unless Spark itself was the cause."""
        assert self._driver is not None
        if self._driver.poll():
            text = (self._folder / "driver.log").read_text(errors="replace")
            assert RACE in text or TOO_BUSY in text, text[-5000:]
        kill_group(self._driver)
