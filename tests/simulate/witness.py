"""Sees everything: the database as it is, and what brokers tell. Raises ``Broken`` at a broken promise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.journal.format.block import parse
from penstock.journal.postgresql.database import BlockRow
from penstock.schema import FINAL_KINDS, Kind
from support.simdatabase import SimServer


class Broken(AssertionError):
    """A promise was not kept."""


class Told(NamedTuple):
    """What a block tells of messages: which begin, and which end."""

    published: frozenset[int]
    ended: frozenset[int]


def told_by(data: bytes) -> Told:
    """Read a block as any reader would."""
    block = parse(data)
    kinds = block.kinds
    published = block.first + np.flatnonzero(kinds == Kind.PUBLISHED)
    ended: list[int] = []
    if block.has("message"):
        final = np.isin(kinds[block.other_rows()], list(FINAL_KINDS))
        ended = block.column("message")[final].tolist()
    return Told(frozenset(published.tolist()), frozenset(ended))


class Backup(NamedTuple):
    """What was in the database at a moment."""

    blocks: list[BlockRow]
    told: list[Told]


class Witness:
    """Follows the primary, block by block."""

    def __init__(self, server: SimServer) -> None:
        self._server = server
        self._timeline = server.timeline
        server.on_change = self._changed
        self.blocks: list[BlockRow] = []
        self.told: list[Told] = []
        #: Blocks that an owner has confirmed, by their first positions.
        self.confirmed: dict[int, BlockRow] = {}
        #: Confirmed blocks that the database has lost.
        self.lost: list[BlockRow] = []
        #: Blocks that the database has lost, by the positions of their events. An owner that does not know what became
        #: of a block may send it again.
        self.spent: dict[int, BlockRow] = {}
        #: What the database is being restored to; whether it ever was.
        self.restoring: Backup | None = None
        self.was_restored = False
        self._identity = 0
        self.head = 1
        #: Messages that begin and end in ``blocks``.
        self.published: set[int] = set()
        self.ended: set[int] = set()

    @property
    def alive(self) -> set[int]:
        """The messages that there are, by the blocks."""
        return self.published - self.ended

    @property
    def epoch(self) -> int:
        """The epoch of the primary."""
        shard = self._server.tables.shard
        return shard.epoch if shard is not None else 0

    # The database

    def _changed(self) -> None:
        if self._timeline != self._server.timeline:
            self._timeline = self._server.timeline
            self._fail_over()
        if self.restoring is not None:
            restored, self.restoring, self.was_restored = self.restoring, None, True
            self._go_back(restored)
        shard = self._server.tables.shard
        if shard is None or shard.head == self.head:
            return
        if shard.identity != self._identity:  # positions of another journal are others
            self._identity = shard.identity
            self.spent.clear()
        row = self._server.tables.blocks[shard.extent][-1].row
        if row.first < self.head or row.end != shard.head or shard.head < self.head:
            raise Broken(f"block {row.first} to {row.end} was added where the head was {self.head}")
        if self.blocks and row.epoch < self.blocks[-1].epoch:
            raise Broken(f"block {row.first} of owner {row.epoch} follows one of owner {self.blocks[-1].epoch}")
        taken = self.confirmed.get(row.first)
        if any(other not in (None, row) for other in (taken, *map(self.spent.get, range(row.first, row.end)))):
            raise Broken(f"position {row.first} names two blocks")
        self._add(row)

    def _add(self, row: BlockRow) -> None:
        self.blocks.append(row)
        told = told_by(row.data)
        self.told.append(told)
        self.published |= told.published
        self.ended |= told.ended
        self.head = row.end

    def _fail_over(self) -> None:
        """The standby is the primary: what it does not have is gone. With a synchronous one nobody has heard of it."""
        shard = self._server.tables.shard
        head = shard.head if shard is not None else 1
        gone = [row for row in self.blocks if row.end > head]
        lost = [row for row in gone if self.confirmed.get(row.first) == row]
        if lost and self._server.synchronous:
            raise Broken(f"block {lost[0].first} was confirmed, and the synchronous standby does not have it")
        count = len(self.blocks) - len(gone)
        self._go_back(Backup(self.blocks[:count], self.told[:count]))

    def back_up(self) -> Backup:
        """What there is now."""
        return Backup(list(self.blocks), list(self.told))

    def _go_back(self, kept: Backup) -> None:
        """What the database has from now on; everything else is lost."""
        there = {row.first for row in kept.blocks}
        for row in self.blocks:
            if row.first not in there:
                self.spent |= dict.fromkeys(range(row.first, row.end), row)
                if self.confirmed.pop(row.first, None) is not None:
                    self.lost.append(row)
        self.blocks, self.told = list(kept.blocks), list(kept.told)
        self.published = set().union(*(told.published for told in self.told))
        self.ended = set().union(*(told.ended for told in self.told))
        self.head = self.blocks[-1].end if self.blocks else 1

    # What brokers tell

    def confirm(self, epoch: int, first: int, end: int) -> None:
        """An owner tells its clients that all its events from ``first`` up to ``end`` are committed."""
        rows = [row for row in self.blocks if first <= row.first < end]
        reached = rows[-1].end if rows else first
        if reached != end:
            raise Broken(f"owner {epoch} confirms up to {end}, and the database has events up to {reached}")
        for row in rows:
            if row.epoch != epoch:
                raise Broken(f"owner {epoch} confirms block {row.first} of owner {row.epoch}")
            if not self._server.is_safe(row):
                raise Broken(f"owner {epoch} confirms block {row.first}, which the standby may not have")
            self.confirmed[row.first] = row

    def deliver(self, epoch: int, position: int) -> None:
        """A message is handed to a consumer.

        A database that loses commits may lose that a lease was renewed, or that a message was settled.
        """
        if self.was_restored or (not self._server.synchronous and self._timeline > 1):
            return
        if self.epoch > epoch:
            raise Broken(f"owner {epoch} hands out message {position} while there is owner {self.epoch}")
        if position in self.ended:
            raise Broken(f"owner {epoch} hands out message {position} after it was settled")
        if position not in self.published:
            raise Broken(f"owner {epoch} hands out message {position}, which is not in the database")

    def take_over(self, epoch: int, alive: set[int]) -> None:
        """A new owner knows these messages. If there is another one by now, it will hear of that."""
        if self.epoch == epoch and alive != self.alive:
            missing, more = sorted(self.alive - alive), sorted(alive - self.alive)
            raise Broken(f"owner {epoch} begins without {missing[:5]} and with {more[:5]}")

    def check_confirmed(self) -> None:
        """At the end: everything that was confirmed and not lost with the database is there."""
        there = {row.first: row for row in self.blocks}
        for first, row in self.confirmed.items():
            if there.get(first) != row:
                raise Broken(f"block {first} was confirmed, and is not there")
