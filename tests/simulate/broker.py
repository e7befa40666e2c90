"""One simulated broker process: the real engine and journal, with small clients, on an unreliable network.

As in a real process, one task is the event loop and another writes the journal; both wait only for the database.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from greenlet import greenlet

from penstock.core.queue import Connection, Queue
from penstock.core.recovery.table import Table
from penstock.core.state import DeliveryEffect, Effect
from penstock.journal.committer import Staged
from penstock.journal.contract import Checkpoint, OwnedJournal
from penstock.journal.errors import DataLoss, DecisionNeeded, Fenced, JournalOwned, LogError, LogFull
from penstock.journal.format.block import Block
from penstock.journal.postgresql.database import ConnectionLost
from penstock.server.engine.followed_state import FollowedState
from penstock.server.process.opening import Opened, open_engine
from simulate.scheduler import Killed
from support.retaining import retain

if TYPE_CHECKING:
    from simulate.cluster import ClusterWorld

T = TypeVar("T")
MORNING = 1_750_000_000.0


class SimBroker:
    """A process that stands by, takes over, serves, is fenced off, and starts again."""

    def __init__(self, world: ClusterWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.random = Random(world.random.randrange(2**32))
        drift = world.drift
        self._offset = self.random.uniform(-1000.0, 1000.0)
        self._rate = self.random.uniform(1 - drift, 1 + drift)
        self._wall_offset = self.random.uniform(-3.0, 3.0)
        self._tasks: list[greenlet] = []
        #: The time until which the process is frozen.
        self.frozen_until = 0.0
        #: The time until which the network to the database drops everything.
        self.cut_there = self.cut_back = 0.0
        self.dead = False
        #: Whether it has detected lost commits and waits for an operator.
        self.noticed = False
        #: Whether the database has lost something that this broker knew to be committed.
        self.lost_known_events = False
        #: The position up to which it has seen safe blocks as a standby.
        self._seen = 1
        self.journal = world.journal(self)
        self.serving: Serving | None = None

    @property
    def committed(self) -> int:
        """The position below which everything is known to be committed, from its time as owner."""
        return self.serving.committed if self.serving is not None else 1

    @property
    def known(self) -> int:
        """The position below which this broker knows everything to be committed."""
        return max(self._seen, self.committed)

    def note_seen(self, end: int) -> None:
        """Record as safe the block that ends here: the standby has seen its successor."""
        self._seen = max(self._seen, end)

    # Time

    def clock(self) -> float:
        """The process's ``time.monotonic``."""
        return self._offset + self._rate * self.world.scheduler.now

    def wall(self) -> int:
        """The process's wall clock, in microseconds."""
        return int((MORNING + self._wall_offset + self.world.scheduler.now) * 1e6)

    def sleep(self, seconds: float) -> None:
        """Wait; longer if the process is frozen."""
        self.world.scheduler.sleep(seconds)
        while self.frozen_until > self.world.scheduler.now:
            self.world.scheduler.sleep(self.frozen_until - self.world.scheduler.now)
        if self.dead:
            raise Killed

    def freeze(self, seconds: float) -> None:
        """Freeze the process."""
        self.frozen_until = self.world.scheduler.now + seconds

    # The network

    def carry(self, statement: Callable[[], T]) -> T:
        """Carry a statement to the database, and its answer back."""
        if self.dead:
            raise Killed
        world, faults = self.world, self.world.faults
        self.world.scheduler.sleep(faults.latency(self.random))
        if world.scheduler.now < self.cut_there or self.random.random() < faults.before:
            self.sleep(self.random.choice((0.0, 0.5, 3.0)))
            raise ConnectionLost("before it was done")
        if self.random.random() < faults.late:
            run = world.server.run
            world.scheduler.call(self.random.expovariate(1.0), lambda: self._run_abandoned(statement, run))
            self.sleep(self.random.choice((0.0, 0.5, 3.0)))
            raise ConnectionLost("while it was under way")
        found, run = statement(), world.server.run
        self.sleep(faults.latency(self.random))
        gone = run != world.server.run
        if gone or world.scheduler.now < self.cut_back or self.random.random() < faults.after:
            self.sleep(self.random.choice((0.0, 0.5, 3.0)))
            raise ConnectionLost("after it was done")
        return found

    def _run_abandoned(self, statement: Callable[[], object], run: tuple[int, int]) -> None:
        """Let the server run an abandoned statement, if the server is still there."""
        if self.world.server.run == run:
            with suppress(Exception):
                statement()

    # Lifecycle

    def start(self) -> None:
        """Start the process."""
        self.spawn(self._live)

    def spawn(self, task: Callable[[], None]) -> None:
        """Start another task of this process."""
        self._tasks = [each for each in self._tasks if not each.dead]
        self._tasks.append(self.world.scheduler.spawn(task))

    def kill(self) -> None:
        """Kill the process: nothing more comes from it."""
        self.dead = True
        self.serving = None
        for task in self._tasks:
            self.world.scheduler.kill(task)

    def _live(self) -> None:
        while not self.noticed:
            try:
                self.serving = Serving(self, *self._take_over())
                self.serving.run()
            except DecisionNeeded:
                self.noticed = True
                self.world.note_loss()
            except Fenced:
                self.world.fenced += 1
            except (LogError, DataLoss):
                self.world.failures += 1
            self.serving = None
            self.sleep(self.random.expovariate(2.0))

    def _take_over(self) -> tuple[OwnedJournal, Table | None]:
        """Stand by, then take over."""
        standby = Watched(self)
        state = FollowedState(standby)
        while True:
            try:
                follows = self.random.random() < 0.7
                if follows:
                    state.catch_up(self.wall())
                return standby.own(), state.take() if follows else None
            except JournalOwned as owned:
                self.sleep(min(owned.seconds, 5.0) * self.random.uniform(0.2, 1.2) + 0.05)


