"""Watches the database and the confirmations of the brokers. Raises ``Broken`` when a promise is broken."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.journal.format.block import parse
from penstock.journal.postgresql.database import BlockRow
from penstock.schema import FINAL_KINDS, Kind
from support.simdatabase import SimServer


class Broken(AssertionError):
    """A promise was not kept."""


class MessageChanges(NamedTuple):
    """The positions of the messages that begin and end in a block."""

    published: frozenset[int]
    ended: frozenset[int]


def read_changes(data: bytes) -> MessageChanges:
    """Read a block as a reader of the journal would."""
    block = parse(data)
    kinds = block.kinds
    published = block.first + np.flatnonzero(kinds == Kind.PUBLISHED)
    ended: list[int] = []
    if block.has("message"):
        final = np.isin(kinds[block.other_rows()], list(FINAL_KINDS))
        ended = block.column("message")[final].tolist()
    return MessageChanges(frozenset(published.tolist()), frozenset(ended))


class Backup(NamedTuple):
    """The database's blocks at one moment."""

    blocks: list[BlockRow]
    changes: list[MessageChanges]


class Witness:
    """Follows the primary, block by block."""

    def __init__(self, server: SimServer) -> None:
        self._server = server
        self._timeline = server.timeline
        server.on_change = self._changed
        self.blocks: list[BlockRow] = []
        self.changes: list[MessageChanges] = []
        #: Blocks that an owner has confirmed, by their first positions.
        self.confirmed: dict[int, BlockRow] = {}
        #: Confirmed blocks that the database has lost.
        self.lost: list[BlockRow] = []
        #: Blocks that the database has lost, by the positions of their events. An owner may resend a block whose
        #: outcome it does not know.
        self.spent: dict[int, BlockRow] = {}
        #: The backup being restored, and whether one ever was.
        self.restoring: Backup | None = None
        self.was_restored = False
        self._identity = 0
        self.head = 1
        #: Messages that begin and end in ``blocks``.
        self.published: set[int] = set()
        self.ended: set[int] = set()

    @property
    def alive(self) -> set[int]:
        """The live messages, according to the blocks."""
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
        if shard.identity != self._identity:  # another journal numbers its own positions
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
        changes = read_changes(row.data)
        self.changes.append(changes)
        self.published |= changes.published
        self.ended |= changes.ended
        self.head = row.end

    def _fail_over(self) -> None:
        """The standby was promoted: blocks it lacks are gone. A synchronous one lacks no confirmed block."""
        shard = self._server.tables.shard
        head = shard.head if shard is not None else 1
        gone = [row for row in self.blocks if row.end > head]
        lost = [row for row in gone if self.confirmed.get(row.first) == row]
        if lost and self._server.synchronous:
            raise Broken(f"block {lost[0].first} was confirmed, but the synchronous standby does not have it")
        count = len(self.blocks) - len(gone)
        self._go_back(Backup(self.blocks[:count], self.changes[:count]))

    def back_up(self) -> Backup:
        """Return the current blocks."""
        return Backup(list(self.blocks), list(self.changes))

    def _go_back(self, kept: Backup) -> None:
        """Keep only these blocks; all others are lost."""
        there = {row.first for row in kept.blocks}
        for row in self.blocks:
            if row.first not in there:
                self.spent |= dict.fromkeys(range(row.first, row.end), row)
                if self.confirmed.pop(row.first, None) is not None:
                    self.lost.append(row)
        self.blocks, self.changes = list(kept.blocks), list(kept.changes)
        self.published = set().union(*(changes.published for changes in self.changes))
        self.ended = set().union(*(changes.ended for changes in self.changes))
        self.head = self.blocks[-1].end if self.blocks else 1

    # Reports of the brokers

    def confirm(self, epoch: int, first: int, end: int) -> None:
        """An owner confirms to its clients that all its events from ``first`` up to ``end`` are committed."""
        rows = [row for row in self.blocks if first <= row.first < end]
        reached = rows[-1].end if rows else first
        if reached != end:
            raise Broken(f"owner {epoch} confirms up to {end}, but the database has events up to {reached}")
        for row in rows:
            if row.epoch != epoch:
                raise Broken(f"owner {epoch} confirms block {row.first} of owner {row.epoch}")
            if not self._server.is_safe(row):
                raise Broken(f"owner {epoch} confirms block {row.first}, which the standby may not have")
            self.confirmed[row.first] = row

    def deliver(self, epoch: int, position: int) -> None:
        """Check a message that an owner hands to a consumer.

        A database that loses commits may have lost a lease renewal or a settlement.
        """
        if self.was_restored or (not self._server.synchronous and self._timeline > 1):
            return
        if self.epoch > epoch:
            raise Broken(f"owner {epoch} delivers message {position} while there is owner {self.epoch}")
        if position in self.ended:
            raise Broken(f"owner {epoch} delivers message {position} after it was settled")
        if position not in self.published:
            raise Broken(f"owner {epoch} delivers message {position}, which is not in the database")

    def take_over(self, epoch: int, alive: set[int]) -> None:
        """Check the messages a new owner knows, unless yet another owner has already replaced it."""
        if self.epoch == epoch and alive != self.alive:
            missing, more = sorted(self.alive - alive), sorted(alive - self.alive)
            raise Broken(f"owner {epoch} begins without {missing[:5]} and with {more[:5]}")

    def check_confirmed(self) -> None:
        """Check at the end that the database contains every confirmed block it has not lost."""
        there = {row.first: row for row in self.blocks}
        for first, row in self.confirmed.items():
            if there.get(first) != row:
                raise Broken(f"block {first} was confirmed, but is missing")
