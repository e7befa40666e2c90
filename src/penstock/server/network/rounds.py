"""Four times a second: retry refused publishes, and close peers that take too long or too much memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime
    from penstock.server.network.session import Session

    AnySession = Session[Any]

#: Seconds between two rounds.
ROUND: Final = 0.25
#: Sessions that are visited before the loop has another turn.
ROUND_SESSIONS: Final = 200
#: Seconds without taking a byte after which a peer whose connection was ended is cut off.
LINGER: Final = 5.0


class Rounds:
    """Visits the sessions of a running broker. It owns the list of those with a refused publish."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        #: Sessions with a refused publish.
        self.stalled: set[AnySession] = set()
        self._timer: asyncio.TimerHandle = runtime.loop.call_later(ROUND, self._run)

    def stall(self, session: AnySession) -> None:
        """Retry the session's refused publish in each round."""
        self.stalled.add(session)

    def unstall(self, session: AnySession) -> None:
        """Stop retrying: the session has no refused publish any more."""
        self.stalled.discard(session)

    def visit_all(self, do: Callable[[AnySession], None]) -> None:
        """Call ``do`` with every current session, a few before each turn of the loop."""
        self._visit(iter(list(self._runtime.sessions.values())), do)

    def stop(self) -> None:
        """Stop the rounds."""
        self._timer.cancel()

    def _visit(self, sessions: Iterator[AnySession], do: Callable[[AnySession], None]) -> None:
        part = list(islice(sessions, ROUND_SESSIONS))
        for session in part:
            if self._runtime.sessions.get(session.connection.id) is session:
                do(session)
        if len(part) == ROUND_SESSIONS:
            self._runtime.loop.call_soon(self._visit, sessions, do)

    def _run(self) -> None:
        runtime = self._runtime
        self._timer = runtime.loop.call_later(ROUND, self._run)
        if runtime.lease_hold.needed:
            runtime.touched()
        runtime.log.report_suppressed()
        now = runtime.loop.time()
        runtime.readers.save_soon(now)
        self._visit(iter(list(self.stalled)), lambda session: session.work())
        self.visit_all(lambda session: check_patience(session, now))
        self._limit_state()
        self._limit_memory(now)

    def _limit_state(self) -> None:
        """Refuse publishes while the queues take too much memory."""
        runtime, state = self._runtime, self._runtime.state_memory
        if state.watch():
            full = runtime.broker.memory_full
            event = "the queues take too much memory: publishing is refused" if full else "there is memory again"
            runtime.log.warning(event, bytes=state.bytes, limit=state.limit)

    def _limit_memory(self, now: float) -> None:
        """Close the slowest peers while input exceeds its memory, or output waits for memory."""
        memory = self._runtime.memory
        for session in list(memory.holders):
            session.note_output()
        for session in memory.slow_senders():
            self._close_slow(session, session.account.input, memory.most_input)
        for session in memory.slow_readers(now):
            self._close_slow(session, session.held_output, memory.most_output)
        if memory.can_go_on:
            self._runtime.touched()

    def _close_slow(self, session: AnySession, held: int, limit: int) -> None:
        self._runtime.count("slow_peers")
        session.close("memory is short: the slowest peer is closed", bytes=held, limit=limit)
        session.abort()


def check_patience(session: AnySession, now: float) -> None:
    """Close a peer that takes too long."""
    limits, unfinished_since = session.limits, session.inbox.unfinished_since
    if session.ending_since:
        if _lingers(session, now):
            session.transport.abort()
    elif unfinished_since and session.reading and now - unfinished_since > limits.unfinished_seconds:
        session.runtime.count("unfinished")
        session.close("a message was not finished in time", seconds=limits.unfinished_seconds)
    elif limits.idle_seconds and _is_idle(session) and now - session.active_at > limits.idle_seconds:
        session.runtime.count("idle")
        session.close("idle for too long", seconds=limits.idle_seconds)


def _lingers(session: AnySession, now: float) -> bool:
    """Whether a peer reads too slowly for its ended connection to close. Waiting for our answers does not count."""
    if now - session.ending_since <= LINGER:
        return False
    account = session.account
    return account.takes_too_little(now, LINGER) if account.output_since else session.closing


def _is_idle(session: AnySession) -> bool:
    connection = session.connection
    return not (connection.subscriptions or connection.out or session.inbox.frames or session.answers_due)
