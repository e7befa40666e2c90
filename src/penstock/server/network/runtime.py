"""The running broker: the parts that all sessions share. :mod:`penstock.server.network.turns` drives them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from penstock.core.queue import Connection, Out
from penstock.server.engine.backlog import Backlog
from penstock.server.engine.commits import CommitDriver, CommitPacing
from penstock.server.engine.damaged_messages import DamagedMessages
from penstock.server.engine.engine import Engine
from penstock.server.engine.ids import Ids
from penstock.server.engine.lease_hold import LeaseHold
from penstock.server.limits.state_memory import StateMemory
from penstock.server.logs import Logger
from penstock.server.network.busy_poll import BusyPoll
from penstock.server.network.cold_reads import ColdReads
from penstock.server.network.creation import Creation
from penstock.server.network.health import Health
from penstock.server.network.memory import Memory
from penstock.server.network.peers import Peers, source_of
from penstock.server.network.pollers import Pollers
from penstock.server.network.rounds import Rounds
from penstock.server.network.turns import Turns
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.registry.readers import ReaderTable
from penstock.server.system.cpus import usable_cpus

if TYPE_CHECKING:
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: Bytes of output that may wait for a peer, however many peers there are: less would slow good peers down.
LEAST_OUTPUT: Final = 16 * 1024
#: Requests that may wait for their answer, however many peers there are, and about what each costs meanwhile.
LEAST_REQUESTS: Final = 10
REQUEST_BYTES: Final = 1024


class Runtime:
    """What the sessions of a running broker share. It owns the table of sessions, and the broker's counters."""

    def __init__(
        self,
        options: BrokerOptions,
        engine: Engine,
        commits: CommitDriver,
        log: Logger,
        readers: ReaderTable | None = None,
    ) -> None:
        self.options = options
        self.engine = engine
        self.broker = engine.broker
        self.commits = commits
        self.log = log
        self.readers = readers or ReaderTable(log, engine.broker)
        self.loop = asyncio.get_running_loop()
        self.ids = Ids(engine.log.identity, engine.broker)
        self.started_at = self.now()
        self.counters: Counter[str] = Counter()
        #: By protocol and code.
        self.protocol_errors: Counter[str] = Counter()
        #: Connections by protocol.
        self.connected: Counter[str] = Counter()
        self.sessions: dict[int, AnySession] = {}
        self._next_id = 1
        #: Called when the broker itself is at fault and can't continue.
        self.fail: Callable[[Exception], None] = _raise
        self.memory = Memory(options.limits.memory_bytes)
        self.state_memory = StateMemory(engine, options.limits.state_bytes)
        engine.broker.most_out = options.limits.messages_out_total
        self.peers = Peers(options, log, self.count)
        self.pollers = Pollers()
        self.creation = Creation(options, engine.broker, log, self.now)
        self.busy_poll = BusyPoll(self.loop, usable_cpus())
        self.backlog = engine.backlog = Backlog(engine.log, self.loop.call_soon_threadsafe, self.loop.call_later)
        self.lease_hold = LeaseHold(log, self.count, self._lease_renewed)
        self.health = Health(self.broker, commits, self.lease_hold, self.memory, log)
        self.pacing = CommitPacing(engine, commits, self.now, touched=self.touched, fail=self._fail)
        self.turns = Turns(self)
        self.output = self.turns.output
        self.damaged = DamagedMessages(engine, log, self.now, self.count, self.touched)
        self.cold_reads = ColdReads(engine, self.backlog, self.memory, self.damaged, self.output.wake)
        #: The bytes of output that may wait for one peer to read them, and its requests that may wait for answers.
        self.output_share = self.requests_share = 0
        self._share_out()
        self.rounds = Rounds(self)

    def now(self) -> int:
        """The time in microseconds, Unix time."""
        return time_ns() // 1000

    def count(self, what: str, by: int = 1) -> None:
        """Count something for the operator."""
        self.counters[what] += by

    def count_protocol_error(self, protocol: str, code: str) -> None:
        """Count an error in a peer's bytes."""
        self.count("protocol_errors")
        self.protocol_errors[f"{protocol} {code}"] += 1

    def touched(self) -> None:
        """The broker was given commands: have a turn."""
        self.turns.touched()

    def committed(self) -> None:
        """The journal's thread has done a commit. Call it in the loop."""
        try:
            self.commits.advance()
        except Exception as error:
            self.fail(error)
        self.turns.committed()

    async def durable(self) -> None:
        """Wait until everything that has happened so far is committed."""
        after = self.broker.log.next_position
        self.touched()
        if after > self.broker.committed or self.lease_hold.suspended:
            await self.pacing.wait(after)

    def congestion_changed(self) -> None:
        """Pause reading while too much input waits to be written to disk, and resume it afterwards."""
        if self.memory.congested:
            self.count("congestions")
            unwritten = self.engine.unwritten
            self.log.warning("the disk is slower than the publishers: reading is paused", unwritten=unwritten)
        self.rounds.visit_all(lambda session: session.work())

    def stop(self) -> None:
        """Stop the backlog's thread and all timers."""
        self.backlog.close()
        self.rounds.stop()
        self.turns.stop()
        self.pacing.stop()

    def _lease_renewed(self) -> None:
        self.output.send_all(self.sessions.values())

    def _fail(self, error: Exception) -> None:
        self.fail(error)

    # Sessions

    def admit(self, session: AnySession) -> Connection:
        """Register a session whose peer is ready to talk."""
        source, number = source_of(session.protocol, session.peer), self._next_id
        connection = self.broker.connect(number, source, spends_retries=session.spends_retries)
        self._next_id += 1
        self.sessions[number] = session
        self._share_out()
        self.connected[session.protocol] += 1
        self.count("connections")
        return connection

    def lost(self, session: AnySession) -> None:
        """Forget a session whose peer is gone, and return its messages."""
        self.rounds.unstall(session)
        self.turns.discard(session)
        self.peers.leave(session.peer)
        connection = getattr(session, "connection", None)
        if connection is not None and self.sessions.pop(connection.id, None) is not None:
            self._share_out()
            self.connected[session.protocol] -= 1
            self.pollers.forget(connection)
            if not self.broker.draining:  # messages in flight when the broker stops return by themselves at its start
                try:
                    self.broker.disconnect(connection, self.now(), _unshown)
                except Exception as error:
                    self.fail(error)
            self.touched()

    def _share_out(self) -> None:
        """A peer came or left: compute each peer's limits, a fair share if there are many."""
        limits, peers = self.options.limits, max(1, len(self.sessions))
        self.output_share = min(limits.output_bytes, max(self.memory.most_output // peers, LEAST_OUTPUT))
        requests = self.memory.most_input // REQUEST_BYTES // peers
        self.requests_share = min(limits.pipelined_requests, max(requests, LEAST_REQUESTS))


def _raise(error: Exception) -> None:
    raise error


def _unshown(out: Out) -> bool:
    return not out.shown
