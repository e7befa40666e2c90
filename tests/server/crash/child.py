"""A broker under load, to be killed: ``python -m server.crash.child FOLDER NOTES ROUND SEED DURABILITY``.

It waits for a line on its standard input, opens the folder, and lets random clients publish, consume and settle until
it is killed. As in a real broker, one thread runs group commit, except for small commits, and another runs
checkpoints and plans retention.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from threading import Event
from typing import Any

from penstock.core.policy import SECOND, Policy
from penstock.core.properties import Properties
from penstock.core.queue import Connection, Out, Queue
from penstock.core.state import DeliveryEffect, Effect
from penstock.journal import committer
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.server.engine.commits import SMALL, SMALL_UNSYNCED, GroupCommit
from penstock.server.maintenance.compaction import Step
from penstock.server.maintenance.retention import Retention
from penstock.server.maintenance.upkeep import RemovalPlan
from server.crash.notes import Notes, number_of, payload
from support.journals import open_folder
from support.retaining import carry

#: Message numbers contain the round in which they were published.
ROUND = 2**32
#: With more waiting messages than this, the clients publish less.
BACKLOG = 2_000

#: Small, so that a second of work rolls segments, checkpoints, trims and carries forward.
OPTIONS: dict[str, Any] = {"extent_bytes": 60_000, "reserve": 16_384}
RETENTION = Retention(age=0, bytes=200_000)
SYNC_EVERY = 0.005


def microseconds() -> int:
    return time.time_ns() // 1000


class Child:
    """One life of the broker."""

    def __init__(self, folder: str, notes: str, number: int, seed: int, durability: Durability) -> None:
        self.random = Random(f"{seed} {number}")
        self.next_number = number * ROUND
        self.notes = Notes(notes)
        options = OwnerOptions(durability=durability, **OPTIONS)
        opened = open_folder(RealDisk(folder), microseconds(), options, RETENTION, cache_bytes=100_000)
        self.engine, self.upkeep = opened.engine, opened.upkeep
        self.broker = self.engine.broker
        self.wanted = Event()
        sync_every = SYNC_EVERY if durability is Durability.INTERVAL else None
        at_once = SMALL_UNSYNCED if durability is Durability.OS else SMALL
        self.commits = GroupCommit(
            self.engine, self.wanted.set, self.fail, sync_every=sync_every, at_once=lambda: at_once
        )
        self.connections: list[Connection] = []
        self.next_connection = 1
        #: Messages delivered to a client, and not settled.
        self.given: list[tuple[Connection, Queue, int]] = []
        #: Callbacks that wait until the journal is durable up to a position.
        self.later: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = count()
        self.helper = ThreadPoolExecutor(1)
        self.upkeep_step: Iterator[None] = iter(())
        self.notes.add("U", len(self.upkeep.log.extents()))
        self.notes.flush()

    def fail(self, error: Exception) -> None:
        sys.stderr.write(f"the journal failed: {error!r}\n")
        sys.stderr.flush()
        os._exit(4)

    def run(self) -> None:
        self.commits.start()
        self.make_queues()
        while True:
            now = microseconds()
            for _ in range(self.random.randrange(8)):
                self.step(now)
            self.broker.tick(now)
            self.commits.flush(now)
            self.wanted.wait(0.002)
            self.wanted.clear()
            self.commits.advance()
            for effect in self.engine.released():
                self.deliver(effect)
            while self.later and self.later[0][0] <= self.broker.committed:
                heappop(self.later)[2]()
            self.notes.flush()
            self.keep_up()

    # What may be confirmed or delivered

    def deliver(self, effect: Effect) -> None:
        if isinstance(effect, DeliveryEffect):
            self.show(effect.queue, effect.messages, effect.connection)

    def once_durable(self, position: int, do: Callable[[], None]) -> None:
        """Call back once the journal is durable up to a position."""
        heappush(self.later, (position, next(self.serial), do))

    def show(self, queue: Queue, outs: list[Out], connection: Connection) -> None:
        outs = [out for out in outs if queue.out.get(out.item.position) is out]  # it may have gone back meanwhile
        positions = [out.item.position for out in outs]
        for position, data in zip(positions, self.engine.payloads(positions), strict=True):
            self.note_shown(position, data)
            self.given.append((connection, queue, position))

    def note_shown(self, position: int, data: bytes) -> None:
        number = number_of(data)
        if number is None:
            self.fail(ValueError(f"message {position} is {data!r}"))
        self.notes.add("D", position, number or 0)

    def when_durable(self, kind: str, *values: int) -> None:
        """Note a line once everything so far is durable."""
        self.once_durable(self.broker.log.next_position, lambda: self.notes.add(kind, *values))

    # Clients

    def make_queues(self) -> None:
        now = microseconds()
        if "default" not in self.broker.namespaces:
            self.broker.create_namespace("default", now)
        rules = (Policy(), Policy(max_deliveries=3), Policy(default_ttl=SECOND))
        for number, policy in enumerate(rules):
            if self.broker.queue("default", f"q{number}") is None:
                self.broker.create_queue("default", f"q{number}", now, policy)

    def step(self, now: int) -> None:
        queue = self.random.choice(list(self.broker.queues.values()))
        if len(self.connections) < 4 or self.random.random() < 0.005:
            self.connect(queue, now)
        connection = self.random.choice(self.connections)
        chance = self.random.random()
        if chance < 0.45:
            if queue.depth < BACKLOG or self.random.random() < 0.1:
                self.publish(connection, queue, now)
        elif chance < 0.85:
            self.settle_some(now)
        elif chance < 0.92:
            self.pop(connection, queue, now)
        elif chance < 0.96:
            self.broker.receive(connection, queue, now, dead=self.random.random() < 0.7)
        else:
            self.disturb(connection, queue, now)

    def connect(self, queue: Queue, now: int) -> None:
        spends = self.random.random() < 0.3
        connection = self.broker.connect(
            self.next_connection, b"crash %d" % self.next_connection, spends_retries=spends
        )
        self.next_connection += 1
        self.connections.append(connection)
        self.broker.subscribe(connection, queue, self.random.randrange(1, 60), now)

    def publish(self, connection: Connection, queue: Queue, now: int) -> None:
        numbers = range(self.next_number, self.next_number + self.random.choice((1, 1, 5, 40)))
        self.next_number = numbers.stop
        done = self.broker.publish(
            connection,
            queue,
            list(map(payload, numbers)),
            now,
            Properties(
                ttl=self.random.choice((None, None, None, SECOND // 2)),
                priority=self.random.choice((0, 0, 0, 7)),
                delay=self.random.choice((0, 0, 0, SECOND // 10)),
                retries=self.random.choice((255, 255, 2)),
            ),
        )
        for offset in range(done.accepted):
            position, number = done.first + offset, numbers[offset]
            self.once_durable(done.first + done.accepted, partial(self.notes.add, "P", position, number))

    def settle_some(self, now: int) -> None:
        if not self.given:
            return
        at = self.random.randrange(len(self.given))
        connection, queue = self.given[at][:2]
        mine = [each for each in self.given if each[0] is connection and each[1] is queue]
        chosen = self.random.sample(mine, self.random.randint(1, len(mine)))
        gone = set(chosen)
        self.given = [each for each in self.given if each not in gone]
        held = {position for position, out in connection.out.items() if out.queue is queue}
        positions = [position for _, _, position in chosen if position in held]
        chance = self.random.random()
        if chance < 0.85:
            if self.broker.acknowledge(connection, queue, positions, now):
                self.when_durable("S", *positions)
        elif chance < 0.9:
            self.broker.reject(connection, queue, positions, now)
        else:
            for position in positions:
                give_back = self.broker.release if chance < 0.95 else self.broker.requeue
                give_back(connection, queue, position, now)

    def pop(self, connection: Connection, queue: Queue, now: int) -> None:
        popped, _ = self.broker.pop(connection, queue, now)
        if popped:
            position = popped[0].position

            def show() -> None:
                self.note_shown(position, self.engine.payloads([position])[0])
                self.notes.add("S", position)

            self.once_durable(self.broker.log.next_position, show)

    def disturb(self, connection: Connection, queue: Queue, now: int) -> None:
        """Run a rare command."""
        chance = self.random.random()
        if chance < 0.1:
            self.connections.remove(connection)
            self.broker.disconnect(connection, now)
        elif chance < 0.5:
            self.broker.redrive(
                connection, queue, now, limit=20, to=self.random.choice([None, *self.broker.queues.values()])
            )
        elif chance < 0.55:
            self.purge(connection, queue, now)

    def purge(self, connection: Connection, queue: Queue, now: int) -> None:
        lanes = [queue.dead] if self.random.random() < 0.7 else [*queue.ready.lanes.values(), queue.delayed]
        positions = [item.position for lane in lanes for item in lane]
        self.notes.add("X", *positions)
        self.notes.flush()
        (self.broker.purge_dead if lanes[0] is queue.dead else self.broker.purge)(connection, queue, now)
        self.when_durable("S", *positions)

    # Maintenance

    def keep_up(self) -> None:
        """Continue running maintenance, or sometimes begin a new task."""
        if next(self.upkeep_step, self) is self and self.random.random() < 0.02:
            self.upkeep_step = self.retention() if self.random.random() < 0.6 else self.checkpoint()

    def checkpoint(self) -> Iterator[None]:
        yield from self.wait_for(self.helper.submit(self.upkeep.checkpoint, microseconds()))

    def retention(self) -> Iterator[None]:
        planned: Future[RemovalPlan] = self.helper.submit(self.upkeep.plan, microseconds())
        yield from self.wait_for(planned)
        plan = planned.result()
        for step in plan.steps:
            yield from self.give_back(plan, step)
        self.upkeep.compaction.forget_places(plan.table)

    def give_back(self, plan: RemovalPlan, step: Step) -> Iterator[None]:
        for _ in carry(self.upkeep, plan, step, microseconds()):
            carried = self.broker.log.next_position
            while self.broker.committed < carried:
                yield
        trimmed: Future[None] = Future()
        self.commits.call(lambda: self.upkeep.compaction.trim(step.before))
        self.commits.call(lambda: trimmed.set_result(None))
        yield from self.wait_for(trimmed)

    def wait_for(self, future: Future[Any]) -> Iterator[None]:
        while not future.done():
            yield
        future.result()


def main(arguments: list[str]) -> None:
    folder, notes, number, seed, durability = arguments
    if int(number) % 3:
        committer.QUICK = 0.1  # so that small commits are written without the thread on a busy disk too
    sys.stdin.readline()
    Child(folder, notes, int(number), int(seed), Durability[durability.upper()]).run()


if __name__ == "__main__":
    main(sys.argv[1:])
