"""Group commit for an engine: the thread that writes, and the hand-over between it and the broker's own thread.

The broker's thread stages and settles; the committer's thread writes and syncs. While one commit is on its way to the
disk the next one is gathered, so each sync carries everything that arrived during the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.journal.committer import Committer
from penstock.journal.committer import Staged as Handed
from penstock.server.engine import Engine, Staged


class GroupCommit:
    """Runs an engine's commits in a thread.

    ``notify`` is called in that thread after each commit: have the broker's thread call ``settle`` then. ``on_failure``
    is called there once, when the disk has failed: nothing was or will be confirmed, and the broker must end.
    """

    def __init__(
        self,
        engine: Engine,
        notify: Callable[[], None],
        on_failure: Callable[[Exception], None],
        *,
        sync_every: float | None = None,
    ) -> None:
        self.engine = engine
        self._notify = notify
        self._handed: deque[Staged] = deque()
        self._committer = Committer(engine.log, self._take, self._committed, on_failure, sync_every=sync_every)

    def start(self) -> None:
        """Start the thread."""
        self._committer.start()

    def flush(self, now: int) -> None:
        """Hand over what is staged, unless the thread has not yet taken what it was handed before."""
        if not self._handed and self.engine.broker.log.staged:
            self._handed.extend(self.engine.stage(now))
            self._committer.wake()

    def settle(self, now: int) -> None:
        """A commit is done: release what waited for it, and hand over what has gathered meanwhile."""
        self.engine.settle()
        self.flush(now)

    def close(self, now: int) -> None:
        """Commit everything that is staged, end the thread, and settle."""
        while self.engine.broker.log.staged or self._handed:
            self.flush(now)
            self._committer.close()
            if self._committer.failure is not None:
                raise self._committer.failure
            self.engine.settle()
        self._committer.close()

    def _take(self) -> Handed | None:
        if not self._handed:
            return None
        batch, roll = self._handed.popleft()
        if self._handed:
            self._committer.wake()
        return Handed(batch, roll)

    def _committed(self, position: int) -> None:
        self._notify()
