"""Memory that work has left over goes back to the system as soon as the broker rests.

Three things hold it: blocks of the journal that were read for a backlog, objects that Python keeps for the next of
their kind, which keep the pages around them too, and free pages in the middle of the C library's heap. While there is
work all of it is about to be used again; so nothing is given back before a while without any.
"""

from __future__ import annotations

import asyncio

from penstock.journal.contract import Log
from penstock.server.network.runtime import Runtime
from penstock.server.system.allocator import trim_heap
from penstock.server.system.collector import free_spares

#: Seconds between two looks; when nothing has happened between them, the broker rests.
INTERVAL = 0.25
#: Events after which there may be something to give back.
WORK = 10_000
#: Peers and queues up to which Python's spare objects are freed: it looks at all objects for that, and everybody waits.
#: Of messages that are out, so many count as one.
FEW = 1_000
OUT_PART = 10


class IdleMemory:
    """Looks whether the broker rests, and gives memory back then."""

    def __init__(self, runtime: Runtime, log: Log) -> None:
        self._runtime = runtime
        self._log = log
        self._seen = (0.0, log.end)
        #: Where the log ended when memory was last given back.
        self._given_at = log.end

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            if self.look():
                await self._runtime.loop.run_in_executor(None, trim_heap)

    def look(self) -> bool:
        """Give back what there is if the broker rests. True: the heap is worth trimming, which may take a while."""
        seen = (self._runtime.turns.received_at, self._log.end)
        rests, self._seen = seen == self._seen, seen
        self._log.forget_unused()  # also beside publishers, where nobody consumes any more
        if not rests or self._log.end - self._given_at < WORK:
            return False
        self._given_at = self._log.end
        broker = self._runtime.broker
        if len(self._runtime.sessions) + len(broker.queues) + broker.out // OUT_PART <= FEW:
            free_spares()
        return True
