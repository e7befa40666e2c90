"""A broker that waits to be the owner: it follows the blocks, and knows how far it has seen them: see ``Standby``.

A block can be read before it is safe: when its commit's wait for the synchronous standby was cancelled, or the primary
was restarted during that wait. Such a block may be gone after a promotion, although nothing that was confirmed is. So
the last block that was read is not known as committed yet. It is when another one follows it: an owner appends nothing
before it has learned that its last block is safe, and a new owner nothing before its claim is, which is a later commit.
For the same reason, what lies before a checkpoint is safe.
"""

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
from penstock.journal.postgresql.seen import Known, Seen, held, held_before, missing_range

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
        #: The last block that was read, while nothing says that it is safe.
        self._last: Known | None = None
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
        self._last = None
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
                self._note_read(segment, block)
                yield block

    def _note_read(self, segment: Segment, block: Block) -> None:
        """Note the block before this one as committed, if this one follows it."""
        follows = segment.header.chain if block.first == segment.first else block.header.previous
        if self._last is not None and self._last.mark.checksum == follows:
            self._seen.note(*self._last)
        self._last = Known(segment.first, BlockMark(block.first, block.end, block.epoch, block.header.crc))
        self.position = block.end

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

    def check(self, shard: ShardRow, database: Database) -> None:
        """Check the journal, which a server says is as ``shard`` now, against what was seen of it.

        Raises CommitsLost if it lacks something that was committed, JournalMissing if it is another journal, and
        LogAway if it lacks the last block that was read, and nothing else: begin again with the checkpoint.
        """
        self._seen.meet(shard.identity, database.where)
        error = self._ask(lambda: held_before(database, shard))
        if error is not None:
            raise error
        lost = self._ask(lambda: self._seen.lost(database, shard))
        if lost is None and self._last is None and shard.head < self.position:
            lost = shard.head, self.position
        if lost is not None:
            raise held(database, lost)
        self._check_last(shard, database)

    def _check_last(self, shard: ShardRow, database: Database) -> None:
        last = self._last
        if last is None or self._ask(lambda: missing_range(database, shard, last)) is None:
            return
        self._last, self.position = None, FIRST_POSITION
        raise LogAway(
            f"{database.where} lacks the block at position {last.mark.first}, whose commit was not complete when it was"
            " read. Nothing that was confirmed is lost: the journal is read again"
        )

    def _look(self) -> ShardRow:
        shard = self._ask(self._database.shard)
        self.owner, self.seconds = shard.owner, max(shard.lease, 0.0)
        self.check(shard, self._database)
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
