"""A broker that waits to become the owner. It follows the blocks, and knows how far it has read them.

A block can be read before it is safe: if its commit's wait for the synchronous standby was cancelled, or the primary
restarted during that wait. A promotion may then lose the block, although nothing that was confirmed. So the last block
that was read is not known as committed yet. It is once another one follows it: an owner appends nothing before it knows
that its last block is safe, and a new owner nothing before its claim is, which is a later commit. For the same reason,
everything before a checkpoint is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, TypeVar

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
from penstock.journal.postgresql.known_commits import (
    KnownBlock,
    KnownCommits,
    hold_for_operator,
    missing_range,
    pending_loss,
)
from penstock.journal.postgresql.retries import unavailable
from penstock.journal.postgresql.stored_blocks import BlockReader

if TYPE_CHECKING:
    from penstock.journal.postgresql.journal import OwnedDatabase

P = ParamSpec("P")
T = TypeVar("T")


class DatabaseStandby:
    """A ``contract.Standby`` over one connection. One thread at a time uses it."""

    def __init__(
        self, database: Database, own: Callable[[DatabaseStandby], OwnedDatabase], known: KnownCommits
    ) -> None:
        """``own`` takes over, and calls ``check`` before it continues."""
        self._database = database
        self._own = own
        self._reader = BlockReader(database.where, self._fetch, self._check_present)
        self._known = known
        #: The extents, and the start and last extent of the shard's row when they were listed.
        self._listed: tuple[tuple[int, int], list[ExtentRow]] = (-1, -1), []
        #: The last block that was read, until it is known to be safe.
        self._last: KnownBlock | None = None
        self.position = FIRST_POSITION
        self.owner = ""
        self.seconds = 0.0

    def checkpoint(self) -> Checkpoint | None:
        """The newest readable checkpoint, at whose position ``catch_up`` continues. Raises LogError."""
        self._look()
        assert self._known.identity is not None
        found = DatabaseCheckpointReader(self._database, self._known.identity).newest_good()
        if found is not None:
            self._note_before(found.position)
        self.position = found.position if found is not None else FIRST_POSITION
        self._last = None
        return found

    def _note_before(self, position: int) -> None:
        """Note the block before a checkpoint: if it differs later, the checkpoint contains lost events.

        A database standby that is promoted in between has the checkpoint only if it has the block.
        """
        rows = [row for row in self._ask(self._database.extents) if row.first < position <= row.end]
        blocks = self._ask(self._database.blocks, rows[-1].first, position - 1, 1) if rows else []
        if position not in (at for at, _ in self._ask(self._database.checkpoints)):
            raise LogAway(f"{self._database.where}: the checkpoint at {position} is gone: looking for another one")
        for block in blocks[:1]:
            self._known.note(block.extent, BlockMark(block.first, block.end, block.epoch, block.checksum))

    def catch_up(self) -> Iterator[Block]:
        """The blocks since the last call, up to the current head. Raises Trimmed, CommitsLost, or LogError."""
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
            self._known.note(*self._last)
        self._last = KnownBlock(segment.first, BlockMark(block.first, block.end, block.epoch, block.header.crc))
        self.position = block.end

    def _extents(self, shard: ShardRow) -> list[ExtentRow]:
        """The extents of the log, listed again only when the shard's row has changed."""
        moment = (shard.low, shard.extent)
        if self._listed[0] != moment:
            self._listed = moment, [row for row in self._ask(self._database.extents) if not row.kept]
        return [row if row.finished else row._replace(end=max(row.end, shard.head)) for row in self._listed[1]]

    def own(self) -> OwnedDatabase:
        """Become the owner. Raises JournalOwned, or the errors of ``check``."""
        return self._own(self)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def check(self, shard: ShardRow, database: Database) -> None:
        """Compare the journal, whose row is ``shard`` now, with what is known of it.

        Raises CommitsLost if committed blocks are missing, and JournalMissing if it is another journal. Raises LogAway
        if only the last block that was read is missing: begin again with the checkpoint.
        """
        self._known.check_identity(shard.identity, database.where)
        error = self._ask(pending_loss, database, shard)
        if error is not None:
            raise error
        lost = self._ask(self._known.lost_range, database, shard)
        if lost is None and self._last is None and shard.head < self.position:
            lost = shard.head, self.position
        if lost is not None:
            raise hold_for_operator(database, lost)
        self._check_last(shard, database)

    def _check_last(self, shard: ShardRow, database: Database) -> None:
        last = self._last
        if last is None or self._ask(missing_range, database, shard, last) is None:
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

    def _check_present(self, segment: Segment) -> None:
        shard = self._ask(self._database.shard)
        if segment.first < shard.low:
            raise self._trimmed(shard)

    def _fetch(self, extent: int, position: int, size: int) -> list[BlockRow]:
        return self._ask(self._database.blocks, extent, position, size)

    def _ask(self, statement: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a statement once. A broker that stands by calls again later."""
        try:
            return statement(*args, **kwargs)
        except DatabaseError as error:
            raise unavailable(error) from error
