"""Keeping the lease on a journal that others may take over, while nothing else renews it."""

from __future__ import annotations

import asyncio

from penstock.journal.contract import Lease
from penstock.journal.errors import LogFull
from penstock.server.runtime import Runtime

#: How often it is looked at, and renewed unless an append has done so meanwhile, in parts of the lease.
LOOKS = 6


class LeaseKeeper:
    """Renews the lease in the thread that writes the log: a commit that is under way does it as well."""

    def __init__(self, runtime: Runtime, lease: Lease) -> None:
        self._runtime = runtime
        self._lease = lease
        self._task: asyncio.Task[None] | None = None
        self._asked = False

    def start(self) -> None:
        """Begin."""
        self._task = self._runtime.loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop. A renewal that is under way is finished."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        seen = self._lease.deadline
        while True:
            await asyncio.sleep(self._lease.seconds / LOOKS)
            if self._lease.deadline == seen and not self._asked:
                self._asked = True
                self._runtime.commits.call(self._renew)
            seen = self._lease.deadline

    def _renew(self) -> None:
        """In the log's thread. A database that is away is asked again; all else ends the broker."""
        self._asked = False
        failure: LogFull | None = None
        try:
            self._lease.renew()
        except LogFull as error:
            failure = error
        if failure is not None or self._runtime.unrenewed is not None:
            self._runtime.loop.call_soon_threadsafe(self._note, failure)

    def _note(self, error: LogFull | None) -> None:
        """Log what is new of it: this comes several times a second."""
        before, self._runtime.unrenewed = self._runtime.unrenewed, error
        if error is None or type(error) is type(before):
            return
        self._runtime.log.warning("the lease on the journal can not be renewed", reason=str(error))
