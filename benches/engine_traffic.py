"""Publish, deliver and acknowledge through core and journal. Run: .venv/bin/python -m benches.engine traffic"""

from __future__ import annotations

import tempfile
from threading import Event
from time import perf_counter

from benches.measure import Figure
from penstock.core.recovery.table import Table
from penstock.core.state import DeliveryEffect
from penstock.journal.contract import Durability, Log, OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.log import FileLog
from penstock.journal.memory import MemoryDisk
from penstock.server.engine.commits import GroupCommit
from penstock.server.engine.engine import Engine

NOW = 1_750_000_000_000_000
PAYLOAD = bytes(100)
#: What one read from a busy connection brings.
BATCH = 500
WINDOW = 5_000
#: How far publishers may be ahead of the disk: what a server's back-pressure allows.
AHEAD = 100_000
#: The logs take turns, and the best round of each counts.
ROUNDS = 4


class Traffic:
    """A publisher and a consumer of one queue. ``commits`` is None for one thread: a commit for each batch."""

    def __init__(self, log: Log, *, thread: bool) -> None:
        self.engine = Engine(log, Table(), NOW)
        self.broker = self.engine.broker
        self.broker.create_namespace("default", NOW)
        self.queue = self.broker.create_queue("default", "q", NOW)
        self.publisher = self.broker.connect(1, b"bench 1")
        self.consumer = self.broker.connect(2, b"bench 2")
        self.wanted = Event()
        self.commits = GroupCommit(self.engine, self.wanted.set, self.fail) if thread else None
        if self.commits:
            self.commits.start()

    def fail(self, error: Exception) -> None:
        raise error

    def commit(self) -> None:
        if self.commits is None:
            self.engine.commit(NOW)
        elif self.engine.broker.log.next_position - self.broker.committed < AHEAD:
            self._go_on(self.commits)
        else:
            self.wanted.wait()
            self.wanted.clear()
            self._go_on(self.commits)

    def _go_on(self, commits: GroupCommit) -> None:
        commits.advance()
        commits.flush(NOW)

    def wait(self, position: int) -> None:
        """Until everything before the position is durable."""
        while self.broker.committed < position:
            if self.commits is None:
                self.engine.commit(NOW)
            else:
                self._go_on(self.commits)
                self.wanted.wait(0.01)
                self.wanted.clear()

    def publish(self, count: int) -> float:
        """Messages a second, until the last one is durable."""
        payloads = [PAYLOAD] * BATCH
        began = perf_counter()
        for _ in range(count // BATCH):
            self.broker.publish(self.publisher, self.queue, payloads, NOW)
            self.commit()
        self.wait(self.broker.log.next_position)
        return count / (perf_counter() - began)

    def consume(self, count: int) -> float:
        """Messages a second, delivered with their payloads and acknowledged, until the last one is durable."""
        began = perf_counter()
        self.broker.subscribe(self.consumer, self.queue, WINDOW, NOW)
        done = 0
        while done < count:
            for effect in self.engine.released():
                assert isinstance(effect, DeliveryEffect)
                positions = [out.item.position for out in effect.messages]
                assert len(self.engine.payloads(positions)) == len(positions)
                done += self.broker.acknowledge(self.consumer, self.queue, positions, NOW)
            self.broker.tick(NOW)
            self.commit()
        self.wait(self.broker.log.next_position)
        return count / (perf_counter() - began)


def flow(durability: Durability | None, count: int) -> tuple[float, float]:
    """Messages a second published, and delivered and acknowledged; on a log in memory without a durability."""
    with tempfile.TemporaryDirectory() as folder:
        disk = MemoryDisk() if durability is None else RealDisk(folder)
        log = FileLog(disk, OwnerOptions(durability or Durability.COMMIT))
        traffic = Traffic(log, thread=durability is Durability.COMMIT)
        rates = traffic.publish(count), traffic.consume(count)
        if traffic.commits:
            traffic.commits.close(NOW)
        log.close()
        return rates


def figures(scale: int) -> list[Figure]:
    logs = {"in memory": None, "files, os": Durability.OS, "files, commit": Durability.COMMIT}
    best = dict.fromkeys(logs, (0.0, 0.0))
    for _ in range(ROUNDS):
        for name, durability in logs.items():
            rates = flow(durability, scale // 50)
            best[name] = max(best[name][0], rates[0]), max(best[name][1], rates[1])
    return [
        Figure(f"{what}, {name}", best[name][index] / 1000, "thousand messages/s")
        for index, what in enumerate(("publish 100 B", "deliver and acknowledge"))
        for name in logs
    ]
