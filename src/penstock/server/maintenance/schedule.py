"""The maintenance of a running broker, beside its work: checkpoints, retention, compaction, an eye on the disk.

Reading the log and writing checkpoints happens in a thread of its own; what changes the broker's state is done in the
loop, a little at a time; what changes the log is done by the thread that writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from penstock.journal.errors import LogAway, LogError, LogFull
from penstock.server.maintenance.idle_memory import IdleMemory
from penstock.server.maintenance.upkeep import RemovalPlan, Step, Upkeep
from penstock.server.network.runtime import Runtime
from penstock.server.system.allocator import trim_heap

T = TypeVar("T")

#: Seconds between two looks.
INTERVAL = 1.0
#: Looks between two tries to give space back while it is short: each reads what was logged since the last.
PRESSED = 10
#: Looks until what has failed is tried again: they double with every failure, so often at most.
DOUBLINGS = 6


class Maintenance:
    """Does what ``Upkeep`` knows how to do, when it is due. The disk is watched all the while, by a task of its own."""

    def __init__(self, runtime: Runtime, upkeep: Upkeep) -> None:
        self._runtime = runtime
        self._upkeep = upkeep
        self._memory = IdleMemory(runtime, upkeep.log)
        self._tasks: list[asyncio.Task[None]] = []
        #: What goes on in another thread.
        self._reading: asyncio.Future[Any] | None = None
        upkeep.pins = runtime.readers.pins
        upkeep.admission.stuck = lambda: (
            runtime.commits.full is not None and not isinstance(runtime.commits.full, LogAway)
        )
        #: The extent that was the last one when the state was last written down, and where the log ended.
        self._seen = _newest(upkeep)
        self._seen_end = 0
        self._was_full = False
        #: Looks since the last time, those until the next at least, and failures in a row.
        self._waited = 0
        self._patience = 1
        self._failures = 0

    def start(self) -> None:
        """Begin."""
        self._tasks = [self._runtime.loop.create_task(each) for each in self._chores()]

    def _chores(self) -> Iterable[Coroutine[Any, Any, None]]:
        return self._watch(), self._run(), self._memory.run()

    @property
    def busy(self) -> bool:
        """Whether the thread is at work."""
        return self._reading is not None and not self._reading.done()

    async def stop(self) -> None:
        """Begin nothing more. The thread may still be at work: see ``finish``."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def finish(self) -> None:
        """Wait until the thread is done with what it does: the log must not be closed meanwhile."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._reading.exception()  # nobody asks for it any more

    # The disk

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            with contextlib.suppress(LogError, OSError):  # a disk that can't be asked is found out by who writes to it
                self.watch_disk()

    def watch_disk(self) -> None:
        """Refuse publishing while the disk is nearly full, and tell the operator when that changes."""
        self._upkeep.watch_disk()
        full = self._runtime.broker.disk_full  # it may have changed between two looks
        if full != self._was_full:
            self._was_full = full
            event = "the disk is nearly full: publishing is refused" if full else "there is space on the disk again"
            facts = {"free_bytes": self._upkeep.space.free, "needed": self._upkeep.admission.needed}
            self._runtime.log.warning(event, **facts)
        if not self._runtime.commits.full:
            self._upkeep.fill_reserve()

    # The journal

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            self._waited += 1
            if self._is_due():
                await self._try_to_tidy()

    def _is_due(self) -> bool:
        """When an extent was finished; while space is short, whenever there may be something to give back."""
        if self._waited < self._patience:
            return False
        if _newest(self._upkeep) != self._seen:
            return True
        if self._waited < PRESSED:
            return False
        broker = self._runtime.broker
        if broker.memory_full and self._upkeep.journal.memory_bytes > 0:
            return True  # also where nothing has changed: what the checkpoint before the last one needs can go then
        return broker.disk_full and (self._upkeep.log.end != self._seen_end or self._failures > 0)

    async def _try_to_tidy(self) -> None:
        newest, end = _newest(self._upkeep), self._upkeep.log.end
        self._waited = 0
        try:
            await self._tidy()
            self._seen, self._seen_end = newest, end
            self._failures, self._patience = 0, 1
            self._runtime.upkeep_trouble = ""
        except Exception as error:  # whatever it is: it is tried again, and the operator sees it meanwhile
            self._failures += 1
            self._patience = 2 ** min(self._failures, DOUBLINGS)
            reason = str(error) if isinstance(error, OSError | LogError) else repr(error)
            self._runtime.upkeep_trouble = reason
            self._runtime.log.error("upkeep failed; the log has everything", reason=reason)
        await self._runtime.loop.run_in_executor(None, trim_heap)

    async def _tidy(self) -> None:
        """Checkpoint, then give space back."""
        runtime, upkeep = self._runtime, self._upkeep
        now = runtime.now()
        plan = await self._in_thread(partial(upkeep.plan, now))
        self._tell(plan)
        before = upkeep.log.start
        for step in plan.steps:
            if not await self._give_back(plan, step, now):
                break
        if upkeep.log.start > before:
            upkeep.forget_places(plan)
            runtime.log.info("history trimmed", before=before, now=upkeep.log.start)
        if plan.unwritten is not None:
            raise plan.unwritten

    async def _in_thread(self, work: Callable[[], T]) -> T:
        reading = self._reading = self._runtime.loop.run_in_executor(None, work)
        try:
            return await asyncio.shield(reading)
        finally:
            if reading.done():
                self._reading = None  # it would keep the plan's table

    def _tell(self, plan: RemovalPlan) -> None:
        runtime = self._runtime
        if plan.unwritten is None:
            runtime.log.debug("checkpoint written", position=plan.table.meta.position, messages=len(plan.table))
        for pin, reason in plan.dropped:
            runtime.readers.unpin(pin.reader)
            facts = {"reader": pin.reader, "position": pin.position, "reason": reason}
            runtime.log.warning("history is not kept for a reader any more", **facts)
        if plan.missing:
            self._wait_for_room(plan.missing)

    async def _give_back(self, plan: RemovalPlan, step: Step, now: int) -> bool:
        """Carry what is alive in one extent forward, then remove it. False: the disk is too full for that."""
        upkeep = self._upkeep
        enough = upkeep.has_room(step.size)
        pieces, left = upkeep.pieces(plan.table, step), step.size
        while enough and (piece := next(pieces, None)) is not None:
            upkeep.carry_piece(await self._in_thread(partial(upkeep.read_piece, piece)), now)
            await self._runtime.durable()
            left -= piece.copies
            enough = upkeep.has_room(left)  # others use the disk, too
        if not enough:
            self._wait_for_room(step.size)
            return False
        await self._runtime.cold_reads.keep_answers(self._runtime.awaiting, step.before)
        await self._trim(step.before)
        return True

    def _wait_for_room(self, needed: int) -> None:
        free = self._upkeep.space.free
        self._runtime.log.warning("compaction waits for room on the disk", needed=needed, free_bytes=free)

    async def _trim(self, before: int) -> None:
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
                self._upkeep.trim(before)
            except Exception as error:
                failure = error
            self._runtime.loop.call_soon_threadsafe(tell, failure)

        self._runtime.commits.call(job)
        try:
            await done
        except LogFull:  # a database that is away, or a full disk: it is tried again
            raise
        except LogError as error:  # the log takes nothing any more: don't wait for who finds out by losing a message
            self._runtime.fail(error)
            raise


def _newest(upkeep: Upkeep) -> int:
    """The first position of the extent that grows; 0 if there is none yet."""
    extents = upkeep.log.extents()
    return extents[-1].first if extents else 0
