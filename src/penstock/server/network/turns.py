"""Turns of the event loop: what happens once for all sessions after each round of reads.

Sessions decode what was read and give the broker its commands. Then a turn

1. continues with input that had to wait (``Turns.work_later``),
2. runs the broker's deadlines and commits what is staged (``CommitPacing``),
3. hands the effects of committed events to their sessions,
4. gives the answers that waited for a commit (``OutputQueue.await_answers``),
5. writes, one piece for each session (``OutputQueue.send_later``),
6. acknowledges reads that got no answer (``OutputQueue.await_acknowledgement``).

The journal's thread does large commits. When it reports one, another turn releases what waited for it. The work and the
output of a turn are bounded: the rest waits for the next one, so that the loop reads from every peer in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from penstock.core.state import DeliveryEffect
from penstock.server.network.memory import TURN_BYTES

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: Sessions that may give answers, or write, in one turn.
TURN_SESSIONS: Final = 500
#: Work in one turn of all sessions together, and the least of one session when very many wait. A decoded frame, a
#: handled frame, and WORK_BYTES decoded bytes count as one each.
TURN_WORK: Final = 2_000
LEAST_WORK: Final = 2
WORK_BYTES: Final = 1024


class Turns:
    """Schedules turns and runs them. It owns the input that waits, and the work that is left for this turn."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = runtime.loop
        self._engine = runtime.engine
        self._memory = runtime.memory
        self._busy_poll = runtime.busy_poll
        self.output = OutputQueue(runtime, self)
        #: Sessions with input to work on in the next turn, first come, first served.
        self._waiting: dict[AnySession, None] = {}
        #: A turn decodes no more bytes than may wait for the disk.
        self._most_work = max(LEAST_WORK, min(TURN_WORK, runtime.memory.most_unwritten // WORK_BYTES))
        self.work_left = self._most_work
        #: When bytes last came from any peer, on the loop's clock.
        self.received_at = 0.0
        #: Something happened since sessions were last asked for answers.
        self._news = False
        #: A turn is scheduled, or running.
        self.scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0

    # Scheduling

    def touched(self) -> None:
        """The broker was given commands: have a turn."""
        self._news = True
        if not self.scheduled:
            self.schedule()

    def schedule(self) -> None:
        """Have a turn after this round of the loop, unless one is scheduled."""
        if not self.scheduled:
            self.scheduled = True
            self._loop.call_soon(self.run)

    def run_now(self) -> None:
        """Have a turn at once, unless one is scheduled: two in one round of the loop would do twice the work."""
        if not self.scheduled:
            self.run()

    def committed(self) -> None:
        """The journal's thread has done a commit, and the engine has advanced."""
        self._news = True
        self.run_now()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    # Input

    def begin_read(self) -> float:
        """Note that bytes came. Returns the time on the loop's clock."""
        self._busy_poll.busy()
        self.received_at = now = self._loop.time()
        return now

    def decoded(self, size: int, frames: int) -> None:
        """Count ``size`` decoded bytes and their frames, which are about to be handled."""
        self.work_left -= size // WORK_BYTES + frames
        self._news = True
        if not self.scheduled:
            self.schedule()

    def spend(self, work: int) -> None:
        """Count handled frames against the work of this turn."""
        self.work_left -= work

    @property
    def has_input(self) -> bool:
        """Whether input of any session waits."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether input that comes now waits for another turn."""
        return self.work_left <= 0 or bool(self._waiting)

    def work_later(self, session: AnySession) -> None:
        """Continue with the session's input in the next turn, behind the sessions that wait already."""
        self._waiting[session] = None
        self.schedule()

    def discard(self, session: AnySession) -> None:
        """The session is gone."""
        self._waiting.pop(session, None)
        self.output.discard(session)

    def _work(self) -> None:
        """Continue with input; where many sessions wait, each does a little."""
        share = max(LEAST_WORK, self._most_work // len(self._waiting))
        for session in list(islice(self._waiting, TURN_SESSIONS)):
            if self.work_left <= 0:
                break
            if session in self._waiting:
                del self._waiting[session]
                session.work_on(share)

    # A turn

    def run(self) -> None:
        """Have a turn, and schedule another one for what is left."""
        self.scheduled = True  # the end of the turn checks whether there is more to do
        unfinished = False
        try:
            unfinished = self._run()
        except Exception as error:  # sessions catch their own faults; this one is the broker's
            self._runtime.fail(error)
        backlog = self._runtime.backlog
        if backlog.used_in_turn:
            backlog.new_turn()
        self.scheduled = False
        if unfinished:
            self.schedule()
        elif self._engine.writing:
            self._busy_poll.wait()
        else:
            self._busy_poll.idle()

    def _run(self) -> bool:
        """Do the steps of a turn. Returns whether some of the work is left for another one."""
        runtime, engine, output, memory = self._runtime, self._engine, self.output, self._memory
        self.work_left = self._most_work
        if self._waiting:
            self._work()
        now = runtime.now()
        lease = runtime.lease_hold
        if lease.needed and not lease.is_valid():
            runtime.commits.flush(now)  # a commit renews it
            return False
        deadline = engine.broker.tick(now)
        if (deadline or 0) != self._timer_at:
            self._set_timer(deadline)
        engine.collect()
        if engine.broker.log.staged:
            runtime.pacing.commit(now, awaited=bool(output.awaiting))
        self._hand_over_effects()
        news, self._news = self._news, False
        output.give_answers(news=news)
        output.send()
        if memory.watch_unwritten(engine.unwritten):
            runtime.congestion_changed()
        return self._news or output.busy or bool(self._waiting) or memory.can_go_on

    def _hand_over_effects(self) -> None:
        runtime = self._runtime
        if runtime.pacing.waiting:
            runtime.pacing.release_waiters()
        for effect in self._engine.released():
            session = runtime.sessions.get(effect.connection.id)
            if session is None:
                continue
            if isinstance(effect, DeliveryEffect):
                session.deliver(effect)
            else:
                session.no_message(effect.queue)

    def _set_timer(self, deadline: int | None) -> None:
        """Have a turn when the broker's next deadline comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline or 0
        if deadline is not None:
            delay = max(0.0, (deadline - self._runtime.now()) / 1e6)
            self._timer = self._loop.call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer_at = 0
        self._timer = None
        self.run_now()


class OutputQueue:
    """Sessions that have something to send, and the output that may still be prepared in this turn."""

    def __init__(self, runtime: Runtime, turns: Turns) -> None:
        self._turns = turns
        self._broker = runtime.broker
        self._memory = runtime.memory
        #: Sessions with answers that wait for a commit.
        self.awaiting: dict[AnySession, None] = {}
        #: How many of them are still to be asked since something happened.
        self._unasked = 0
        #: Sessions with something to write.
        self._sending: dict[AnySession, None] = {}
        #: Sessions that have read in this turn, and may leave it without an answer.
        self._unanswered: list[AnySession] = []
        #: Bytes of output that may still be prepared in this turn.
        self.left = TURN_BYTES

    # What sessions report

    def await_answers(self, session: AnySession) -> None:
        """The session has answers that wait for a commit: call its ``release`` after each."""
        self.awaiting[session] = None

    def answered(self, session: AnySession) -> None:
        """The session has given all its answers."""
        self.awaiting.pop(session, None)

    def await_acknowledgement(self, session: AnySession) -> None:
        """The session has read: acknowledge that at the end of this turn, unless an answer does."""
        self._unanswered.append(session)

    def send_later(self, session: AnySession) -> None:
        """The session has something to write at the end of this turn."""
        self._sending[session] = None
        self._turns.schedule()

    def send_all(self, sessions: Iterable[AnySession]) -> None:
        """All of these may have something to write."""
        self._sending |= dict.fromkeys(sessions)

    def prepared(self, session: AnySession, size: int) -> None:
        """The session has prepared ``size`` bytes of output, without large answers: ``Memory.grant`` counts those."""
        self.left -= size
        self._sending[session] = None
        if not self._turns.scheduled:
            self._turns.schedule()

    def spend(self, size: int) -> None:
        """Count work on output as if it were ``size`` bytes of output."""
        self.left -= size

    def wake(self, session: AnySession) -> None:
        """A read that the session waited for is done: it continues with answers, deliveries and frames."""
        self._release(session)
        self._sending[session] = None
        self._turns.touched()

    def discard(self, session: AnySession) -> None:
        """The session is gone."""
        self.awaiting.pop(session, None)
        self._sending.pop(session, None)

    # In a turn

    @property
    def busy(self) -> bool:
        """Whether there is output for another turn."""
        return self._unasked > 0 or bool(self._sending)

    def _begin(self) -> None:
        """Begin to prepare output. Called for answers and for deliveries: each have their own budget."""
        self.left = TURN_BYTES
        self._memory.begin_output()

    def serve_line(self) -> None:
        """Give memory to the answers that waited for it."""
        memory, last = self._memory, None
        while memory.can_go_on and memory.large_left > 0:
            session = memory.next_in_line
            if session is None or session is last:
                return
            last = session
            self._release(session)
            self.send_later(session)
            if not session.starved:
                memory.withdraw(session)

    def give_answers(self, *, news: bool) -> None:
        """Have sessions give the answers that waited for a commit, and continue with input that waited for answers.

        Sessions are asked when there is news. With very many sessions, or much output, each turn asks some of them, in
        rotation.
        """
        if news:
            self._unasked = len(self.awaiting)
        if self._unasked or self._memory.line:
            self._begin()
            self.serve_line()
        if not self._unasked:
            return
        asked = list(islice(self.awaiting, min(TURN_SESSIONS, self._unasked)))
        done = 0
        for session in asked:
            if self.left <= 0:
                break
            done += 1
            self._release(session)
            if session.ending and not session.answers_due:
                session.end()
            elif session.inbox.frames:
                session.work()
        if done == len(asked) < TURN_SESSIONS:
            self._unasked = 0
            return
        self._unasked -= done
        for session in asked[:done]:
            if session in self.awaiting:
                self.awaiting[session] = self.awaiting.pop(session)

    def send(self) -> None:
        """Have sessions write, first come, first served, as many as may in one turn. Acknowledge the other reads."""
        if self._sending:
            self._begin()
        for session in list(islice(self._sending, TURN_SESSIONS)):
            if session in self._sending:
                del self._sending[session]
                session.flush()
            if self.left <= 0:
                break
        if self._unanswered:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge reads without an answer. An answer that waits for a commit will carry its acknowledgement."""
        for session in self._unanswered:
            if session.quick_ack.due and not (session.closing or session.answers_due):
                session.quick_ack.acknowledge()
        self._unanswered.clear()

    def _release(self, session: AnySession) -> None:
        """Have a session give its answers, unless its peer is gone: then nothing is prepared for it."""
        if session.gone:
            self.awaiting.pop(session, None)
            self._memory.withdraw(session)
            return
        try:
            session.release(self._broker.committed)
        except Exception as error:
            session.broken(error)
