"""Keeping the lease on a shared journal, whatever the event loop does.

A thread of its own renews the lease, even during a commit. So neither a long turn of the loop nor a slow link costs the
lease. A broker that is stuck must lose it: the thread stops renewing once the loop has shown no life for
``MOST_SILENT`` seconds, or a commit has taken as long, plus a second for each ``SLOWEST`` bytes of it. Then the lease
expires, and another broker takes over.
"""

from __future__ import annotations

import asyncio
import time
from threading import Event, Thread

from penstock.journal.contract import Lease
from penstock.journal.errors import LogAway, LogFull
from penstock.server.network.runtime import Runtime

#: Checks per duration of a lease. Each renews it, unless an append has done so since the last.
CHECKS = 6
#: Longest silence of the loop, and longest commit, in seconds.
MOST_SILENT = 30.0
#: Least bytes a second over a link.
SLOWEST = 128 * 1024


class LeaseKeeper:
    """Renews the lease in a thread. The thread that writes the log repeats failed renewals, and reports why."""

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
        """Start the thread."""
        self._show_life()
        Thread(target=self._run, name="penstock-lease", daemon=True).start()

    async def stop(self) -> None:
        """Stop the thread. A renewal in progress may still finish: it does not renew a released lease."""
        self._stopping.set()
        if self._beat is not None:
            self._beat.cancel()

    def _show_life(self) -> None:
        self.alive_at = time.monotonic()
        self._beat = self._runtime.loop.call_later(self._lease.seconds / CHECKS, self._show_life)

    # In the thread

    def _run(self) -> None:
        while not self._stopping.wait(self._lease.seconds / CHECKS):
            self.check()

    def check(self) -> None:
        """Renew the lease, unless an append has done so since the last check, or the broker is stuck."""
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
            return True  # no room: another broker would have none, either
        return now - began <= MOST_SILENT + size / SLOWEST

    def _renew(self) -> None:
        """Renew in the log's thread. A database that is away is tried again; any other failure ends the broker."""
        self._asked = False
        failure: LogFull | None = None
        try:
            self._lease.renew()
        except LogFull as error:
            failure = error
        hold = self._runtime.lease_hold
        if failure is not None or hold.renewal_error is not None:
            self._runtime.loop.call_soon_threadsafe(hold.note_renewal, failure)
