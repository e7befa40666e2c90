"""Keeping the lease on a journal that others may take over, whatever the event loop does.

A thread of its own renews it, beside a commit that is under way. So neither a long turn of the loop nor a slow link
costs the lease. A broker that is stuck must not keep it for ever: the thread stops renewing when the loop has shown no
life for ``MOST_SILENT`` seconds, or a commit has taken as long, with a second more for each ``SLOWEST`` bytes of it.
Then the lease runs out, and another broker takes over.
"""

from __future__ import annotations

import asyncio
import time
from threading import Event, Thread

from penstock.journal.contract import Lease
from penstock.journal.errors import LogAway, LogFull
from penstock.server.network.runtime import Runtime

#: How often it is looked at, and renewed unless an append has done so meanwhile, in parts of the lease.
LOOKS = 6
#: Seconds without a sign of life from the loop, or for a commit, after which the lease is not renewed.
MOST_SILENT = 30.0
#: Bytes a second that a link is expected to carry at least.
SLOWEST = 128 * 1024


class LeaseKeeper:
    """Renews the lease in a thread; where anything stands against that, the thread that writes the log finds out."""

    def __init__(self, runtime: Runtime, lease: Lease) -> None:
        self._runtime = runtime
        self._lease = lease
        self._seen = lease.deadline
        self._beat: asyncio.TimerHandle | None = None
        #: When the loop last showed life.
        self.alive_at = time.monotonic()
        self._stopping = Event()
        self._asked = False

    def start(self) -> None:
        """Begin."""
        self._show_life()
        Thread(target=self._run, name="penstock-lease", daemon=True).start()

    async def stop(self) -> None:
        """Stop. A renewal that is under way may still be done: a lease that was given back is not renewed by it."""
        self._stopping.set()
        if self._beat is not None:
            self._beat.cancel()

    def _show_life(self) -> None:
        self.alive_at = time.monotonic()
        self._beat = self._runtime.loop.call_later(self._lease.seconds / LOOKS, self._show_life)

    # In the thread

    def _run(self) -> None:
        while not self._stopping.wait(self._lease.seconds / LOOKS):
            self.look()

    def look(self) -> None:
        """Renew the lease, unless an append has done so since the last look, or the broker is stuck."""
        if self._lease.deadline == self._seen and self._shows_life() and not self._lease.keep() and not self._asked:
            self._asked = True
            self._runtime.commits.call(self._renew)
        self._seen = self._lease.deadline

    def _shows_life(self) -> bool:
        now, commits = time.monotonic(), self._runtime.commits
        if now - self.alive_at > MOST_SILENT:
            return False
        began, size = commits.under_way
        if not began or (commits.full is not None and not isinstance(commits.full, LogAway)):
            return True  # no room: another broker would have none either
        return now - began <= MOST_SILENT + size / SLOWEST

    def _renew(self) -> None:
        """In the log's thread. A database that is away is asked again; all else ends the broker."""
        self._asked = False
        failure: LogFull | None = None
        try:
            self._lease.renew()
        except LogFull as error:
            failure = error
        hold = self._runtime.lease_hold
        if failure is not None or hold.renewal_error is not None:
            self._runtime.loop.call_soon_threadsafe(hold.note_renewal, failure)
