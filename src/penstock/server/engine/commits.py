"""Group commit for an engine: the thread that writes, and the hand-over between it and the broker's own thread.

The broker's thread stages and advances; the committer's thread writes and syncs. While one commit is on its way to the
disk the next one is gathered, so each sync carries everything that arrived during the one before. A small commit is
written by the broker's thread itself, while the other one rests: nobody waits longer than a sync.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol

from penstock.journal.committer import Committer, Measure, Staged
from penstock.journal.errors import LogFull
from penstock.server.engine.engine import Engine

#: Bytes of a commit that is small; and where none is ever synced, so that it is a copy to the system's memory.
SMALL: Final = 16 * 1024
SMALL_UNSYNCED: Final = 512 * 1024


class CommitDriver(Protocol):
    """How an engine's commits are done."""

    @property
    def full(self) -> LogFull | None:
        """Why nothing gets committed for now, if the disk is full."""

    @property
    def under_way(self) -> tuple[float, int]:
        """When the commit that is under way was begun, on the monotonic clock, and its bytes; 0: none is."""

    def flush(self, now: int) -> None:
        """See that what is staged gets committed; it may be so on return."""

    def advance(self) -> None:
        """A commit is done: release what waited for it."""

    def call(self, job: Callable[[], None]) -> None:
        """Do something with the log that only the thread that writes it may do. It may not be done on return."""

    def close(self, now: int) -> None:
        """Commit everything that is staged, and stop. Raises LogError if that is not possible."""


class CommitWaiters:
    """Who waits, in the event loop, until the log is durable up to a position."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._serial = count()

    @property
    def waiting(self) -> bool:
        """Whether anybody does."""
        return bool(self._waiting)

    def wait(self, position: int) -> asyncio.Future[None]:
        """Done once everything below the position is committed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (position, next(self._serial), done))
        return done

    def release(self, committed: int) -> None:
        """The log is durable up to here."""
        while self._waiting and self._waiting[0][0] <= committed:
            done = heappop(self._waiting)[2]
            if not done.done():  # who waited may have given up
                done.set_result(None)

    def give_up(self, error: Exception) -> None:
        """The log will never be: raise this where somebody waits."""
        while self._waiting:
            done = heappop(self._waiting)[2]
            if not done.done():
                done.set_exception(error)


class InlineCommit:
    """Commits at once, in the broker's own thread: for a log in memory."""

    full = None
    under_way = 0.0, 0

    def __init__(self, engine: Engine, measure: Measure = lambda events, seconds, sync_seconds: None) -> None:
        self.engine = engine
        self._measure = measure

    def flush(self, now: int) -> None:
        """See CommitDriver."""
        while self.engine.broker.log.staged:  # the second time a catalogue, with which an extent begins
            began, before = time.perf_counter(), self.engine.broker.committed
            self.engine.commit(now)
            self._measure(self.engine.broker.committed - before, time.perf_counter() - began, 0.0)

    def advance(self) -> None:
        """See CommitDriver. Everything is committed already."""

    def call(self, job: Callable[[], None]) -> None:
        """See CommitDriver."""
        job()

    def close(self, now: int) -> None:
        """See CommitDriver."""
        while self.engine.broker.log.staged:
            self.engine.commit(now)


class GroupCommit:
    """Runs an engine's commits in a thread.

    ``notify`` is called in that thread after each commit: have the broker's thread call ``advance`` then.
    ``on_failure`` is called there once, when the disk has failed: nothing was or will be confirmed, and the broker must
    end. ``on_full`` is called there when the disk is full, and with None when there is room again. ``at_once``
    is asked for the bytes of a commit that may be written without the thread.
    """

    def __init__(
        self,
        engine: Engine,
        notify: Callable[[], None],
        on_failure: Callable[[Exception], None],
        *,
        on_full: Callable[[LogFull | None], None] = lambda _: None,
        sync_every: float | None = None,
        measure: Measure = lambda events, seconds, sync_seconds: None,
        at_once: Callable[[], int] = lambda: 0,
    ) -> None:
        self.engine = engine
        self._notify = notify
        self._most_at_once = at_once
        self._handed: deque[Staged] = deque()
        self._jobs: deque[Callable[[], None]] = deque()
        self._committer = Committer(
            engine.log,
            self._take,
            self._committed,
            on_failure,
            on_full=on_full,
            while_full=self._do_jobs,
            sync_every=sync_every,
            measure=measure,
        )

    @property
    def full(self) -> LogFull | None:
        """See CommitDriver."""
        return self._committer.full

    @property
    def under_way(self) -> tuple[float, int]:
        """See CommitDriver."""
        return self._committer.under_way

    def start(self) -> None:
        """Start the thread."""
        self._committer.start()

    def flush(self, now: int) -> None:
        """See CommitDriver. While the thread has not taken what it was handed before, more is gathered."""
        log = self.engine.broker.log
        if self._handed or not log.staged:
            return
        at_once = log.size <= self._most_at_once() and not self._jobs
        staged = self.engine.stage(now)
        if at_once and len(staged) == 1 and not staged[0].roll and self._committer.append_now(staged[0]):
            self.engine.advance()
            staged = self.engine.stage(now) if log.staged else []  # a catalogue, with which the next extent begins
        if staged:
            self._handed.extend(staged)
            self._committer.wake()

    def advance(self) -> None:
        """See CommitDriver."""
        self.engine.advance()

    def call(self, job: Callable[[], None]) -> None:
        """See CommitDriver. It is done before the next commit, and while that waits for room."""
        self._jobs.append(job)
        self._committer.wake()

    def close(self, now: int) -> None:
        """See CommitDriver. Ends the thread."""
        self._committer.close()  # what is on its way gets there, or not
        while self._committer.failure is None:
            self.engine.advance()
            self.flush(now)
            if not self._handed:
                return
            self._committer.close()
        raise self._committer.failure

    def _take(self) -> Staged | None:
        self._do_jobs()
        if not self._handed:
            return None
        staged = self._handed.popleft()
        if self._handed:
            self._committer.wake()
        return staged

    def _do_jobs(self) -> None:
        while self._jobs:
            self._jobs.popleft()()

    def _committed(self, position: int) -> None:
        self._notify()
