"""Keeping the journal small and its start quick: checkpoints, retention, compaction, and an eye on the disk.

*Retention* moves the history floor: below it, settled history is no longer shown, and its space may be given back.
Space goes back in whole extents of the log, oldest first. *Compaction* makes that possible where old extents still hold
live messages: it carries them forward, when the extents that can go then are at least twice as large as what is copied.
So the journal holds at most the history, plus twice the live messages. It goes extent by extent, and each gives its
space back before the next is begun; there must be room for each step. Readers may *pin* history that they
have not read yet, within limits; then the floor waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.core.recovery.event_columns import Array
from penstock.core.recovery.table import Table
from penstock.journal.contract import OwnedJournal
from penstock.journal.errors import UNREADABLE, LogFull
from penstock.journal.format.rows import MessageRow
from penstock.server.engine.backlog import Damage, look_at
from penstock.server.engine.engine import Engine, locations, recover, table_of
from penstock.server.limits.admission import MIN_FREE, Admission
from penstock.server.registry.readers import Pin

#: Messages, and payload bytes, that are carried forward in one step.
CARRY_MESSAGES = 1_000
CARRY_BYTES = 4 * 2**20
#: Bytes that the copy of a message takes on disk besides its payload, roughly; and those that it may take.
ROW_BYTES = 48
COPY_BYTES = 128
#: Rows of a table that are counted together.
COUNTED = 2**16


class Retention(NamedTuple):
    """How much settled history is kept for readers; 0 = without limit. Live messages are always kept."""

    age: int = 7 * 24 * 3600 * 1_000_000
    bytes: int = 0
    #: For pins: how long ago the reader may have been heard of (0 = there are none), and bytes beyond all this.
    pin_age: int = 7 * 24 * 3600 * 1_000_000
    pin_bytes: int = 10 * 2**30


class ExtentUse(NamedTuple):
    """An extent and what of it is still alive."""

    first: int
    end: int
    size: int
    last_at: int
    live_messages: int
    live_bytes: int


class Step(NamedTuple):
    """What gives back one extent: it can go once these rows of the plan's table are carried forward."""

    before: int
    rows: Array
    #: What the copies may take.
    size: int


class Piece(NamedTuple):
    """Live messages that are carried forward together, with the numbers of their queues."""

    positions: list[int]
    queues: list[int]
    #: What their copies may take.
    copies: int


class ReadPiece(NamedTuple):
    """The same, read from the log."""

    messages: list[MessageRow]
    #: By position, of those that could be read, the numbers of their queues; and of all.
    queues: dict[int, int]
    numbers: dict[int, int]
    damaged: dict[int, Damage]
    #: Where all of them lie.
    places: dict[int, int]


class RemovalPlan(NamedTuple):
    """What can go, step by step."""

    table: Table
    steps: Sequence[Step] = ()
    #: Pins that history could not be kept for, and why.
    dropped: Sequence[tuple[Pin, str]] = ()
    #: Why the state could not be written down, if it could not.
    unwritten: LogFull | None = None
    #: The room that is missing to give more back.
    missing: int = 0


