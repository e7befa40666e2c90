"""The running broker: the event loop's side of the engine, and everything sessions share.

A *turn* of the loop: sessions decode what was read and give the broker its commands; then, once for all of them, what
is staged is committed, effects and answers that are free to go are handed to their sessions, and every session writes
what it has in one piece. A large commit is left to the journal's thread; when that reports it, what waited for it is
released, in another turn. What nobody waits for gathers for a moment before it is committed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Final

from penstock.core.queue import Connection, Out
from penstock.core.state import DeliveryEffect
from penstock.journal.contract import Lease
from penstock.journal.errors import LogAway, LogDenied, LogFull
from penstock.server.engine.backlog import Backlog
from penstock.server.engine.commits import CommitDriver, CommitWaiters
from penstock.server.engine.damaged_messages import DamagedMessages
from penstock.server.engine.engine import Engine
from penstock.server.engine.ids import Ids
from penstock.server.limits.state_memory import StateMemory
from penstock.server.logs import Logger
from penstock.server.network.busy_poll import BusyPoll
from penstock.server.network.cold_reads import ColdReads
from penstock.server.network.creation import Creation
from penstock.server.network.memory import TURN_BYTES, Memory
from penstock.server.network.peers import Peers, source_of
from penstock.server.network.pollers import Pollers
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.registry.readers import ReaderTable
from penstock.server.system.cpus import usable_cpus

if TYPE_CHECKING:
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: How often refused publishes are tried again, and late peers looked for.
ROUND: Final = 0.25
#: Sessions that are looked at in one go, in a round or when all of them are read from again.
ROUND_SESSIONS: Final = 200
#: Sessions that may give answers, or write, in one turn. The next turn goes on.
TURN_SESSIONS: Final = 500
#: Work between two turns, for all sessions together, and for one where very many wait. A frame that is decoded, a frame
#: that is handled, and so many bytes that are decoded count as one each.
TURN_WORK: Final = 2_000
LEAST_WORK: Final = 2
WORK_BYTES: Final = 1024
#: Output that may wait for a peer, however many there are: less would slow good peers down.
LEAST_OUTPUT: Final = 16 * 1024
#: Requests that may wait for their answer, however many peers there are, and about what each costs meanwhile.
LEAST_REQUESTS: Final = 10
REQUEST_BYTES: Final = 1024
#: Seconds until events are committed that nobody waits for, and bytes of them that are at once.
PAUSE: Final = 0.005
MANY_BYTES: Final = 64 * 1024
#: What is said while a journal in a database can't be written. The reason, with names and addresses, is in the log.
_AWAY: Final = "the database does not answer: nothing is confirmed until it does"
_DENIED: Final = "the database turns this broker away (the log says why): nothing is confirmed until it takes commits"


class Runtime:
    """What the sessions of a running broker share."""

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
        self._commit_waiters = CommitWaiters()
        self.log = log
        self.readers = readers or ReaderTable(log, engine.broker)
        self.ids = Ids(engine.log.identity, engine.broker)
        self.loop = asyncio.get_running_loop()
        self.backlog = engine.backlog = Backlog(engine.log, self.loop.call_soon_threadsafe, self.loop.call_later)
        self.busy_poll = BusyPoll(self.loop, usable_cpus())
        self.sessions: dict[int, AnySession] = {}
        #: Those of them that ask for messages again and again.
        self.pollers = Pollers()
        #: Sessions with a publish that was refused.
        self.stalled: set[AnySession] = set()
        #: Sessions that have read in this turn, and may leave it without an answer: see ``Session.acknowledge``.
        self.unanswered: list[AnySession] = []
        #: Sessions with answers that wait for a commit.
        self.awaiting: dict[AnySession, None] = {}
        #: Sessions with input to work on in the next turn, and how much of TURN_WORK is left until then.
        self.unworked: dict[AnySession, None] = {}
        self.work_left = TURN_WORK
        #: What sessions hold for their peers.
        self.memory = Memory(options.limits.memory_bytes)
        self.damaged = DamagedMessages(engine, log, self.now, self.count, self.touched)
        self.cold_reads = ColdReads(engine, self.backlog, self.memory, self.damaged, self.wake)
        #: Output, and requests, of one peer that may wait: for it to take, and for their answers.
        self.output_share = self.requests_share = 0
        self._share_out()
        #: Bytes of output that may still be prepared in this turn.
        self.output_left = TURN_BYTES
        self.state_memory = StateMemory(engine, options.limits.state_bytes)
        self.peers = Peers(options, log, self.count)
        self.creation = Creation(options, engine.broker, log, self.now)
        engine.broker.most_out = options.limits.messages_out_total
        self._received = 0
        #: Too much waits to be written to disk: nobody is read from.
        self.congested = False
        #: Why the journal can't be kept small for now, if that is so.
        self.upkeep_trouble = ""
        self.counters: Counter[str] = Counter()
        #: By protocol and code, and connections by protocol.
        self.protocol_errors: Counter[str] = Counter()
        self.connected: Counter[str] = Counter()
        self.started_at = self.now()
        #: The journal's, where others may take it over.
        self.lease: Lease | None = None
        #: It has run out, or is lost for good: nothing leaves.
        self.holding = False
        self._lease_is_lost = False
        #: Why the last commit had to wait, if it has to.
        self._stuck: LogFull | None = None
        #: Why the lease could not be renewed the last time; None if it was.
        self.unrenewed: LogFull | None = None
        #: When bytes last came from anybody, on the loop's clock.
        self.received_at = 0.0
        #: What to do when the broker itself is at fault, and can't go on.
        self.fail: Callable[[Exception], None] = self._raise
        self._next_id = 1
        self._dirty: dict[AnySession, None] = {}
        #: Something has happened since sessions were last asked for answers; so many of them are still to be asked.
        self._news = self._turn_due = False
        self._unasked = 0
        #: When what nobody waits for is committed; None: there is no such thing.
        self._pause: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._round = self.loop.call_later(ROUND, self._do_round)

    def now(self) -> int:
        """The time, as the broker counts it."""
        return time_ns() // 1000

    def count(self, what: str, by: int = 1) -> None:
        """Count something for the operator."""
        self.counters[what] += by

    def trouble(self) -> str:
        """Why the broker is not well, in a few words; empty if it is."""
        if self.broker.draining:
            return "shutting down"
        if isinstance(self.commits.full, LogDenied) or (self.holding and isinstance(self.unrenewed, LogDenied)):
            return _DENIED
        if self.holding or isinstance(self.commits.full, LogAway):
            return _AWAY
        if self.commits.full is not None:
            return "the disk is full: nothing is confirmed until there is room"
        if self.broker.disk_full:
            return "the disk is nearly full: publishing is refused"
        if self.broker.memory_full:
            return "the queues take too much memory: publishing is refused"
        if self.congested:
            return "the disk is slower than the publishers"
        return f"upkeep fails: {self.upkeep_trouble}" if self.upkeep_trouble else ""

    # Turns

    def touched(self) -> None:
        """The broker was given commands: see to it at the end of this turn."""
        self._news = True
        if not self._turn_due:
            self._go_on()

    def dirty(self, session: AnySession) -> None:
        """The session has something to send at the end of this turn."""
        self._dirty[session] = None
        if not self._turn_due:
            self._go_on()

    def _go_on(self) -> None:
        """Have another turn, once others have had theirs."""
        self._turn_due = True
        self.loop.call_soon(self.turn)

    def _turn_unless_due(self) -> None:
        """Have a turn now; one that is due does as well, and two in one round of the loop would do twice the work."""
        if not self._turn_due:
            self.turn()

    def turn(self) -> None:
        """The end of a turn: see the module's description. What is left, or came of it, is for another one."""
        self._turn_due = True  # as long as it lasts: what it leaves is seen to at its end
        left = False
        try:
            left = self._turn()
        except Exception as error:  # sessions answer for their own faults; this one is the broker's
            self.fail(error)
        self.backlog.new_turn()
        self._turn_due = False
        if left:
            self._go_on()
        elif self.engine.writing:
            self.busy_poll.wait()
        else:
            self.busy_poll.idle()

    def _turn(self) -> bool:
        """Returns whether there is something for another turn."""
        self.work_left = TURN_WORK
        if self.unworked:
            self._work()
        now = self.now()
        if self.lease is not None and not self.lease_holds(self.lease):
            self.commits.flush(now)  # a commit renews it
            return False
        self._schedule(self.broker.tick(now))
        self.engine.collect()
        self._commit(now)
        self._tell()
        self._answer()
        self._send()
        if self.unanswered:
            self._acknowledge()
        self._watch_congestion()
        return self._news or self._unasked > 0 or self._has_more()

    def _has_more(self) -> bool:
        return bool(self._dirty or self.unworked) or self.memory.can_go_on

    def bytes_arrived(self) -> float:
        """Note that a session reads. Returns the time on the loop's clock."""
        self.received_at = now = self.loop.time()
        return now

    def stall(self, session: AnySession) -> None:
        """A publish of the session was refused: try it again in the next round."""
        self.stalled.add(session)

    def unstall(self, session: AnySession) -> None:
        """The session has no refused publish any more."""
        self.stalled.discard(session)

    def work_later(self, session: AnySession) -> None:
        """The session has input to work on once others have had their turn. However often it is said, that is once."""
        self.unworked[session] = None
        if not self._turn_due:
            self._go_on()

    def _work(self) -> None:
        """Let sessions go on with their input, first come, first served; where many wait, each does a little."""
        share = max(LEAST_WORK, TURN_WORK // len(self.unworked))
        for session in list(islice(self.unworked, TURN_SESSIONS)):
            if self.work_left <= 0:
                break
            if session in self.unworked:
                del self.unworked[session]
                session.work_on(share)

    def _commit(self, now: int) -> None:
        """See that what is staged is committed, in a moment if nobody waits for it."""
        log = self.broker.log
        if not log.staged:
            return
        if self.awaiting or self.engine.awaited or log.size > MANY_BYTES or self._commit_waiters.waiting:
            self.commits.flush(now)
        elif self._pause is None:
            self._pause = self.loop.call_later(PAUSE, self._commit_anyway)

    def _commit_anyway(self) -> None:
        """The pause is over. What is committed on return has a turn, as one that the journal's thread tells of has."""
        self._pause = None
        before = self.broker.committed
        try:
            self.commits.flush(self.now())
        except Exception as error:
            self.fail(error)
        if self.broker.committed > before:
            self.touched()

    def lease_holds(self, lease: Lease) -> bool:
        """Whether something may be handed out. It leaves no event by which the journal would notice another owner."""
        holds = monotonic() < lease.deadline and not self._lease_is_lost
        if holds == self.holding:
            self.holding = not holds
            if not holds:
                self.count("leases_run_out")
                self.log.error("the lease on the journal has run out: nothing is handed out until it is renewed")
            else:
                self.log.warning("the lease on the journal is renewed: everything goes on")
                self._dirty |= dict.fromkeys(self.sessions.values())
        return holds

    def lose_lease(self) -> None:
        """Hand out nothing any more, whatever is still done: another broker may have taken over."""
        self._lease_is_lost = self.holding = self.lease is not None

    def give_up(self, error: Exception) -> None:
        """Nothing more gets committed: tell those who wait for it in the loop."""
        self._commit_waiters.give_up(error)

    def _send(self) -> None:
        """Let sessions write, first come, first served, as many as may be in one turn."""
        self._begin_output()
        for session in list(islice(self._dirty, TURN_SESSIONS)):
            if session in self._dirty:
                del self._dirty[session]
                session.flush()
            if self.output_left <= 0:
                break

    def _acknowledge(self) -> None:
        """Do not let peers wait for the acknowledgement of what no answer follows: one that is due carries it."""
        for session in self.unanswered:
            if session.unanswered and not (session.closing or session.answers_due):
                session.acknowledge()
        self.unanswered.clear()

    def committed(self) -> None:
        """A commit is done. Called in the loop's thread."""
        self._news = True
        try:
            self.commits.advance()
        except Exception as error:
            self.fail(error)
        self._turn_unless_due()

    async def durable(self) -> None:
        """Wait until everything that has happened so far is committed."""
        after = self.broker.log.next_position
        self.touched()
        if after > self.broker.committed or self.holding:
            await self._commit_waiters.wait(after)

    def filled(self, error: LogFull | None) -> None:
        """A commit waits: the disk is full, or the database away; or (None) it is done. Called in the loop's thread."""
        if isinstance(error, LogAway):  # that is over soon, or another broker takes over: publishers just wait
            self.log.error(_DENIED if isinstance(error, LogDenied) else _AWAY, reason=str(error))
        elif error is not None:
            self.broker.disk_full = True
            self.log.error("the disk is full: nothing is confirmed until there is room", reason=str(error))
        elif isinstance(self._stuck, LogAway):
            self.log.warning("the database answers again: everything goes on")
        else:
            self.log.warning("there is room on the disk again: everything goes on")
        self._stuck = error

    def _tell(self) -> None:
        if self._commit_waiters.waiting:
            self._commit_waiters.release(self.broker.committed)
        for effect in self.engine.released():
            session = self.sessions.get(effect.connection.id)
            if session is None:
                continue
            if isinstance(effect, DeliveryEffect):
                session.deliver(effect)
            else:
                session.no_message(effect.queue)

    def _answer(self) -> None:
        """Let sessions give the answers that waited for the log, and go on with what waited for those.

        With very many of them, or much to prepare, some are asked in each turn, in rotation, until all were since there
        was news.
        """
        self._begin_output()
        self._let_next_go_on()
        if self._news:
            self._news, self._unasked = False, len(self.awaiting)
        if not self._unasked:
            return
        asked = list(islice(self.awaiting, min(TURN_SESSIONS, self._unasked)))
        done = 0
        for session in asked:
            if self.output_left <= 0:
                break
            done += 1
            self._release(session)
            if session.ending and not session.answers_due:
                session.end()
            elif session.inbox:
                session.work()
        if done == len(asked) < TURN_SESSIONS:
            self._unasked = 0
            return
        self._unasked -= done
        for session in asked[:done]:
            if session in self.awaiting:
                self.awaiting[session] = self.awaiting.pop(session)

    def prepared(self, session: AnySession, size: int, *, large: bool = False) -> None:
        """A session has prepared output. What is large has its own share of the turn: see ``Memory.grant``."""
        if not large:
            self.spend_output(size)
        self.memory.prepared(session, size)

    def spend_output(self, size: int) -> None:
        """Count output, or work on it, against what may be prepared in this turn."""
        self.output_left -= size

    def _begin_output(self) -> None:
        self.output_left = self.memory.large_left = TURN_BYTES

    def wake(self, session: AnySession) -> None:
        """What a session waits for was read: it goes on with answers, deliveries and frames."""
        self._release(session)
        self._dirty[session] = None
        self.touched()

    def _release(self, session: AnySession) -> None:
        """Let a session give its answers, unless its peer is gone: nothing is prepared for that one."""
        if session.gone:
            self.awaiting.pop(session, None)
            self.memory.withdraw(session)
            return
        try:
            session.release(self.broker.committed)
        except Exception as error:
            session.broken(error)

    def _schedule(self, deadline: int | None) -> None:
        """Have a turn when the broker's next deadline is due."""
        if (deadline or 0) == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline or 0
        if deadline is not None:
            delay = max(0.0, (deadline - self.now()) / 1e6)
            self._timer = self.loop.call_later(delay, self._deadline)

    def _deadline(self) -> None:
        self._timer_at = 0
        self._timer = None
        self._turn_unless_due()

    def _watch_congestion(self) -> None:
        unwritten = self.engine.unwritten
        limit = self.memory.most_unwritten
        self._received = 0
        if self.congested and unwritten < limit // 2:
            self.congested = False
        elif not self.congested and unwritten > limit:
            self.congested = True
            self.count("congestions")
            self.log.warning("the disk is slower than the publishers: reading is paused", unwritten=unwritten)
        else:
            return
        self._visit(iter(list(self.sessions.values())), lambda session: session.work())

    def _visit(self, sessions: Iterator[AnySession], do: Callable[[AnySession], None]) -> None:
        """Do something with each of many sessions, a few in one go, as far as they are still there."""
        part = list(islice(sessions, ROUND_SESSIONS))
        for session in part:
            if self.sessions.get(session.connection.id) is session:
                do(session)
        if len(part) == ROUND_SESSIONS:
            self.loop.call_soon(self._visit, sessions, do)

    # Rounds

    def _do_round(self) -> None:
        """Four times a second: try what was refused again, and look for peers that take too long or too much."""
        self._round = self.loop.call_later(ROUND, self._do_round)
        if self.lease is not None:
            self.touched()
        self.log.tell_suppressed()
        self.readers.save_soon(self.loop.time())
        self._visit(iter(list(self.stalled)), lambda session: session.work())
        now = self.loop.time()
        self._visit(iter(list(self.sessions.values())), lambda session: session.watch(now))
        self._watch_memory(now)

    def _watch_memory(self, now: float) -> None:
        """What peers make us keep has a limit: where it is reached, the slowest make room."""
        if self.state_memory.watch():
            full, facts = self.broker.memory_full, {"bytes": self.state_memory.bytes, "limit": self.state_memory.limit}
            event = "the queues take too much memory: publishing is refused" if full else "there is memory again"
            self.log.warning(event, **facts)
        memory = self.memory
        for session in list(memory.holders):
            session.note_output()
        for session in memory.slow_senders():
            self._close_slow(session, session.account.input, memory.most_input)
        for session in memory.slow_readers(now):
            self._close_slow(session, session.account.output, memory.most_output)
        if memory.can_go_on:
            self.touched()

    def _close_slow(self, session: AnySession, held: int, limit: int) -> None:
        self.count("slow_peers")
        session.close("memory is short: the slowest peer is closed", bytes=held, limit=limit)
        session.abort()

    def _let_next_go_on(self) -> None:
        """There may be memory again for answers that have waited for it."""
        memory, last = self.memory, None
        while memory.can_go_on and memory.large_left > 0:
            session = memory.next_in_line
            if session is None or session is last:
                return
            last = session
            self._release(session)
            self.dirty(session)
            if not session.starved:
                memory.withdraw(session)

    def received(self, size: int, frames: int) -> None:
        """So many bytes were decoded, and the broker is given commands: see to it at the end of this turn.

        Very many in one turn must not wait for its end to be noticed.
        """
        self.work_left -= size // WORK_BYTES + frames
        self._received += size
        if self._received > self.memory.most_unwritten:
            self._watch_congestion()
        self._news = True
        if not self._turn_due:
            self._go_on()

    def _share_out(self) -> None:
        """A peer has come or gone: work out what each may have, a fair share where there are many."""
        limits, peers = self.options.limits, max(1, len(self.sessions))
        self.output_share = min(limits.output_bytes, max(self.memory.most_output // peers, LEAST_OUTPUT))
        requests = self.memory.most_input // REQUEST_BYTES // peers
        self.requests_share = min(limits.pipelined_requests, max(requests, LEAST_REQUESTS))

    # Sessions

    def admit(self, session: AnySession) -> Connection:
        """A peer is ready to talk."""
        source, number = source_of(session.protocol, session.peer), self._next_id
        connection = self.broker.connect(number, source, spends_retries=session.spends_retries)
        self._next_id += 1
        self.sessions[number] = session
        self._share_out()
        self.connected[session.protocol] += 1
        self.count("connections")
        return connection

    def lost(self, session: AnySession) -> None:
        """A peer is gone."""
        self.stalled.discard(session)
        for queued in (self.awaiting, self._dirty, self.unworked):
            queued.pop(session, None)
        self.peers.leave(session.peer)
        connection = getattr(session, "connection", None)
        if connection is not None and self.sessions.pop(connection.id, None) is not None:
            self._share_out()
            self.connected[session.protocol] -= 1
            self.pollers.forget(connection)
            if not self.broker.draining:  # a message that is out when the broker stops has just not been given out
                try:
                    self.broker.disconnect(connection, self.now(), _unshown)
                except Exception as error:
                    self.fail(error)
            self.touched()

    def _raise(self, error: Exception) -> None:
        raise error

    def stop(self) -> None:
        """Stop the clockwork."""
        self.backlog.close()
        self._round.cancel()
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()


def _unshown(out: Out) -> bool:
    return not out.shown
