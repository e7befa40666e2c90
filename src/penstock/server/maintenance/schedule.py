"""When a running broker does its upkeep: checkpoints, retention, compaction, and checks of the disk.

Reading the log and writing checkpoints happens in a thread of its own. Changes of the broker's state happen in the
loop, a little at a time; changes of the log in the thread that writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.journal.errors import LogAway, LogError, LogFull
from penstock.server.maintenance.compaction import Step
from penstock.server.maintenance.idle_memory import IdleMemory
from penstock.server.maintenance.upkeep import RemovalPlan, Upkeep
from penstock.server.network.runtime import Runtime
from penstock.server.system.allocator import trim_heap

T = TypeVar("T")

#: Seconds between two checks.
INTERVAL = 1.0
#: Checks between two attempts to free space while it is short: each attempt reads what was logged since the last.
PRESSED = 10
#: The number of checks before a retry doubles with every failure, this often at most.
DOUBLINGS = 6


class Maintenance:
    """Runs ``Upkeep`` when it is due. A separate task checks the disk."""

    def __init__(self, runtime: Runtime, upkeep: Upkeep) -> None:
        self._runtime = runtime
        self._upkeep = upkeep
        self._memory = IdleMemory(runtime, upkeep.log)
        self._tasks: list[asyncio.Task[None]] = []
        #: The work that runs in the thread.
        self._reading: asyncio.Future[Any] | None = None
        upkeep.admission.refuse_while(
            lambda: runtime.commits.full is not None and not isinstance(runtime.commits.full, LogAway)
        )
        #: The newest extent, and the end of the log, at the last checkpoint.
        self._newest_seen = self._newest_extent()
        self._end_seen = 0
        self._was_full = False
        #: Checks since the last attempt, the least number before the next one, and failures in a row.
        self._waited = 0
        self._patience = 1
        self._failures = 0

    def start(self) -> None:
        """Start the tasks."""
        jobs = (self._check_disk_always(), self._run(), self._memory.run())
        self._tasks = [self._runtime.loop.create_task(job) for job in jobs]

    @property
    def busy(self) -> bool:
        """Whether the thread is working."""
        return self._reading is not None and not self._reading.done()

    async def stop(self) -> None:
        """Stop the tasks. The thread may still be working: see ``finish``."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def finish(self) -> None:
        """Wait for the thread: the log must not be closed meanwhile."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._reading.exception()  # retrieved, so that asyncio does not log it

    # The disk

    async def _check_disk_always(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            with contextlib.suppress(LogError, OSError):  # the next write reports a disk that fails
                self.check_disk()

    def check_disk(self) -> None:
        """Refuse publishing while the disk is nearly full, and log changes."""
        self._upkeep.admission.look()
        full = self._runtime.broker.disk_full  # it may have changed between two checks
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
                await self._try_upkeep()

    def _is_due(self) -> bool:
        """Upkeep is due when an extent is finished and, while space is short, whenever it may free some."""
        if self._waited < self._patience:
            return False
        if self._newest_extent() != self._newest_seen:
            return True
        if self._waited < PRESSED:
            return False
        broker = self._runtime.broker
        if broker.memory_full and self._upkeep.journal.memory_bytes > 0:
            return True  # even without new events: history that only the last but one checkpoint needs can go
        return broker.disk_full and (self._upkeep.log.end != self._end_seen or self._failures > 0)

    async def _try_upkeep(self) -> None:
        newest, end = self._newest_extent(), self._upkeep.log.end
        self._waited = 0
        try:
            await self._do_upkeep()
            self._newest_seen, self._end_seen = newest, end
            self._failures, self._patience = 0, 1
            self._runtime.health.note_upkeep("")
        except Exception as error:  # of any kind: upkeep is tried again, and metrics and health show the trouble
            self._failures += 1
            self._patience = 2 ** min(self._failures, DOUBLINGS)
            reason = str(error) if isinstance(error, OSError | LogError) else repr(error)
            self._runtime.health.note_upkeep(reason)
            self._runtime.log.error("upkeep failed; the log has everything", reason=reason)
        await self._runtime.loop.run_in_executor(None, trim_heap)

    async def _do_upkeep(self) -> None:
        """Write a checkpoint, then give space back."""
        runtime, upkeep = self._runtime, self._upkeep
        now = runtime.now()
        plan = await self._in_thread(partial(upkeep.plan, now, runtime.readers.pins()))
        self._report(plan)
        before = upkeep.log.start
        for step in plan.steps:
            if not await self._give_back(plan, step, now):
                break
        if upkeep.log.start > before:
            upkeep.compaction.forget_places(plan.table)
            runtime.log.info("history trimmed", before=before, now=upkeep.log.start)
        if plan.unwritten is not None:
            raise plan.unwritten

    async def _in_thread(self, work: Callable[[], T]) -> T:
        reading = self._reading = self._runtime.loop.run_in_executor(None, work)
        try:
            return await asyncio.shield(reading)
        finally:
            if reading.done():
                self._reading = None  # it would keep the plan's table in memory

    def _report(self, plan: RemovalPlan) -> None:
        runtime = self._runtime
        if plan.unwritten is None:
            runtime.log.debug("checkpoint written", position=plan.table.meta.position, messages=len(plan.table))
        for pin, reason in plan.lapsed:
            runtime.readers.unpin(pin.reader)
            facts = {"reader": pin.reader, "position": pin.position, "reason": reason}
            runtime.log.warning("history is not kept for a reader any more", **facts)
        if plan.missing:
            self._wait_for_room(plan.missing)

    async def _give_back(self, plan: RemovalPlan, step: Step, now: int) -> bool:
        """Carry the live messages of one extent forward, then remove it. False: the disk is too full for that."""
        compaction, has_room = self._upkeep.compaction, self._upkeep.space.has_room
        enough = has_room(step.size)
        pieces, left = compaction.pieces(plan.table, step), step.size
        while enough and (piece := next(pieces, None)) is not None:
            compaction.carry_piece(await self._in_thread(partial(compaction.read_piece, piece)), now)
            await self._runtime.durable()
            left -= piece.copies
            enough = has_room(left)  # other programs use the disk, too
        if not enough:
            self._wait_for_room(step.size)
            return False
        await self._runtime.cold_reads.keep_answers(self._runtime.output.awaiting, step.before)
        await self._trim(step.before)
        return True

    def _wait_for_room(self, needed: int) -> None:
        free = self._upkeep.space.free
        self._runtime.log.warning("compaction waits for room on the disk", needed=needed, free_bytes=free)

    async def _trim(self, before: int) -> None:
        done: asyncio.Future[None] = self._runtime.loop.create_future()

        def report(error: Exception | None) -> None:
            if done.done():  # cancelled: the broker ends
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def job() -> None:
            failure = None
            try:
                self._upkeep.compaction.trim(before)
            except Exception as error:
                failure = error
            self._runtime.loop.call_soon_threadsafe(report, failure)

        self._runtime.commits.call(job)
        try:
            await done
        except LogFull:  # a database that is away, or a full disk: tried again
            raise
        except LogError as error:  # the log accepts nothing any more: end now, rather than at the next lost message
            self._runtime.fail(error)
            raise

    def _newest_extent(self) -> int:
        """The first position of the newest extent, which still grows; 0 if there is none yet."""
        extents = self._upkeep.log.extents()
        return extents[-1].first if extents else 0
