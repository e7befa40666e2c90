"""Returning spare memory to the system while the broker is idle.

Spare memory is in three places: blocks of the journal that were read for a backlog; free lists of Python objects, which
keep the pages around them, too; and free pages in the middle of the C library's heap. A busy broker is about to use all
of it again, so only an idle one returns it.
"""

from __future__ import annotations

import asyncio

from penstock.journal.contract import Log
from penstock.server.network.runtime import Runtime
from penstock.server.system.allocator import trim_heap
from penstock.server.system.collector import free_spares

#: Seconds between two checks. If nothing has happened since the last one, the broker is idle.
INTERVAL = 0.25
#: Events after which there may be memory to return.
WORK = 10_000
#: Most connections and queues for emptying Python's free lists, which is a pass over all objects while clients wait.
#: This many messages in flight count as one.
FEW = 1_000
OUT_PART = 10


class IdleMemory:
    """Checks whether the broker is idle, and returns spare memory then."""

    def __init__(self, runtime: Runtime, log: Log) -> None:
        self._runtime = runtime
        self._log = log
        self._seen = (0.0, log.end)
        #: The end of the log when memory was last returned.
        self._returned_at = log.end

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            if self.check():
                await self._runtime.loop.run_in_executor(None, trim_heap)

    def check(self) -> bool:
        """Free spare objects if the broker is idle. True: the heap should be trimmed, which may take a while."""
        seen = (self._runtime.turns.received_at, self._log.end)
        idle, self._seen = seen == self._seen, seen
        self._log.forget_unused()  # not only if idle: publishing may go on without consumers
        if not idle or self._log.end - self._returned_at < WORK:
            return False
        self._returned_at = self._log.end
        broker = self._runtime.broker
        if len(self._runtime.sessions) + len(broker.queues) + broker.out // OUT_PART <= FEW:
            free_spares()
        return True
