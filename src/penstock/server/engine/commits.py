"""Group commit for an engine: the thread that writes, and the hand-over between it and the broker's own thread.

The broker's thread stages and advances; the committer's thread writes and syncs. While one commit is on its way to the
disk the next one is gathered, so each sync carries everything that arrived during the one before. The broker's thread
writes a small commit itself while the other thread rests: that takes no longer than a sync.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from typing_extensions import override

from penstock.journal.committer import Committer, Measure, Staged
from penstock.journal.errors import LogFull
from penstock.server.engine.engine import Engine

#: Bytes of a commit that is small; and where none is ever synced, so that it is a copy to the system's memory.
SMALL: Final = 16 * 1024
SMALL_UNSYNCED: Final = 512 * 1024
#: Seconds until events are committed that nothing waits for, and bytes of them that are committed at once.
PAUSE: Final = 0.005
MANY_BYTES: Final = 64 * 1024


class CommitDriver(ABC):
    """How an engine's commits are done."""

    @property
    @abstractmethod
    def full(self) -> LogFull | None:
        """Why commits wait: the disk is full, or the database away. None: they do not."""

    @property
    @abstractmethod
    def under_way(self) -> tuple[float, int]:
        """When the current commit was begun, on the monotonic clock, and its bytes; 0: there is none."""

    @abstractmethod
    def flush(self, now: int) -> None:
        """Commit what is staged, now or later."""

    @abstractmethod
    def advance(self) -> None:
        """A commit is done: release what waited for it."""

    @abstractmethod
    def call(self, job: Callable[[], None]) -> None:
        """Do something with the log, now or later, that only the thread that writes it may do."""

    @abstractmethod
    def close(self, now: int) -> None:
        """Commit everything that is staged, and stop. Raises LogError if that is not possible."""


class CommitPacing:
    """Decides when staged events are committed: at once if something waits for them, otherwise after a pause.

    Events that nothing waits for (acknowledgements, publishes without an answer or a consumer) gather during the pause:
    with windows of 1 each would be a commit of its own.
    """

    def __init__(
        self,
        engine: Engine,
        commits: CommitDriver,
        now: Callable[[], int],
        *,
        touched: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """``touched`` is called when the end of a pause has committed something, ``fail`` when it could not."""
        self._engine = engine
        self._log = engine.broker.log
        self._commits = commits
        self._now = now
        self._touched = touched
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        #: Tasks that wait until the log is durable up to a position. Only read it.
        self.waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._serial = count()

    def commit(self, now: int, *, awaited: bool) -> None:
        """Something is staged: commit it, or begin the pause. ``awaited``: answers wait for it."""
        log = self._log
        if awaited or self._engine.awaited or self.waiting or log.size > MANY_BYTES:
            self._commits.flush(now)
        elif self._pause is None:
            self._pause = self._loop.call_later(PAUSE, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        broker = self._engine.broker
        before = broker.committed
        try:
            self._commits.flush(self._now())
        except Exception as error:
            self._fail(error)
        if broker.committed > before:
            self._touched()

    def wait(self, position: int) -> asyncio.Future[None]:
        """Done once everything below the position is committed, and ``release_waiters`` was called."""
        done: asyncio.Future[None] = self._loop.create_future()
        heappush(self.waiting, (position, next(self._serial), done))
        return done

    def release_waiters(self) -> None:
        """Continue the tasks whose position is committed."""
        while self.waiting and self.waiting[0][0] <= self._engine.broker.committed:
            done = heappop(self.waiting)[2]
            if not done.done():  # the task may have been cancelled
                done.set_result(None)

    def give_up(self, error: Exception) -> None:
        """Nothing more will be committed: raise this in the tasks that wait."""
        while self.waiting:
            done = heappop(self.waiting)[2]
            if not done.done():
                done.set_exception(error)

    def stop(self) -> None:
        """Cancel the pause."""
        if self._pause is not None:
            self._pause.cancel()


class InlineCommit(CommitDriver):
    """Commits at once, in the broker's own thread: for a log in memory."""

    def __init__(self, engine: Engine, measure: Measure = lambda events, seconds, sync_seconds: None) -> None:
        self.engine = engine
        self._measure = measure

    @property
    @override
    def full(self) -> LogFull | None:
        return None

    @property
    @override
    def under_way(self) -> tuple[float, int]:
        return 0.0, 0

    @override
    def flush(self, now: int) -> None:
        while self.engine.broker.log.staged:  # the second time a catalogue, with which an extent begins
            began, before = time.perf_counter(), self.engine.broker.committed
            self.engine.commit(now)
            self._measure(self.engine.broker.committed - before, time.perf_counter() - began, 0.0)

    @override
    def advance(self) -> None:
        pass  # everything is committed already

    @override
    def call(self, job: Callable[[], None]) -> None:
        job()

    @override
    def close(self, now: int) -> None:
        while self.engine.broker.log.staged:
            self.engine.commit(now)


class GroupCommit(CommitDriver):
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
    @override
    def full(self) -> LogFull | None:
        return self._committer.full

    @property
    @override
    def under_way(self) -> tuple[float, int]:
        return self._committer.under_way

    def start(self) -> None:
        """Start the thread."""
        self._committer.start()

    @override
    def flush(self, now: int) -> None:
        # While the thread has not taken the last batches, events gather for the next commit.
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

    @override
    def advance(self) -> None:
        self.engine.advance()

    @override
    def call(self, job: Callable[[], None]) -> None:
        # The thread does it before the next commit, and while that waits for room.
        self._jobs.append(job)
        self._committer.wake()

    @override
    def close(self, now: int) -> None:
        self._committer.close()  # completes the commit in progress, or fails
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
