"""Draining: no new clients; the rest is committed, answered and sent; messages in flight return to their queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from penstock.server.network.listeners import OpenListener
from penstock.server.network.runtime import Runtime
from penstock.server.process.companions import Companions

#: Longest time for reading what clients still send, in seconds.
LAST_READS = 0.3
#: Longest wait for room on a full disk, in seconds.
WAIT_FOR_ROOM = 1.0
#: Longest wait for slow clients before another broker can take over, in seconds.
WAIT_FOR_PEERS = 0.3


class Drain:
    """Ends the sessions of a broker. Once ``failed`` returns true, it waits for no client."""

    def __init__(
        self,
        runtime: Runtime,
        listeners: Sequence[OpenListener],
        companions: Companions,
        failed: Callable[[], bool],
    ) -> None:
        self._runtime = runtime
        self._listeners = listeners
        self._companions = companions
        self._failed = failed

    async def run(self, seconds: float) -> None:
        """Drain, in at most ``seconds``."""
        stuck = self._runtime.commits.full is not None or self._runtime.lease_hold.suspended
        patience = WAIT_FOR_ROOM if stuck else seconds
        deadline = time.monotonic() + patience
        await self._read_the_rest()
        for listener in self._listeners:
            await listener.close()
        if not self._failed():
            await self._settle(deadline)
        for session in list(self._runtime.sessions.values()):
            session.transport.abort()
        await asyncio.sleep(0)

    async def _settle(self, deadline: float) -> None:
        """Wait until everything is committed and answered, and end the sessions."""
        runtime = self._runtime
        runtime.broker.drain(runtime.now())
        runtime.turns.run()
        await self._wait(lambda: runtime.broker.log.staged or runtime.output.awaiting, deadline)
        await self._companions.close_socket(max(0.0, deadline - time.monotonic()))
        for session in list(runtime.sessions.values()):
            session.end()
        if runtime.lease_hold.needed:
            deadline = min(deadline, time.monotonic() + WAIT_FOR_PEERS)
        await self._wait(lambda: runtime.sessions, deadline)

    async def _read_the_rest(self) -> None:
        """Accept what arrived before the signal: clients that send and hang up could not learn otherwise."""
        runtime, ends = self._runtime, time.monotonic() + LAST_READS
        while not self._failed() and time.monotonic() < ends:
            before = runtime.loop.time()
            await asyncio.sleep(0.02)
            if runtime.turns.received_at < before and not (runtime.memory.congested or runtime.turns.has_input):
                return

    async def _wait(self, busy: Callable[[], object], deadline: float) -> None:
        while busy() and not self._failed() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
