"""A broker that waits to be the owner: it follows the blocks, and knows how far it has seen them: see ``Standby``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from penstock.journal.contract import FIRST_POSITION, Checkpoint
from penstock.journal.errors import LogAway, Trimmed
from penstock.journal.format.block import Block
from penstock.journal.format.segment import Segment
from penstock.journal.postgresql.checkpoints import DatabaseCheckpointReader
from penstock.journal.postgresql.database import (
    BlockMark,
    BlockRow,
    Database,
    DatabaseError,
    ExtentRow,
    ShardRow,
)
from penstock.journal.postgresql.extents import segment_of
from penstock.journal.postgresql.questions import away
from penstock.journal.postgresql.reading import BlockReader
from penstock.journal.postgresql.seen import Seen, held, held_before

if TYPE_CHECKING:
    from penstock.journal.postgresql.journal import OwnedDatabase

T = TypeVar("T")


class DatabaseStandby:
    """Follows over one connection. One thread at a time uses it."""

    def __init__(self, database: Database, own: Callable[[DatabaseStandby], OwnedDatabase], seen: Seen) -> None:
        """``own`` is the journal's way to take over, which asks ``check`` before it goes on."""
        self._database = database
        self._own = own
        self._reader = BlockReader(database.where, self._fetch, self._check_there)
        self._seen = seen
        #: The extents, and what the row of the shard said when they were listed.
        self._listed: tuple[tuple[int, int], list[ExtentRow]] = (-1, -1), []
        self.position = FIRST_POSITION
        self.owner = ""
        self.seconds = 0.0

    def checkpoint(self) -> Checkpoint | None:
        """See Standby."""
        self._look()
        assert self._seen.identity is not None
        found = DatabaseCheckpointReader(self._database, self._seen.identity).newest_good()
        if found is not None:
            self._note_before(found.position)
        self.position = found.position if found is not None else FIRST_POSITION
        return found

    def _note_before(self, position: int) -> None:
        """Note the block before a checkpoint: if it is another one later, the checkpoint is of lost events.

        A standby that is promoted in between has the checkpoint only if it has the block.
        """
        rows = [row for row in self._ask(self._database.extents) if row.first < position <= row.end]
        blocks = self._ask(lambda: self._database.blocks(rows[-1].first, position - 1, 1)) if rows else []
        if position not in (at for at, _ in self._ask(self._database.checkpoints)):
            raise LogAway(f"{self._database.where}: the checkpoint at {position} is gone. It is looked for again")
        for block in blocks[:1]:
            self._seen.note(block.extent, BlockMark(block.first, block.end, block.epoch, block.checksum))

    def catch_up(self) -> Iterator[Block]:
        """See Standby."""
        shard = self._look()
        if self.position >= shard.head:
            return
        segments = [
            segment_of(self._database.where, row, shard.identity)
            for row in self._extents(shard)
            if row.end > self.position
        ]
        if not segments or segments[0].header.after > self.position:
            raise self._trimmed(shard)
        for segment in segments:
            for block in self._reader.read(segment, self.position, shard.head):
                self.position = block.end
                mark = BlockMark(block.first, block.end, block.epoch, block.header.crc)
                self._seen.note(segment.first, mark)
                yield block

    def _extents(self, shard: ShardRow) -> list[ExtentRow]:
        """Those of the log. There are others only when the row of the shard says so."""
        moment = (shard.low, shard.extent)
        if self._listed[0] != moment:
            self._listed = moment, [row for row in self._ask(self._database.extents) if not row.kept]
        return [row if row.finished else row._replace(end=max(row.end, shard.head)) for row in self._listed[1]]

    def own(self) -> OwnedDatabase:
        """See Standby."""
        return self._own(self)

    def close(self) -> None:
        """See Standby."""
        self._database.close()

    def check(self, shard: ShardRow) -> None:
        """Raise CommitsLost unless the journal has all that was seen of it; JournalMissing if it is another one."""
        self._seen.meet(shard.identity, self._database.where)
        error = self._ask(lambda: held_before(self._database, shard))
        if error is not None:
            raise error
        lost = self._ask(lambda: self._seen.lost(self._database, shard))
        if lost is None and shard.head < self.position:
            lost = shard.head, self.position
        if lost is not None:
            raise held(self._database, lost)

    def _look(self) -> ShardRow:
        shard = self._ask(self._database.shard)
        self.owner, self.seconds = shard.owner, max(shard.lease, 0.0)
        self.check(shard)
        return shard

    def _trimmed(self, shard: ShardRow) -> Trimmed:
        return Trimmed((self.position, max(shard.low, self.position + 1)), "they were trimmed meanwhile")

    def _check_there(self, segment: Segment) -> None:
        shard = self._ask(self._database.shard)
        if segment.first < shard.low:
            raise self._trimmed(shard)

    def _fetch(self, extent: int, position: int, size: int) -> list[BlockRow]:
        return self._ask(lambda: self._database.blocks(extent, position, size))

    def _ask(self, ask: Callable[[], T]) -> T:
        """Who stands by has time: it asks once, and again when it is called again."""
        try:
            return ask()
        except DatabaseError as error:
            raise away(error) from error
