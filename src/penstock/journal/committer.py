"""Group commit: a thread that appends whatever was staged, again and again, and tells how far the log is durable.

While one commit is on its way to the disk, the next one gathers; so each ``fdatasync``, which runs outside the
interpreter lock, carries everything that arrived during the one before. There is no timer to wait for more: a lone
message is committed at once.

A small commit need not be handed over at all: while the thread has nothing to do, ``append_now``
does it where it is called. Waking a thread and being woken by it costs more than a sync of a good disk takes; where an
append took long, everything goes to the thread for many times as long, so that a disk that is slow now and then holds
up whoever calls for a small part of the time.

A full disk is no failure: the append that found no room is tried again until there is some, and nothing is confirmed
meanwhile. After a failure nothing is ever confirmed again. The broker has to end and start anew, because only a start
finds out what is on the disk.
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

#: Seconds between two tries of an append that found the disk full.
RETRY: Final = 0.2
#: A log on which an append took longer than these seconds is left to the thread, for so many times as long.
QUICK = 0.002
REST: Final = 10


#: Told of events that were appended, in how many seconds, and of those for the sync; 0 where there was none.
Measure = Callable[[int, float, float], None]


class Staged:
    """The events of the next commit; ``roll`` as in ``Log.append``, ``size`` about the bytes of it."""

    __slots__ = ("batch", "roll", "size")

    def __init__(self, batch: Batch, roll: bool = False, size: int = 0) -> None:
        self.batch = batch
        self.roll = roll
        self.size = size


class _Wanted:
    """An event that one thread waits for. ``threading.Event`` is a condition around a lock; here the lock is enough."""

    def __init__(self) -> None:
        #: Held while there is nothing to do.
        self._gate = threading.Lock()
        self._gate.acquire()
        #: Set before the gate opens, and cleared after it closes: the round that begins then takes what there is.
        self.is_set = False

    def set(self) -> None:
        """The thread has something to do."""
        self.is_set = True
        if self._gate.locked():
            with suppress(RuntimeError):  # somebody else has just opened it
                self._gate.release()

    def clear(self) -> None:
        """The thread is about to look for it."""
        self._gate.acquire(blocking=False)
        self.is_set = False

    def wait(self, seconds: float | None) -> None:
        """Until there is something, or so long. The thread clears it afterwards."""
        self._gate.acquire(timeout=-1 if seconds is None else seconds)


class Committer:
    """Moves batches from the engine to a log.

    ``take`` is called whenever the committer is ready for more and ``wake`` was called since: it hands over all that is
    staged, at the log's end, or None. ``on_committed`` gets the log's committed position after it has moved,
    ``on_failure`` the one error that ended it all. ``on_full`` is told when an append begins to wait for room, and with
    None when it has found some; ``while_full`` is called between the tries, for it may give space back. All are called
    in the committer's thread, one at a time.
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
        """``sync_every`` is for a log that commits with ``sync``: the seconds that an event waits for it at most.

        ``measure`` is told of every append and sync, in the committer's thread.
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
        self._epoch = log.epoch  # ours: when someone else seals the log, we must be fenced off
        self._told = log.committed
        self._wanted = _Wanted()
        #: Held by whoever appends: the thread, or one that does without it.
        self._appending = threading.Lock()
        #: When an append need not be left to the thread, as far as the disk is concerned.
        self._quick_from = 0.0
        self._stopping = False
        self._running: threading.Thread | None = None
        #: Why an append waits, if one does.
        self.full: LogFull | None = None
        #: When the append that is under way was begun, on the monotonic clock, and its bytes; 0: none is.
        self.under_way = 0.0, 0
        #: The error that ended it all.
        self.failure: Exception | None = None

    def start(self) -> None:
        """Run in a thread of its own from now on."""
        self._running = threading.Thread(target=self._run, name="penstock-journal", daemon=True)
        self._running.start()

    def wake(self) -> None:
        """Say that something is staged. Cheap, and safe from any thread."""
        self._wanted.set()

    def close(self) -> None:
        """Commit and sync what is staged, then end the thread. The log stays open. A full disk is a failure then."""
        self._stopping = True
        self._wanted.set()
        if self._running is not None:
            self._running.join()
            self._running = None
        self.commit_now(sync=True)

    def commit_now(self, *, sync: bool = False) -> bool:
        """One round in the calling thread: for the simulator, for tests, and for the last one. False after a failure.

        Not while the thread runs.
        """
        if self.failure is None:
            try:
                self._append(self._take())
                if sync or self._is_due():
                    self._sync()
            except Exception as error:  # whatever it is: going on would confirm what may not be there
                self._fail(error)
        return self.failure is None

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._wanted.set()  # the thread ends
        self._on_failure(error)

    def append_now(self, staged: Staged) -> bool:
        """Append in the calling thread, if that is quick. False: it was not done, and ``take`` has to hand it over.

        Only while there is nothing that ``take`` would give before it. ``on_committed`` is not told of it.
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
        """Whether the thread has nothing to do, and is not needed to wait for the disk."""
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
            if self._is_due():  # what was appended before has room, and must not wait
                self._sync()
            self._wanted.wait(RETRY)
            self._wanted.clear()
        self.under_way = 0.0, 0
        if self.full is not None:
            self.full = None
            self._on_full(None)
            self._wanted.set()  # we may have missed it while we waited for something else
        self._expect_sync()
        self._tell()

    def _expect_sync(self) -> bool:
        """Something was appended: note when to sync. True: nothing was before it, so the thread does not know."""
        if self._sync_every is None or self._sync_due is not None:
            return False
        self._sync_due = time.monotonic() + self._sync_every
        return True

    def _try(self, staged: Staged) -> bool:
        """Append. False if there is no room, and there is time to wait for it."""
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
        self._tell()

    def _tell(self) -> None:
        if self._log.committed != self._told:
            self._told = self._log.committed
            self._on_committed(self._told)

    def _is_due(self) -> bool:
        return self._sync_due is not None and time.monotonic() >= self._sync_due

    def _patience(self) -> float | None:
        """How long to wait for more, at most."""
        return None if self._sync_due is None else max(self._sync_due - time.monotonic(), 0.0)