class Watched:
    """A standby of the journal that records the blocks it has seen, except the last, which may not be safe yet."""

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self._standby = broker.journal.stand_by()
        self._last_end = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._standby, name)

    def catch_up(self) -> Iterator[Block]:
        for block in self._standby.catch_up():
            self._broker.note_seen(self._last_end)
            self._last_end = block.end
            yield block

    def checkpoint(self) -> Checkpoint | None:
        self._last_end = 1
        return self._standby.checkpoint()


class Serving:
    """A term as owner, from the take-over to the loss of the journal."""

    def __init__(self, broker: SimBroker, owned: OwnedJournal, followed: Table | None) -> None:
        self.broker = broker
        self.world = broker.world
        self.random = broker.random
        self.owned = owned
        self._followed = followed
        assert owned.lease is not None
        self.lease = owned.lease
        self._staged: deque[Staged] = deque()
        self._failure: BaseException | None = None
        self._writing = False
        self._ended = False
        #: Deliveries that wait for the lease to be renewed.
        self._held: list[Effect] = []
        self._given: list[int] = []
        self._first = self._confirmed = owned.log.committed
        self._opened: Opened

    def run(self) -> None:
        """Serve until something ends it. Raises LogError."""
        self._opened = open_engine(
            self.owned, self.broker.wall(), self.world.retention, min_free=0, followed=self._followed
        )
        engine = self._opened.engine
        self.epoch = engine.epoch
        if self.broker.lost_known_events:
            self.world.broken(f"{self.broker.name} serves, but knew commits that are lost")
        self._confirmed = self._first = engine.log.committed
        self.world.witness.take_over(self.epoch, self._alive())
        self.world.take_overs += 1
        self._queue = self._make_queue()
        self._connection = self._connect()
        self.broker.spawn(self._write)
        try:
            while not self._ended:
                self.broker.sleep(self.random.expovariate(3.0))
                if self._failure is not None:
                    raise self._failure
                self._turn()
        finally:
            self._ended = True
            with suppress(LogError):
                self.owned.close()

    @property
    def committed(self) -> int:
        """The position below which it has committed everything; 1 before the first commit."""
        committed = self.owned.log.committed
        return committed if committed > self._first else 1

    def _alive(self) -> set[int]:
        found: set[int] = set()
        for queue in self._opened.engine.broker.queues.values():
            found |= {item.position for lane in queue.ready.lanes.values() for item in lane}
            found |= {item.position for item in (*queue.delayed, *queue.dead)}
            found |= set(queue.out)
        return found

    def _make_queue(self) -> Queue:
        broker, now = self._opened.engine.broker, self.broker.wall()
        if "default" not in broker.namespaces:
            broker.create_namespace("default", now)
        return broker.queue("default", "jobs") or broker.create_queue("default", "jobs", now)

    def _connect(self) -> Connection:
        broker = self._opened.engine.broker
        connection = broker.connect(1, b"phpmq 127.0.0.1:1")
        broker.subscribe(connection, self._queue, self.random.randrange(1, 6), self.broker.wall())
        return connection

    # The event loop

    def _turn(self) -> None:
        engine, now = self._opened.engine, self.broker.wall()
        chance = self.random.random()
        if chance < 0.5:
            payloads = [b"%d" % self.world.number() for _ in range(self.random.randrange(1, 4))]
            engine.broker.publish(self._connection, self._queue, payloads, now)
        elif chance < 0.8 and self._given:
            chosen = self.random.sample(self._given, self.random.randint(1, len(self._given)))
            self._given = [each for each in self._given if each not in chosen]
            engine.broker.acknowledge(self._connection, self._queue, chosen, now)
        elif chance < 0.86:
            self._maintain()
        elif chance < 0.88:
            self._hand_over()
            return
        engine.broker.tick(now)
        if not self._staged and not self._writing:
            self._staged.extend(engine.stage(now))
        self._advance()

    def _advance(self) -> None:
        """Confirm committed events to the clients."""
        engine = self._opened.engine
        engine.advance()
        committed = engine.log.committed
        if committed > self._confirmed:
            if not self.broker.lost_known_events:  # otherwise it was committed, and was lost after the answer
                self.world.witness.confirm(self.epoch, self._confirmed, committed)
            self._confirmed = committed
            self.world.confirmations += 1
        self._held += engine.released()
        held, self._held = self._held, []
        for effect in held:
            if isinstance(effect, DeliveryEffect):
                self._deliver(effect)

    def _deliver(self, effect: DeliveryEffect) -> None:
        """Look up the payloads, which may take a while, and only then ask whether they may be delivered."""
        positions = [out.item.position for out in effect.messages if out.item.position in self._queue.out]
        self._opened.engine.payloads(positions)
        if self.broker.clock() >= self.lease.deadline:
            self._held.append(effect)
            return
        for position in positions:
            self.world.witness.deliver(self.epoch, position)
            self._given.append(position)
        self.world.deliveries += len(positions)

    def _maintain(self) -> None:
        """Write a checkpoint or run retention while nothing is being written."""
        self._drain()
        upkeep, now = self._opened.upkeep, self.broker.wall()
        with suppress(LogFull, OSError):
            if self.random.random() < 0.6:
                upkeep.checkpoint(now)
            else:
                retain(upkeep, now)

    def _drain(self) -> None:
        """Wait until nothing is staged or being written."""
        while self._staged or self._writing:
            self.broker.sleep(0.05)
            if self._failure is not None:
                raise self._failure
        self._advance()

    def _hand_over(self) -> None:
        """Switch over as planned: commit everything and give the lease back."""
        self._drain()
        engine = self._opened.engine
        self._staged.extend(engine.stage(self.broker.wall()))
        self._drain()
        self._ended = True
        self.lease.release()

    # The journal's thread

    def _write(self) -> None:
        """Append staged rows; renew the lease while there are none."""
        try:
            while not self._ended:
                if self._staged:
                    self._writing = True
                    self._append(self._staged.popleft())
                    self._writing = False
                else:
                    self.broker.sleep(self.random.uniform(0.0, 0.3))
                    if not self._staged and self.lease.deadline - self.broker.clock() < self.lease.seconds / 2:
                        self.lease.renew()
        except LogError as error:
            self._failure = error

    def _append(self, staged: Staged) -> None:
        while not self._ended:
            try:
                self._opened.engine.write([staged])
                if self.broker.lost_known_events:
                    self.world.broken(f"{self.broker.name} continues, but knew commits that are lost")
                return
            except LogFull:
                self.broker.sleep(0.2)
