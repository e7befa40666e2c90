"""Compaction: giving back old extents of the log that still hold live messages.

The live messages are carried forward to the end of the log, if the extents that can go then are at least twice as
large as the copies. So the journal holds at most the history, plus twice the live messages. Extents go one by one,
oldest first: each gives its space back before the next one is begun, and each step needs room on the disk.

    victims -> steps -> pieces -> read_piece (in a thread) -> carry_piece (in the loop) -> commit -> trim
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from penstock.core.recovery.event_columns import Array
from penstock.core.recovery.table import Table
from penstock.journal.contract import OwnedJournal
from penstock.journal.errors import UNREADABLE
from penstock.journal.format.rows import MessageRow
from penstock.server.engine.backlog import Damage, look_at
from penstock.server.engine.engine import Engine, locations

#: Messages, and payload bytes, of one piece.
CARRY_MESSAGES = 1_000
CARRY_BYTES = 4 * 2**20
#: Bytes on disk of a message's copy besides its payload: usually, and at most.
ROW_BYTES = 48
COPY_BYTES = 128
#: Rows of a table that are counted together.
COUNTED = 2**16


class ExtentUse(NamedTuple):
    """An extent and its live messages."""

    end: int
    size: int
    live_messages: int
    live_bytes: int


class Step(NamedTuple):
    """How to give back one extent: carry these rows of the table forward, then trim the log."""

    before: int
    rows: Array
    #: The most bytes that the copies take.
    size: int


class Piece(NamedTuple):
    """Live messages that are carried forward together, with the numbers of their queues."""

    positions: list[int]
    queues: list[int]
    #: The most bytes that their copies take.
    copies: int


class ReadPiece(NamedTuple):
    """A piece, read from the log."""

    messages: list[MessageRow]
    #: Numbers of queues by position: of the messages that could be read, and of all.
    queues: dict[int, int]
    numbers: dict[int, int]
    damaged: dict[int, Damage]
    #: Where all of them lie.
    places: dict[int, int]


class Compaction:
    """Gives back extents of an engine's journal."""

    def __init__(self, engine: Engine, journal: OwnedJournal) -> None:
        self._engine = engine
        self._log = journal.log
        self._checkpoints = journal.checkpoints
        self._space = journal.space
        #: First positions of extents with unreadable live messages. Trimming keeps them aside.
        self._damaged: set[int] = set()

    def victims(self, table: Table) -> tuple[int, int]:
        """The position below which extents should go: below the floor, worth the copying, with room on the disk.

        0 if none should. The second value is the room that is missing to give back more; 0 if none is.
        """
        limit = min([self._log.floor, *(self._checkpoints.positions() or [0])])
        best = total = live = peak = 0
        for extent in self._use(table)[:-1]:
            if extent.end > limit:
                break
            live += extent.live_bytes
            # The most that is taken until this extent goes, too: copies of small messages are larger than they are.
            peak = max(peak, live + (COPY_BYTES - ROW_BYTES) * extent.live_messages - total)
            total += extent.size
            if 2 * live > total:
                continue
            if not self._space.has_room(peak):
                return best, peak
            best = extent.end
        return best, 0

    def _use(self, table: Table) -> list[ExtentUse]:
        extents = self._log.extents()
        counts, sizes = np.zeros(len(extents), np.int64), np.zeros(len(extents))
        firsts = np.array([extent.first for extent in extents], np.uint64)
        places, weights = table.places(), table.columns["size"]
        for start in range(0, len(table), COUNTED):
            rows = slice(start, start + COUNTED)
            which = np.searchsorted(firsts, places[rows], side="right") - 1
            there = which >= 0  # messages before the log are damaged, in extents that are kept for them
            counts += np.bincount(which[there], minlength=len(extents))
            sizes += np.bincount(which[there], weights[rows][there] + np.float64(ROW_BYTES), minlength=len(extents))
        return [ExtentUse(extent.end, extent.size, int(counts[i]), int(sizes[i])) for i, extent in enumerate(extents)]

    def steps(self, table: Table, before: int) -> list[Step]:
        """How to give back the extents below a position, oldest first."""
        places = table.places()
        rows = np.flatnonzero(places < before)
        ends = [extent.end for extent in self._log.extents() if extent.end <= before]
        which = np.searchsorted(np.array(ends, np.uint64), places[rows], side="right")
        by_extent = (rows[which == number] for number in range(len(ends)))
        return [Step(end, here, _copies(table, here)) for end, here in zip(ends, by_extent, strict=True)]

    def pieces(self, table: Table, step: Step) -> Iterator[Piece]:
        """The live messages of a step, in pieces of bounded count and bytes."""
        for rows in _cut(step.rows.tolist(), table.columns["size"][step.rows].tolist()):
            positions: list[int] = table.columns["position"][rows].tolist()
            yield Piece(positions, table.columns["queue"][rows].tolist(), _copies(table, rows))

    def read_piece(self, piece: Piece) -> ReadPiece:
        """Read a piece's messages from the log. May run in another thread."""
        moved = self._engine.moved
        places = {position: moved.get(position, position) for position in piece.positions}
        queues = numbers = dict(zip(piece.positions, piece.queues, strict=True))
        damaged: dict[int, Damage] = {}
        while True:
            try:
                messages = self._log.messages([places[position] for position in queues])
            except UNREADABLE:
                looked_at = {position: look_at(self._log, places[position]) for position in queues}
                found = {position: each for position, each in looked_at.items() if isinstance(each, Damage)}
                if not found:
                    raise
                damaged |= found
                queues = {position: number for position, number in queues.items() if position not in found}
            else:
                return ReadPiece(messages, queues, numbers, damaged, places)

    def carry_piece(self, piece: ReadPiece, now: int) -> None:
        """Carry a piece forward. Unreadable messages are set aside, and their extents kept."""
        broker, extents = self._engine.broker, self._log.extents()
        for position, damage in piece.damaged.items():
            number = broker.moved_to.get(position, piece.numbers[position])
            queue = broker.queues.get(number)
            if queue is not None:
                broker.set_aside(queue, {position: damage.reason}, now)
            place = piece.places[position]
            self._damaged |= {extent.first for extent in extents if extent.first <= place < extent.end}
        self._engine.move(broker.carry(piece.messages, list(piece.queues.values()), now))

    def trim(self, before: int) -> None:
        """Remove the extents below a position from the log. Runs in the thread that writes the log.

        Their live messages must have been carried forward and committed.
        """
        self._log.sync()  # the copies must be on disk before the originals go, whatever the durability
        self._log.trim(before, self._damaged)

    def release_kept(self, table: Table) -> None:
        """Remove extents that were kept for damaged messages, once these are gone."""
        places = table.places()
        for kept in self._log.kept():
            if not ((places >= kept.first) & (places < kept.end)).any():
                self._log.release(kept)

    def forget_places(self, table: Table) -> None:
        """Forget the places of messages that a table no longer has. Those carried forward since are kept."""
        self._engine.forget_moves(locations(table), table.meta.position)


def _copies(table: Table, rows: Array | list[int]) -> int:
    """The most bytes that copies of these messages take."""
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
