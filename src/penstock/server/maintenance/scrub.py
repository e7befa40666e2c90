"""Scrubbing: finding damage in old extents of the log before a consumer does.

A start reads only the blocks after its checkpoint. A thread that sleeps most of the time reads the rest once, and
messages with unreadable payloads are set aside. These are checked again every minute: once the lost data is back, its
messages return to their places.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from threading import Event
from typing import Any, TypeVar

from penstock.core.queue import Queue
from penstock.journal.contract import BadRange, Extent, Log
from penstock.server.engine.backlog import Damage, look_at
from penstock.server.network.runtime import Runtime

T = TypeVar("T")

#: Bytes of one step, most bytes a second, and how much longer the thread sleeps than it works.
STEP = 2**20
RATE = 32 * 2**20
REST = 4
#: Seconds between two checks of messages that are set aside.
AGAIN = 60.0
#: Most positions that are searched for, and most messages that are checked, between two turns of the loop.
SEARCHED = 1_000
CHECKED = 20


class Scrub:
    """Checks old extents once, and set-aside messages repeatedly."""

    def __init__(self, runtime: Runtime, log: Log, *, again: float = AGAIN) -> None:
        self._runtime = runtime
        self._log = log
        self._again = again
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._stopping = Event()

    def start(self) -> None:
        """Start the task."""
        self._task = self._runtime.loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop the task. The thread stops soon: see ``finish``."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def finish(self) -> None:
        """Wait for the thread."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._reading.exception()  # retrieved, so that asyncio does not log it

    async def _run(self) -> None:
        for extent in self._log.extents():
            if extent.finished and not extent.verified:
                await self._try(self.check(extent))
        while True:
            await asyncio.sleep(self._again)
            await self._try(self.check_again())

    async def _try(self, work: Coroutine[None, None, None]) -> None:
        """Log a failure with one extent, and go on with the others."""
        try:
            await work
        except Exception as error:
            self._runtime.log.error("the search for damage failed", reason=repr(error))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        reading = self._reading = self._runtime.loop.run_in_executor(None, work)
        return await asyncio.shield(reading)

    async def check(self, extent: Extent) -> None:
        """Read one extent, and set aside the messages in damaged parts of it."""
        runtime = self._runtime
        try:
            bad = await self._in_thread(partial(self._read, extent))
        except (OSError, LookupError):  # trimmed meanwhile, or a failing disk, which those who need the data report
            return
        for each in bad:
            lost = (each.first, each.end)
            facts = {"place": each.place, "reason": each.reason}
            runtime.log.error("the journal is damaged", **facts, lost=f"{lost[0]} to {lost[1] - 1}")
            damage = Damage(f"{each.place}: {each.reason}", lost)
            moved = [position for position, place in runtime.engine.moved.items() if lost[0] <= place < lost[1]]
            here = (position for position in range(*lost) if position not in runtime.engine.moved)
            for positions in _pieces(chain(moved, here), SEARCHED):
                await self._set_aside(positions, damage)

    async def _set_aside(self, positions: Sequence[int], damage: Damage) -> None:
        for queue in list(self._runtime.broker.queues.values()):
            found = self._runtime.broker.find(queue, positions)
            damaged = {position: damage for position in found if self._is_free(queue, position)}
            if damaged:
                self._runtime.damaged.set_aside(queue, damaged)
            await asyncio.sleep(0)

    def _is_free(self, queue: Queue, position: int) -> bool:
        """Whether a message is neither set aside nor delivered to a consumer."""
        out = queue.out.get(position)
        return position not in queue.damaged and (out is None or not out.shown)

    def _read(self, extent: Extent) -> list[BadRange]:
        bad: list[BadRange] = []
        size, began = 0, time.monotonic()
        for step, found in self._log.check(extent):
            bad += [found] if found is not None else []
            size += step
            if size >= STEP:
                took = time.monotonic() - began
                if self._stopping.wait(max(REST * took, size / RATE - took)):
                    break
                size, began = 0, time.monotonic()
        return bad

    async def check_again(self) -> None:
        """Return set-aside messages to their places if they can be read again."""
        runtime = self._runtime
        self._log.forget_damage()
        for queue in list(runtime.broker.queues.values()):
            for positions in _pieces(list(queue.damaged), CHECKED):
                await self._put_back(queue, positions)

    async def _put_back(self, queue: Queue, positions: Iterable[int]) -> None:
        runtime = self._runtime
        moved = runtime.engine.moved
        places = {at: moved.get(at, at) for at in positions}
        found = await self._in_thread(lambda: {at: look_at(self._log, place) for at, place in places.items()})
        sound = [at for at, each in found.items() if not isinstance(each, Damage) and at in queue.damaged]
        if runtime.broker.put_back(queue, sound, runtime.now()):
            facts = {"queue": queue.full_name, "messages": len(sound), "first": min(sound), "last": max(sound)}
            runtime.log.info("damaged messages can be read again, and are back", **facts)
            runtime.touched()


def _pieces(values: Iterable[int], size: int) -> Iterator[list[int]]:
    rest = iter(values)
    while piece := list(islice(rest, size)):
        yield piece
