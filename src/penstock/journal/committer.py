"""Group commit: a thread that appends staged events and reports how far the log is durable.

While one commit is being written, the next one gathers, so each ``fdatasync``, which runs outside the interpreter
lock, covers everything that arrived during the one before. There is no timer: a lone message is committed at once.

While the thread is idle, ``append_now`` commits a small batch in the calling thread, because waking a thread and being
woken by it takes longer than a sync of a good disk. After a slow append everything goes to the thread for several times
as long, so a disk with occasional stalls rarely blocks callers.

A full disk is not a failure: the append is retried until there is room, and nothing is confirmed meanwhile. After a
failure nothing is ever confirmed again. The broker must restart, because only a start finds out what is on the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.journal.contract import Log
from penstock.journal.errors import LogFull
from penstock.journal.format.block import Batch

#: Seconds between tries of an append while the disk is full.
RETRY: Final = 0.2
#: After an append that took longer than QUICK seconds, appends go to the thread for REST times as long.
QUICK = 0.002
REST: Final = 10


#: Called with the number of events appended, the seconds it took, and the seconds of the sync (0 without one).
Measure = Callable[[int, float, float], None]


class Staged:
    """The events of the next commit; ``roll`` as in ``Log.append``, ``size`` its approximate bytes."""

    __slots__ = ("batch", "roll", "size")

    def __init__(self, batch: Batch, roll: bool = False, size: int = 0) -> None:
        self.batch = batch
        self.roll = roll
        self.size = size


class _Wanted:
    """A flag for which one thread waits: a bare lock, cheaper than the condition in ``threading.Event``."""

    def __init__(self) -> None:
        #: Locked while there is nothing to do.
        self._gate = threading.Lock()
        self._gate.acquire()
        #: Set before the gate opens and cleared after it closes, so the next round takes everything staged before.
        self.is_set = False

    def set(self) -> None:
        """Wake the thread."""
        self.is_set = True
        if self._gate.locked():
            with suppress(RuntimeError):  # another thread has just opened it
                self._gate.release()

    def clear(self) -> None:
        """Reset the flag. The thread calls it before it looks for work."""
        self._gate.acquire(blocking=False)
        self.is_set = False

    def wait(self, seconds: float | None) -> None:
        """Wait for the flag, at most this long. The thread clears it afterwards."""
        self._gate.acquire(timeout=-1 if seconds is None else seconds)


class Committer:
    """Moves batches from the engine to a log.

    After ``wake``, ``take`` is called as soon as the committer is ready: it returns all staged events, or None.
    ``on_committed`` gets the log's committed position after it has moved, ``on_failure`` the error that ended the
    committer. ``on_full`` gets the error when an append begins to wait for room, and None when it has found some;
    ``while_full`` is called between the tries, and may free space. All are called in the committer's thread, one at a
    time.
    """

    def __init__(
        self,
        log: Log,
        take: Callable[[], Staged | None],
        on_committed: Callable[[int], None],
        on_failure: Callable[[Exception], None],
        *,
        on_full: Callable[[LogFull | None], None] = lambda _: None,
        while_full: Callable[[], None] = lambda: None,
        sync_every: float | None = None,
        measure: Measure = lambda events, seconds, sync_seconds: None,
    ) -> None:
        """``sync_every`` is the longest wait for a sync in seconds, for a log that commits with ``sync``.

        ``measure`` is called after every append and sync, in the committer's thread.
        """
        self._log = log
        self._take = take
        self._on_committed = on_committed
        self._on_failure = on_failure
        self._on_full = on_full
        self._while_full = while_full
        self._sync_every = sync_every
        self._measure = measure
        self._sync_due: float | None = None
        self._epoch = log.epoch  # ours: when another owner seals the log, we must be fenced off
        self._reported = log.committed
        self._wanted = _Wanted()
        #: Held by the appending thread: the committer's own, or that of ``append_now``.
        self._appending = threading.Lock()
        #: When the disk counts as quick again.
        self._quick_from = 0.0
        self._stopping = False
        self._running: threading.Thread | None = None
        #: Why an append is waiting, or None.
        self.full: LogFull | None = None
        #: When the append in flight began, on the monotonic clock, and its bytes; 0 without one.
        self.under_way = 0.0, 0
        #: The error that ended the committer.
        self.failure: Exception | None = None

    def start(self) -> None:
        """Start the thread."""
        self._running = threading.Thread(target=self._run, name="penstock-journal", daemon=True)
        self._running.start()

    def wake(self) -> None:
        """Announce staged events. Cheap, and safe from any thread."""
        self._wanted.set()

    def close(self) -> None:
        """Commit and sync everything staged, then end the thread. The log stays open. A full disk is a failure here."""
        self._stopping = True
        self._wanted.set()
        if self._running is not None:
            self._running.join()
            self._running = None
        self.commit_now(sync=True)

    def commit_now(self, *, sync: bool = False) -> bool:
        """Do one round in the calling thread: at the end, and in simulations. False after a failure.

        Not while the thread runs.
        """
        if self.failure is None:
            try:
                self._append(self._take())
                if sync or self._is_due():
                    self._sync()
            except Exception as error:  # any: to continue would confirm events that may not be durable
                self._fail(error)
        return self.failure is None

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._wanted.set()  # the thread ends
        self._on_failure(error)

    def append_now(self, staged: Staged) -> bool:
        """Append in the calling thread if that is likely to be quick. False: not done, so ``take`` must return it.

        Only while ``take`` would return nothing before it. ``on_committed`` is not called.
        """
        if not self._is_idle() or not self._appending.acquire(blocking=False):
            return False
        try:
            done = self._try(staged)
        except Exception as error:  # see commit_now
            self._fail(error)
            return True
        finally:
            self._appending.release()
        if done and self._expect_sync():
            self._wanted.set()
        return done

    def _is_idle(self) -> bool:
        """Whether the thread has nothing to do and the disk counts as quick."""
        busy = self._wanted.is_set or self._stopping or self.failure is not None or self.full is not None
        return not busy and time.perf_counter() >= self._quick_from

    def _run(self) -> None:
        while not self._stopping and self.failure is None:
            self._wanted.wait(self._patience())
            with self._appending:
                self._wanted.clear()  # before taking: what is staged from here on wakes us again
                self.commit_now()

    def _append(self, staged: Staged | None) -> None:
        if staged is None:
            return
        self.under_way = time.monotonic(), staged.size
        while not self._try(staged):
            self._while_full()
            if self._is_due():  # earlier appends have room, and must not wait
                self._sync()
            self._wanted.wait(RETRY)
            self._wanted.clear()
        self.under_way = 0.0, 0
        if self.full is not None:
            self.full = None
            self._on_full(None)
            self._wanted.set()  # a wake-up may have been consumed by the wait for room
        self._expect_sync()
        self._report()

    def _expect_sync(self) -> bool:
        """Schedule the sync of an append. True if none was scheduled before, so the thread must be woken."""
        if self._sync_every is None or self._sync_due is not None:
            return False
        self._sync_due = time.monotonic() + self._sync_every
        return True

    def _try(self, staged: Staged) -> bool:
        """Append. False if the disk is full and the committer is not stopping."""
        began, synced = time.perf_counter(), self._log.sync_seconds
        try:
            self._log.append(staged.batch, staged.batch.first, self._epoch, roll=staged.roll)
        except LogFull as error:
            if self._stopping:
                raise
            if self.full is None:
                self.full = error
                self._on_full(error)
            return False
        ended = time.perf_counter()
        if ended - began > QUICK:
            self._quick_from = max(self._quick_from, ended + REST * (ended - began))
        self._measure(len(staged.batch.kinds), ended - began, self._log.sync_seconds - synced)
        return True

    def _sync(self) -> None:
        synced = self._log.sync_seconds
        self._log.sync()
        self._measure(0, 0.0, self._log.sync_seconds - synced)
        self._sync_due = None
        self._report()

    def _report(self) -> None:
        if self._log.committed != self._reported:
            self._reported = self._log.committed
            self._on_committed(self._reported)

    def _is_due(self) -> bool:
        return self._sync_due is not None and time.monotonic() >= self._sync_due

    def _patience(self) -> float | None:
        """The longest time to wait for more."""
        return None if self._sync_due is None else max(self._sync_due - time.monotonic(), 0.0)
