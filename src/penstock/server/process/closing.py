"""The end of a broker's work on its journal: the last commit and checkpoint; then the journal is closed."""

from __future__ import annotations

import asyncio
import contextlib

from penstock.journal.errors import LogAway, LogError, LogFull
from penstock.server.maintenance.schedule import Maintenance
from penstock.server.maintenance.scrub import Scrub
from penstock.server.maintenance.upkeep import Upkeep
from penstock.server.network.runtime import Runtime

#: Most messages, and events since the last checkpoint, of a last checkpoint on a shared journal. A larger one would
#: delay the next owner, which has followed the state anyway.
SMALL_CHECKPOINT = 200_000


class Closing:
    """Closes the journal of a broker that serves no more."""

    def __init__(self, runtime: Runtime, upkeep: Upkeep, maintenance: Maintenance, scrub: Scrub) -> None:
        self._runtime = runtime
        self._upkeep = upkeep
        self._journal = upkeep.journal
        self._maintenance = maintenance
        self._scrub = scrub

    async def run(self, failure: Exception | None, *, gives_way: bool) -> Exception | None:
        """Commit the rest unless there is a failure, and close the journal. Returns the failure, or a new one."""
        runtime, now = self._runtime, self._runtime.now()
        runtime.stop()
        try:
            if failure is None and runtime.lease_hold.suspended:
                return LogAway("the database did not answer when the broker was stopped")
            if failure is None:
                runtime.commits.close(now)
                self._finish_journal(now)
            elif gives_way:
                runtime.pacing.give_up(failure)
                await asyncio.to_thread(self._end_commits, now)
        except (LogError, OSError) as error:
            return failure or error
        finally:
            await self.join_readers()  # after the lease was released, so the next owner does not wait for them
            with contextlib.suppress(LogError):
                await asyncio.to_thread(self._journal.close)
        return failure

    async def join_readers(self) -> None:
        """Wait for the threads that read the log."""
        self._runtime.backlog.close()
        await asyncio.to_thread(self._runtime.backlog.join)
        await self._maintenance.finish()
        await self._scrub.finish()

    def _end_commits(self, now: int) -> None:
        """End the thread that writes the log, which accepts nothing any more."""
        with contextlib.suppress(LogError):
            self._runtime.commits.close(now)

    def _finish_journal(self, now: int) -> None:
        """Write the last checkpoint, and release the lease."""
        if self._runtime.options.ephemeral:
            return
        self._upkeep.log.sync()
        lease = self._journal.lease
        if lease is None or (not self._maintenance.busy and self._is_small()):
            self._write_checkpoint(now)
        if lease is not None:
            lease.release()

    def _is_small(self) -> bool:
        newest = self._upkeep.checkpoints.positions()[-1:]
        events = self._upkeep.log.end - (newest[0] if newest else self._upkeep.log.start)
        messages = sum(queue.counters.balance for queue in self._runtime.broker.queues.values())
        return max(events, messages) <= SMALL_CHECKPOINT

    def _write_checkpoint(self, now: int) -> None:
        try:
            self._upkeep.checkpoint(now, clean=True)
        except LogFull as error:  # no failure of the stop: the next start reads more of the log instead
            self._runtime.log.warning("no room for a last checkpoint", reason=str(error))
