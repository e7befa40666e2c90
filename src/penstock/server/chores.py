"""The chores of a running broker, beside its work: checkpoints, retention, compaction, an eye on the disk.

Reading the log and writing checkpoints happens in a thread of its own; what changes the broker's state is done in the
loop, a little at a time; what changes the log is done by the thread that writes it.
"""

from __future__ import annotations

import asyncio

from penstock.journal.errors import LogError
from penstock.server.runtime import Runtime
from penstock.server.upkeep import Plan, Upkeep

#: Seconds between two looks.
INTERVAL = 1.0


class MemoryChores:
    """The one chore of a log in memory: give back what lies before the oldest message that is alive."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = self._runtime.loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def watch_disk(self) -> None:
        """There is no disk to watch."""

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            lowest = self._runtime.broker.lowest_position()
            self._runtime.keep_answers(lowest)
            self._runtime.engine.log.trim(lowest)


class Chores:
    """Does what ``Upkeep`` knows how to do, when it is due."""

    def __init__(self, runtime: Runtime, upkeep: Upkeep) -> None:
        self._runtime = runtime
        self._upkeep = upkeep
        #: The segment that was the last one when the state was last written down.
        self._task: asyncio.Task[None] | None = None
        #: What goes on in another thread.
        self._reading: asyncio.Future[Plan] | None = None
        upkeep.pins = runtime.readers.pins
        self._seen = upkeep.log.segments()[-1].first if upkeep.log.segments() else 0

    def start(self) -> None:
        """Begin."""
        self._task = self._runtime.loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop, once the thread is done with what it does: nobody else may touch the log's files meanwhile."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                self.watch_disk()
                segments = self._upkeep.log.segments()
                if segments and segments[-1].first != self._seen:
                    await self._tidy()
                    self._seen = segments[-1].first
            except Exception as error:  # whatever it is: somebody has to go on watching the disk
                reason = str(error) if isinstance(error, OSError | LogError) else repr(error)
                self._runtime.log.error("upkeep failed; the log has everything", reason=reason)

    def watch_disk(self) -> None:
        """Refuse publishing while the disk is nearly full, and tell the operator when that changes."""
        if self._upkeep.watch_disk():
            full = self._runtime.broker.disk_full
            event = "the disk is nearly full: publishing is refused" if full else "there is space on the disk again"
            self._runtime.log.warning(event, free_bytes=self._upkeep.log.free_bytes())

    async def _tidy(self) -> None:
        """A segment was finished: checkpoint, then give space back."""
        runtime, upkeep = self._runtime, self._upkeep
        now = runtime.now()
        self._reading = runtime.loop.run_in_executor(None, upkeep.plan, now)
        plan = await asyncio.shield(self._reading)
        self._reading = None  # it would keep the state of all messages until the next one
        runtime.log.debug("checkpoint written", position=plan.table.meta.position, messages=len(plan.table))
        for pin, reason in plan.dropped:
            runtime.readers.unpin(pin.reader)
            facts = {"reader": pin.reader, "position": pin.position, "reason": reason}
            runtime.log.warning("history is not kept for a reader any more", **facts)
        if not plan.before:
            return
        for _ in upkeep.carry(plan.table, plan.before, now):
            await self._commit()
        before = upkeep.log.start
        runtime.keep_answers(plan.before)
        await self._trim(plan)
        upkeep.forget_places(plan)
        runtime.log.info("history trimmed", before=before, now=upkeep.log.start)

    async def _commit(self) -> None:
        """Have what is staged committed before going on."""
        target = self._runtime.broker.log.next_position
        while self._runtime.broker.committed < target:
            self._runtime.touched()
            await asyncio.sleep(0.005)

    async def _trim(self, plan: Plan) -> None:
        done: asyncio.Future[None] = self._runtime.loop.create_future()

        def tell(error: Exception | None) -> None:
            if done.done():  # the broker ends, and nobody waits any more
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def job() -> None:
            failure = None
            try:
                self._upkeep.trim(plan)
            except Exception as error:
                failure = error
            self._runtime.loop.call_soon_threadsafe(tell, failure)

        self._runtime.commits.call(job)
        try:
            await done
        except LogError as error:  # the log takes nothing any more: don't wait for who finds out by losing a message
            self._runtime.fail(error)
            raise