class Upkeep:
    """The upkeep of an engine's journal: ``checkpoint`` when an extent is finished, ``retain`` now and then."""

    def __init__(
        self,
        engine: Engine,
        journal: OwnedJournal,
        retention: Retention | None = None,
        *,
        min_free: int = MIN_FREE,
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.log = journal.log
        self.checkpoints = journal.checkpoints
        self.space = journal.space
        self.retention = retention or Retention()
        self.admission = Admission(engine, journal.space, min_free)
        #: First positions of extents with live messages that can't be read: they are not thrown away.
        self.damaged: set[int] = set()
        #: Asked for the pins of readers, in whatever thread.
        self.pins: Callable[[], list[Pin]] = list

    def watch_disk(self) -> bool:
        """Refuse publishing while the disk is nearly full. Returns whether that has changed: worth a line in the log.

        Call it every second or so, and once before the first peer is let in. Space that is reserved for the newest
        extent counts as used.
        """
        return self.admission.look()

    def fill_reserve(self) -> None:
        """Have a reserve, if there is room for it. May run in another thread."""
        newest = self.checkpoints.positions()[-1:]
        state = sum(self.checkpoints.size(position) for position in newest)
        self.space.fill_reserve(self.admission.min_free, state)

    def has_room(self, size: int) -> bool:
        """Whether compaction may write so many bytes. Nothing needs no room: then it only gives back."""
        return self.space.has_room(size)

    def checkpoint(self, now: int, *, clean: bool = False) -> Table:
        """Write down the state at the end of the synced log, worked out from the log alone.

        The broker is not looked at, so this may run in another thread, beside the broker.
        """
        table = self.state(now)
        self.write_down(table, clean=clean)
        return table

    def state(self, now: int) -> Table:
        """The state at the end of the synced log."""
        table = recover(self.log, table_of(self.checkpoints.newest_good()), self.log.synced)
        table.forget_requests(now)
        return table

    def write_down(self, table: Table, *, clean: bool = False) -> None:
        """Make a checkpoint of it. Raises OSError, or LogFull without room."""
        self.checkpoints.write(table.meta.position, msgspec.json.encode(table.meta), table.columns, clean=clean)

    def floor(self, now: int) -> int:
        """Where history should begin now, if nobody has pinned it: the first extent that retention keeps."""
        extents = self.log.extents()
        floor = self.log.floor
        total = sum(extent.size for extent in extents)
        for extent in extents[:-1]:
            too_old = self.retention.age and extent.last_at < now - self.retention.age
            too_much = self.retention.bytes and total > self.retention.bytes
            if not (too_old or too_much):
                break
            total -= extent.size
            floor = max(floor, extent.end)
        return floor

    def pinned(self, floor: int, now: int) -> tuple[int, list[tuple[Pin, str]]]:
        """Where history should begin so that readers can read what they have not, and which of them can't be helped."""
        dropped: list[tuple[Pin, str]] = []
        extents = self.log.extents()
        for pin in sorted(self.pins(), key=lambda pin: pin.position):
            if pin.position >= floor:
                break
            kept = [each for each in extents if pin.position < each.end <= floor]
            if now - pin.at > self.retention.pin_age:
                dropped.append((pin, "it was not heard of for too long"))
            elif self.retention.pin_bytes and sum(each.size for each in kept) > self.retention.pin_bytes:
                dropped.append((pin, "it would keep too many bytes"))
            elif kept:
                return max(self.log.floor, kept[0].first), dropped
        return floor, dropped

    def use(self, table: Table) -> list[ExtentUse]:
        """What of each extent is alive, as the table says."""
        extents = self.log.extents()
        counts, sizes = np.zeros(len(extents), np.int64), np.zeros(len(extents))
        firsts = np.array([extent.first for extent in extents], np.uint64)
        places, weights = table.places(), table.columns["size"]
        for start in range(0, len(table), COUNTED):
            rows = slice(start, start + COUNTED)
            which = np.searchsorted(firsts, places[rows], side="right") - 1
            there = which >= 0  # what lies before the log is damaged, and lies in an extent that is kept for it
            counts += np.bincount(which[there], minlength=len(extents))
            sizes += np.bincount(which[there], weights[rows][there] + np.float64(ROW_BYTES), minlength=len(extents))
        return [
            ExtentUse(extent.first, extent.end, extent.size, extent.last_at, int(counts[i]), int(sizes[i]))
            for i, extent in enumerate(extents)
        ]

    def victims(self, table: Table) -> tuple[int, int]:
        """Up to which position extents should go: below the floor, worth the copying, and the disk has room. 0 = none.

        If it is for lack of room that no more go, that is the second value.
        """
        limit = min([self.log.floor, *(self.checkpoints.positions() or [0])])
        best = total = live = peak = 0
        for extent in self.use(table)[:-1]:
            if extent.end > limit:
                break
            live += extent.live_bytes
            # The most that it takes until this extent goes, too: copies of small messages are larger than they are.
            peak = max(peak, live + (COPY_BYTES - ROW_BYTES) * extent.live_messages - total)
            total += extent.size
            if 2 * live > total:
                continue
            if not self.has_room(peak):
                return best, peak
            best = extent.end
        return best, 0

    def steps(self, table: Table, before: int) -> list[Step]:
        """How to give back the extents below a position, oldest first."""
        places = table.places()
        rows = np.flatnonzero(places < before)
        ends = [extent.end for extent in self.log.extents() if extent.end <= before]
        which = np.searchsorted(np.array(ends, np.uint64), places[rows], side="right")
        steps = []
        for number, end in enumerate(ends):
            here = rows[which == number]
            steps.append(Step(end, here, _copies(table, here)))
        return steps

    def carry(self, table: Table, step: Step, now: int) -> Iterator[int]:
        """Carry the live messages of an extent forward, a few at a time. Commit after each few.

        Yields what the rest may take. It reads: who has a loop to keep free does the same with ``pieces``.
        """
        left = step.size
        for piece in self.pieces(table, step):
            self.carry_piece(self.read_piece(piece), now)
            left -= piece.copies
            yield left

    def pieces(self, table: Table, step: Step) -> Iterator[Piece]:
        """The live messages of an extent, in pieces of bounded count and bytes."""
        for rows in _cut(step.rows.tolist(), table.columns["size"][step.rows].tolist()):
            positions: list[int] = table.columns["position"][rows].tolist()
            yield Piece(positions, table.columns["queue"][rows].tolist(), _copies(table, rows))

    def read_piece(self, piece: Piece) -> ReadPiece:
        """Read its messages from the log. May run in another thread, beside the broker."""
        moved = self.engine.moved
        places = {position: moved.get(position, position) for position in piece.positions}
        queues = numbers = dict(zip(piece.positions, piece.queues, strict=True))
        damaged: dict[int, Damage] = {}
        while True:
            try:
                messages = self.log.messages([places[position] for position in queues])
            except UNREADABLE:
                looked_at = {position: look_at(self.log, places[position]) for position in queues}
                found = {position: each for position, each in looked_at.items() if isinstance(each, Damage)}
                if not found:
                    raise
                damaged |= found
                queues = {position: number for position, number in queues.items() if position not in found}
            else:
                return ReadPiece(messages, queues, numbers, damaged, places)

    def carry_piece(self, piece: ReadPiece, now: int) -> None:
        """Carry them forward. Those that can't be read are set aside, and the extents they lie in kept."""
        broker, extents = self.engine.broker, self.log.extents()
        for position, damage in piece.damaged.items():
            number = broker.moved_to.get(position, piece.numbers[position])
            queue = broker.queues.get(number)
            if queue is not None:
                broker.set_aside(queue, {position: damage.reason}, now)
            place = piece.places[position]
            self.damaged |= {extent.first for extent in extents if extent.first <= place < extent.end}
        self.engine.move(broker.carry(piece.messages, list(piece.queues.values()), now))

    def plan(self, now: int) -> RemovalPlan:
        """Move the floor, write a checkpoint, and see what can go. May run in another thread, beside the broker.

        Without room for a checkpoint it goes on with those that are there: what can go then makes room.
        """
        floor, dropped = self.pinned(self.floor(now), now)
        self.log.set_floor(floor)
        table = self.state(now)
        unwritten = None
        try:
            self.write_down(table)
        except LogFull as error:
            unwritten = error
        self.release_kept(table)
        before, missing = self.victims(table)
        return RemovalPlan(table, self.steps(table, before), dropped, unwritten, missing)

    def trim(self, before: int) -> None:
        """Give the space back. Everything was carried and committed before; the thread that writes must do this."""
        self.log.sync()  # the copies must be on disk before the originals go, whatever the durability
        self.log.trim(before, self.damaged)

    def release_kept(self, table: Table) -> None:
        """Segments that were kept for damaged messages go when none of these lies there any more."""
        places = table.places()
        for kept in self.log.kept():
            if not ((places >= kept.first) & (places < kept.end)).any():
                self.log.release(kept)

    def forget_places(self, plan: RemovalPlan) -> None:
        """Of messages that are no more, nobody has to know where they lie. Those carried since are all kept."""
        known = locations(plan.table)
        self.engine.moved = {
            position: place
            for position, place in self.engine.moved.items()
            if place >= plan.table.meta.position or position in known
        }

    def retain(self, now: int, commit: Callable[[int], None] | None = None) -> int:
        """All of it, for callers without a loop to keep free. Returns how many extents went.

        What was carried is committed by ``commit``, if that is not just the engine's.
        """
        commit = commit or self.engine.commit
        went = 0
        plan = self.plan(now)
        for step in plan.steps:
            if not self.has_room(step.size):
                break
            for _ in self.carry(plan.table, step, now):
                commit(now)
            extents = len(self.log.extents())
            self.trim(step.before)
            self.engine.advance()
            went += extents - len(self.log.extents())
        self.forget_places(plan)
        return went


def _copies(table: Table, rows: Array | list[int]) -> int:
    """What copies of these messages may take."""
    return int(table.columns["size"][rows].sum(dtype=np.uint64)) + COPY_BYTES * len(rows)


def _cut(rows: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Cut rows into pieces of bounded count and bytes."""
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
