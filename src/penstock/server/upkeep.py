"""Keeping the journal small and its start quick: checkpoints, retention, compaction, and an eye on the disk.

*Retention* moves the history floor: below it, settled history is no longer shown, and its space may be given back.
Space goes back in whole segments, oldest first. *Compaction* makes that possible where old segments still hold live
messages: it carries them forward, when the segments that can go then are at least twice as large as what is copied.
So the disk holds at most the history, plus twice the live messages. Readers may *pin* history that they have not read
yet, within limits; then the floor waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.core.table import Table
from penstock.journal.checkpoints import Checkpoints
from penstock.journal.errors import UNREADABLE
from penstock.journal.files import FileLog
from penstock.journal.rows import Message
from penstock.server.engine import Engine, locations, recover
from penstock.server.readers import Pin

#: Publishing is refused while the disk has less room than this. Consuming goes on, and needs some: an acknowledgement
#: in a commit of its own takes about 200 bytes (a million of them, 200 MB), segments are reserved ahead in steps of
#: 4 MiB, a checkpoint takes 16 bytes or more for each waiting message (10 million: 160 MB, and the new one is written
#: before an old one goes), and compaction writes its copies before it gives anything back. This covers all of that.
MIN_FREE = 2**30
#: Publishing is taken up again when there is this much more room than that, in parts of it: when space comes back in
#: drops, publishers must not be let in and out with each.
HYSTERESIS = 8

#: Messages, and payload bytes, that are carried forward in one step.
CARRY_MESSAGES = 1_000
CARRY_BYTES = 4 * 2**20
#: Bytes that a message takes on disk besides its payload, roughly.
ROW_BYTES = 16


class Retention(NamedTuple):
    """How much settled history is kept for readers; 0 = without limit. Live messages are always kept."""

    age: int = 7 * 24 * 3600 * 1_000_000
    bytes: int = 0
    #: For pins: how long ago the reader may have been heard of (0 = there are none), and bytes beyond all this.
    pin_age: int = 7 * 24 * 3600 * 1_000_000
    pin_bytes: int = 10 * 2**30


class SegmentUse(NamedTuple):
    """A segment and what of it is still alive."""

    first: int
    end: int
    size: int
    last_at: int
    live_messages: int
    live_bytes: int


class Plan(NamedTuple):
    """What can go: the segments below ``before`` (0 = none), once the live messages in them are carried forward."""

    table: Table
    before: int
    #: Pins that history could not be kept for, and why.
    dropped: Sequence[tuple[Pin, str]] = ()


class Upkeep:
    """The chores of an engine on a FileLog: ``checkpoint`` when a segment is finished, ``retain`` now and then."""

    def __init__(
        self,
        engine: Engine,
        log: FileLog,
        checkpoints: Checkpoints,
        retention: Retention | None = None,
        *,
        min_free: int = MIN_FREE,
    ) -> None:
        self.engine = engine
        self.log = log
        self.checkpoints = checkpoints
        self.retention = retention or Retention()
        self.min_free = min_free
        #: Segments with live messages that can't be read: they are not thrown away.
        self.damaged: set[str] = set()
        #: Asked for the pins of readers, in whatever thread.
        self.pins: Callable[[], list[Pin]] = list

    def watch_disk(self) -> bool:
        """Refuse publishing while the disk is nearly full. Returns whether that has changed: worth a line in the log.

        Call it every second or so, and once before the first peer is let in. Space that is reserved for the newest
        segment counts as used.
        """
        broker, free = self.engine.broker, self.log.free_bytes()
        was_full = broker.disk_full
        broker.disk_full = free < self.min_free + (self.min_free // HYSTERESIS if was_full else 0)
        return broker.disk_full != was_full

    def checkpoint(self, now: int, *, clean: bool = False) -> Table:
        """Write down the state at the end of the synced log, worked out from the log alone.

        The broker is not looked at, so this may run in another thread, beside the broker.
        """
        table = recover(self.log, self.checkpoints.newest_good(), self.log.synced)
        table.forget_requests(now)
        self.checkpoints.write(table.meta.position, msgspec.json.encode(table.meta), table.columns, clean=clean)
        return table

    def floor(self, now: int) -> int:
        """Where history should begin now, if nobody has pinned it: the first segment that retention keeps."""
        segments = self.log.segments()
        floor = self.log.floor
        total = sum(segment.size for segment in segments)
        for segment in segments[:-1]:
            too_old = self.retention.age and segment.last_at < now - self.retention.age
            too_much = self.retention.bytes and total > self.retention.bytes
            if not (too_old or too_much):
                break
            total -= segment.size
            floor = max(floor, segment.end)
        return floor

    def pinned(self, floor: int, now: int) -> tuple[int, list[tuple[Pin, str]]]:
        """Where history should begin so that readers can read what they have not, and which of them can't be helped."""
        dropped: list[tuple[Pin, str]] = []
        segments = self.log.segments()
        for pin in sorted(self.pins(), key=lambda pin: pin.position):
            if pin.position >= floor:
                break
            kept = [each for each in segments if pin.position < each.end <= floor]
            if now - pin.at > self.retention.pin_age:
                dropped.append((pin, "it was not heard of for too long"))
            elif self.retention.pin_bytes and sum(each.size for each in kept) > self.retention.pin_bytes:
                dropped.append((pin, "it would keep too many bytes"))
            elif kept:
                return max(self.log.floor, kept[0].first), dropped
        return floor, dropped

    def use(self, table: Table) -> list[SegmentUse]:
        """What of each segment is alive, as the table says."""
        segments = self.log.segments()
        places = table.places()
        which = np.searchsorted(np.array([segment.first for segment in segments], np.uint64), places, side="right") - 1
        there = which >= 0  # what lies before the log is damaged, and lies in a segment that is kept for it
        counts = np.bincount(which[there], minlength=len(segments))
        weights = table.columns["size"][there] + np.float64(ROW_BYTES)
        sizes = np.bincount(which[there], weights, minlength=len(segments))
        return [
            SegmentUse(segment.first, segment.end, segment.size, segment.last_at, int(counts[i]), int(sizes[i]))
            for i, segment in enumerate(segments)
        ]

    def victims(self, table: Table) -> int:
        """Up to which position segments should go: below the floor, and worth the copying. 0 = none."""
        limit = min(self.log.floor, *self.checkpoints.positions())
        best = total = live = 0
        for segment in self.use(table)[:-1]:
            if segment.end > limit:
                break
            total += segment.size
            live += segment.live_bytes
            if 2 * live <= total:
                best = segment.end
        return best

    def carry(self, table: Table, before: int, now: int) -> Iterator[int]:
        """Carry the live messages that lie below a position forward, a step at a time.

        Each step stages a few; commit between the steps. Yields how many were copied so far.
        """
        rows = np.flatnonzero(table.places() < before)
        copied = 0
        for step in _steps(rows.tolist(), table.columns["size"][rows].tolist()):
            messages, queues = self._readable(table, step, now)
            moved = self.engine.broker.carry(messages, queues, now)
            self.engine.move(moved)
            copied += len(moved)
            yield copied

    def _readable(self, table: Table, rows: list[int], now: int) -> tuple[list[Message], list[int]]:
        """Live messages and their queues. Those that can't be read are set aside, and the segments they lie in kept."""
        positions: list[int] = table.columns["position"][rows].tolist()
        numbers: list[int] = table.columns["queue"][rows].tolist()
        try:
            return self.engine.messages(positions), numbers
        except UNREADABLE:
            damaged = self.engine.damage(positions)
        broker, segments = self.engine.broker, self.log.segments()
        queues = dict(zip(positions, numbers, strict=True))
        for position, damage in damaged.items():
            number = queues.pop(position)
            queue = broker.queues.get(broker.homes.get(position, number))
            if queue is not None:
                broker.set_aside(queue, {position: damage.reason}, now)
            place = self.engine.moved.get(position, position)
            self.damaged |= {segment.name for segment in segments if segment.first <= place < segment.end}
        return self.engine.messages(list(queues)), list(queues.values())

    def plan(self, now: int) -> Plan:
        """Move the floor, write a checkpoint, and see what can go. May run in another thread, beside the broker."""
        floor, dropped = self.pinned(self.floor(now), now)
        self.log.set_floor(floor)
        table = self.checkpoint(now)
        self.release_kept(table)
        return Plan(table, self.victims(table), dropped)

    def trim(self, plan: Plan) -> None:
        """Give the space back. Everything was carried and committed before; the thread that writes must do this."""
        self.log.sync()  # the copies must be on disk before the originals go, whatever the durability
        self.log.trim(plan.before, self.damaged)

    def release_kept(self, table: Table) -> None:
        """Segments that were kept for damaged messages go when none of these lies there any more."""
        places = table.places()
        for kept in self.log.kept():
            if not ((places >= kept.first) & (places < kept.end)).any():
                self.log.release(kept)

    def forget_places(self, plan: Plan) -> None:
        """Of messages that are no more, nobody has to know where they lie. Those carried since are all kept."""
        known = locations(plan.table)
        self.engine.moved = {
            position: place
            for position, place in self.engine.moved.items()
            if place >= plan.table.meta.position or position in known
        }

    def retain(self, now: int) -> int:
        """All of it, for callers without a loop to keep free. Returns how many segments went."""
        before = len(self.log.segments())
        plan = self.plan(now)
        if plan.before:
            for _ in self.carry(plan.table, plan.before, now):
                self.engine.commit(now)
            self.trim(plan)
            self.engine.settle()
            self.forget_places(plan)
        return before - len(self.log.segments())


def _steps(rows: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Cut rows into steps of bounded count and bytes."""
    step: list[int] = []
    total = 0
    for row, size in zip(rows, sizes, strict=True):
        if step and (len(step) >= CARRY_MESSAGES or total + size > CARRY_BYTES):
            yield step
            step, total = [], 0
        step.append(row)
        total += size
    if step:
        yield step
