"""One simulated life of several brokers on one database: take-overs, standbys, and the promises they keep.

The brokers run the real code from the engine down to the database's statements; the network, the clocks, the
database and its standby are simulated, all from one seed. Connections break before, after and in the middle of a
statement, and a statement may run long after its connection is gone; processes freeze for any time, die and
come back; clocks differ and drift; the standby of the database takes over, with every acknowledged commit
(``synchronous``), or without some of them; the database is restored from a backup, or just restarted.

Checks at every change of the database, every confirmation, every delivery and every start:

* No position names two blocks, and blocks of two owners never interleave.
* Every event that an owner confirms is in the database and its synchronous standby, and stays there.
* A message that an owner delivers is committed and not settled, and no other broker has become the owner.
* A new owner knows exactly the messages recorded in the blocks before its epoch.
* A broker that knew commits which the database has lost reports them, also after a restart, and no broker serves
  before an operator has accepted the loss. Brokers report a loss only if confirmed events are missing.
* Once the faults end, a broker serves and confirms.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NoReturn
from unittest.mock import patch

from penstock.journal import segmented_log
from penstock.journal.contract import OwnerOptions
from penstock.journal.postgresql import writer
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import ConnectionLost
from penstock.journal.postgresql.journal import DatabaseJournal
from penstock.journal.postgresql.known_commits import OPERATOR, KnownCommits
from penstock.server.maintenance.retention import Retention
from simulate.broker import MORNING, SimBroker
from simulate.scheduler import Scheduler, TaskLock
from simulate.witness import Backup, Broken, Witness
from support.simdatabase import SimDatabase, SimServer, Tables

SECOND = 1_000_000
#: Seconds of a life, and the seconds without faults at its end in which a broker has to serve.
LIFE = 18.0
CALM = 14.0
LEASE = 3.0


@dataclass
class Faults:
    """The probabilities that a connection breaks before a statement runs, after it, or while it runs."""

    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    #: The probability that a message takes seconds.
    slow: float = 0.0

    def latency(self, random: Random) -> float:
        """Seconds that a message takes, one way."""
        return min(random.expovariate(0.5), 8.0) if random.random() < self.slow else random.expovariate(200.0)


class ClusterWorld:
    """A simulated life, determined by its seed. ``run`` raises ``Broken`` or any other error it meets."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scheduler = Scheduler()
        random = self.random
        self.drift = random.choice((0.0, 0.001, 0.02))
        self._clock_offset = random.uniform(-1e4, 1e4)
        self.server = SimServer(self._clock, synchronous=random.random() < 0.7)
        self.witness = Witness(self.server)
        cut_short = random.choice((0.0, 0.0, 0.02))
        self.server.cuts_short = lambda: random.random() < cut_short
        self.retention = Retention(age=random.choice((0, 5, 100)) * SECOND)
        self.options = OwnerOptions(extent_bytes=random.choice((2_000, 8_000, 100_000)), extent_age=3600 * SECOND)
        bad = random.choice((0.0, 0.01, 0.05))
        self.faults = Faults(bad, bad, random.choice((0.0, bad)), random.choice((0.0, 0.01, 0.05)))
        #: The note each broker keeps in its own folder, by broker name.
        self._folders: dict[str, KnownCommits] = {}
        self._backup: tuple[Tables, Backup] | None = None
        self._deciding = False
        self.brokers = [SimBroker(self, f"broker {number}") for number in range(random.choice((2, 2, 3)))]
        self._numbers, self._claims = count(1), count(1)
        self.take_overs = self.fenced = self.failures = self.noticed = 0
        self.confirmations = self.deliveries = self.fail_overs = self.restores = 0

    def run(self) -> None:
        """Run the whole life."""
        with ExitStack() as stack:
            for module in (writer, segmented_log):
                stack.enter_context(patch.object(module, "RLock", lambda: TaskLock(self.scheduler)))
            for broker in self.brokers:
                broker.start()
            stack.callback(self._end)
            self._plan()
            self.scheduler.run(LIFE)
            self._calm_down()

    def _end(self) -> None:
        for broker in self.brokers:
            broker.kill()

    def number(self) -> int:
        """Return the number of the next message."""
        return next(self._numbers)

    def broken(self, text: str) -> NoReturn:
        """Record a broken promise."""
        raise Broken(text)

    def journal(self, broker: SimBroker) -> DatabaseJournal:
        """Return the journal as a broker opens it."""
        clock = Clock(broker.clock, broker.wall, broker.sleep)
        journal = DatabaseJournal(
            lambda: SimDatabase(self.server, broker.carry),
            where="the database",
            url="postgresql://simulated",
            options=self.options,
            lease=LEASE,
            clock=clock,
            owner=lambda: f"{broker.name}, claim {next(self._claims)}",
            in_thread=False,
        )
        journal._known = self._folders.setdefault(broker.name, journal._known)
        return journal

    def _clock(self) -> float:
        return self._clock_offset + self.scheduler.now

    # Faults

    def _plan(self) -> None:
        """Schedule faults at random times."""
        random = self.random
        misfortunes = (
            self._kill,
            self._freeze,
            self._cut,
            self._fail_over,
            self._fill,
            self._back_up,
            self._restore,
            self._start_again,
        )
        weights = [random.choice((0, 1, 3)) for _ in misfortunes]
        for _ in range(random.randrange(12) if any(weights) else 0):
            self.scheduler.call(random.uniform(0.0, LIFE), random.choices(misfortunes, weights)[0])

    def _kill(self) -> None:
        self._replace(self._victim(), self.random.expovariate(0.5))

    def _replace(self, broker: SimBroker, after: float) -> None:
        """Kill a broker, and start it again after this many seconds with nothing but its folder."""
        broker.kill()
        fresh = SimBroker(self, broker.name)
        self.brokers[self.brokers.index(broker)] = fresh
        self.scheduler.call(after, fresh.start)

    def _freeze(self) -> None:
        self._victim().freeze(self.random.choice((0.5, LEASE * 0.9, LEASE * 1.1, 10.0)) * self.random.uniform(0.9, 1.1))

    def _cut(self) -> None:
        broker, until = self._victim(), self.scheduler.now + self.random.choice((0.5, 2.0, 5.0, 10.0))
        way = self.random.randrange(3)
        if way != 1:
            broker.cut_there = until
        if way != 0:
            broker.cut_back = until

    def _victim(self) -> SimBroker:
        """Choose a broker, mostly the serving one."""
        serving = [broker for broker in self.brokers if broker.serving is not None]
        return self.random.choice(serving if serving and self.random.random() < 0.7 else self.brokers)

    def _fail_over(self) -> None:
        """Promote the database's standby."""
        self.fail_overs += 1
        self._clock_offset += self.random.uniform(-0.1, 0.1)
        self.server.fail_over(self.random.randint(0, self.server.unseen))
        for broker in self.brokers:
            if broker.known > self.witness.head and not self.server.synchronous:
                broker.lost_known_events = True
            elif broker.committed > self.witness.head and not broker.lost_known_events:
                raise Broken(f"{broker.name} knew of committed events that the standby does not have")

    def _back_up(self) -> None:
        self._backup = self.server.tables.copy(), self.witness.back_up()

    def _restore(self) -> None:
        """Restore the last backup. All brokers are stopped, because an owner would keep writing to the database."""
        if self._backup is None:
            return
        self.restores += 1
        tables, backup = self._backup
        for broker in list(self.brokers):
            self._replace(broker, self.random.expovariate(0.5))
        self.witness.restoring = backup
        self.server.restore(tables)

    def _start_again(self) -> None:
        """Nothing is lost, but no broker can know that."""
        self.server.incarnation += 1

    def note_loss(self) -> None:
        """Let an operator accept the loss after a broker has ended over lost commits."""
        self.noticed += 1
        if self.server.synchronous and not self.restores:
            raise Broken("a broker ends over lost commits, although no confirmed one is lost")
        if not self._deciding:
            self._deciding = True
            self.scheduler.call(self.random.uniform(0.0, 3.0), self._decide)

    def _decide(self) -> None:
        """Stop all brokers, accept the loss, and start them."""
        self._deciding = False
        shard = self.server.tables.shard
        if shard is not None and shard.owner == OPERATOR:
            now = int((MORNING + self.scheduler.now) * 1e6)
            with suppress(ConnectionLost):
                self.server.change(lambda tables: tables.accept_loss(OPERATOR, now, self.server.clock()))
        for broker in list(self.brokers):
            if shard is None or self._folders[broker.name].identity != shard.identity:
                del self._folders[broker.name]
            self._replace(broker, self.random.uniform(0.0, 0.5))

    def _fill(self) -> None:
        self.server.full = True
        self.scheduler.call(self.random.uniform(0.5, 5.0), self._empty)

    def _empty(self) -> None:
        self.server.full = False

    def _calm_down(self) -> None:
        """End all faults."""
        self.server.cuts_short = lambda: False
        self.faults.before = self.faults.after = self.faults.late = self.faults.slow = 0.0
        self.server.full = False
        for broker in self.brokers:
            broker.cut_there = broker.cut_back = 0.0
        before = self.confirmations
        awake = max(LIFE, *(broker.frozen_until for broker in self.brokers))
        self.scheduler.run(awake + CALM)
        self.witness.check_confirmed()
        if self.confirmations == before:
            raise Broken("no broker serves although the faults have ended")
