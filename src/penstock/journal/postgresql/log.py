"""The log in PostgreSQL, in the hands of its owner.

Every append is one commit of the database, so everything appended is committed and synced. The committer's thread
writes over one connection; reading uses another (``stored_blocks``), and trimming, which is never urgent, a third. An
owner never extends an extent of its predecessor: its first append begins another, as with files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, ParamSpec, TypeVar

from typing_extensions import override

from penstock.journal.contract import BadRange, Durability, Extent, OwnerOptions, resume_after
from penstock.journal.errors import LogClosed, LogError
from penstock.journal.format.block import Batch, Block, OneEvent
from penstock.journal.format.encoding import Encoded, encode
from penstock.journal.format.segment import Segment, SparseIndex
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import (
    MADE_IN,
    Database,
    DatabaseError,
    NewBlock,
    NewExtent,
    ReadableDatabase,
    ShardRow,
)
from penstock.journal.postgresql.extents import check_extents, row_of, segment_of
from penstock.journal.postgresql.incarnations import is_another
from penstock.journal.postgresql.known_commits import accepted_losses
from penstock.journal.postgresql.pace import BlockPace
from penstock.journal.postgresql.retries import retry_read
from penstock.journal.postgresql.schema import partition
from penstock.journal.postgresql.stored_blocks import READ_PATIENCE, UNREADABLE, StoredBlocks
from penstock.journal.postgresql.writer import HeadWriter
from penstock.journal.segmented_log import SegmentedLog
from penstock.schema import Kind

P = ParamSpec("P")
T = TypeVar("T")


class Connections(NamedTuple):
    """An owner's connections: for the head, for reading, for trimming and checkpoints, and for the lease."""

    head: Database
    reading: ReadableDatabase
    maintenance: Database
    lease: Database

    def close(self) -> None:
        """Close all of them."""
        for each in self:
            each.close()


class DatabaseLog(SegmentedLog):
    """Implements ``contract.Log``."""

    def __init__(
        self,
        connections: Connections,
        writer: HeadWriter,
        shard: ShardRow,
        incarnation: int,
        options: OwnerOptions | None = None,
        clock: Clock | None = None,
        *,
        in_thread: bool = True,
    ) -> None:
        """``shard`` is the row that the claim returned. So far only the claim has changed anything."""
        super().__init__(options)
        self._identity = shard.identity
        self._connections = connections
        self._writer = writer
        self._clock = clock or Clock()
        self._incarnation = incarnation
        self._where = connections.head.where
        self._closed = False
        self._begun: Segment | None = None
        self._end = shard.head
        #: Whether forgotten extents may still occupy space, because they were being read.
        self._has_forgotten = False
        self._pace = BlockPace(writer.lease.seconds)
        self._blocks = StoredBlocks(connections.reading, self._clock, self._segment_of, in_thread=in_thread)

    def take_over(self, shard: ShardRow) -> None:
        """Load the extents, and put a block of ours at the head, so that no block of the previous owner can follow it.

        Nothing can follow the head of a log without blocks, or in another incarnation: see ``incarnations``. Raises the
        errors of ``append``, and JournalDamaged.
        """
        database = self._connections.head
        rows = self._ask(database.extents)
        segments = [(row, segment_of(self._where, row, self.identity)) for row in rows]
        self._kept = [segment for row, segment in segments if row.kept]
        self._segments = [segment for row, segment in segments if not row.kept]
        check_extents(self._where, shard, self._segments)
        made_in = self._ask(database.value, MADE_IN)
        self.put_back = is_another(made_in, rows, self._incarnation)
        if self.put_back:
            accepted = self._ask(accepted_losses, database)
            self._end = max(resume_after(shard.head, self._clock.now()), *(high for _, high in accepted), 0)
        elif self._segments:
            self._fence(self._segments[-1])

    def _fence(self, segment: Segment) -> None:
        detail = json.dumps({"epoch": self.epoch, "owner": self._writer.owner}).encode()
        event = OneEvent.make(segment.end, Kind.STARTED, self._clock.now(), detail)
        segment.index = SparseIndex()
        self._write(encode(event, self.epoch, segment.chain, synced=True), segment, None)

    @property
    @override
    def identity(self) -> int:
        return self._identity

    @property
    @override
    def epoch(self) -> int:
        return self._writer.epoch

    @property
    @override
    def _growing(self) -> Segment | None:
        return self._begun

    @property
    def committed(self) -> int:
        """The end: every append is a commit."""
        return self._end

    @property
    def synced(self) -> int:
        """The end: every append is a commit."""
        return self._end

    @property
    @override
    def block_bytes(self) -> int:
        return self._pace.bytes

    @property
    def floor(self) -> int:
        """The floor that was set, but at least the start."""
        return max(self._writer.floor, self.start)

    # Writing

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """Add one block, as the first of an extent if ``roll`` is set or this owner has begun none."""
        self._check_usable()
        self._check_expected(batch, expected_position, epoch)
        began = self._clock.monotonic()
        if roll or self._begun is None:
            self._append_extent(batch)
        else:
            encoded = encode(batch, epoch, self._begun.chain, synced=True)
            self._write(encoded, self._begun, None)
        self.sync_seconds += self._clock.monotonic() - began

    def _append_extent(self, batch: Batch) -> None:
        before = self._segments[-1] if self._segments else None
        header = self._next_header(batch, Durability.COMMIT)
        segment = Segment(header)
        segment.name = partition(segment.first)
        encoded = encode(batch, self.epoch, segment.chain, synced=True)
        self._writer.prepare(segment.first)
        finishes = row_of(before, self._incarnation) if before else None
        self._write(encoded, segment, NewExtent(header.encode(), self._incarnation, finishes))
        with self._changing:
            if before is not None:
                before.finished = before.clean = True
            self._begun = segment
            self._segments = [*self._segments, segment]

    def _write(self, encoded: Encoded, segment: Segment, begins: NewExtent | None) -> None:
        header, began = encoded.header, self._clock.monotonic()
        block = NewBlock(header.first, header.end, header.epoch, header.crc, header.base, encoded.data)
        self._writer.append(block, segment.first, begins)
        self._pace.note(len(block.data), self._clock.monotonic() - began)
        segment.note(encoded.first, encoded.end, encoded.length, encoded.base, encoded.crc)
        self._blocks.add(segment.first, block)
        self._end = block.end

    def sync(self) -> None:
        """Show readers the floor. Everything is committed already."""
        self._check_usable()
        self._writer.show_floor()

    def seal(self, epoch: int) -> None:
        """Accept only appends with this epoch from now on. Raises Fenced unless it is a newer one."""
        self._check_usable()
        self._check_newer(epoch)
        self._writer.seal(epoch)

    def set_floor(self, position: int) -> None:
        """Move the history floor, which readers see with the next append or sync."""
        self._writer.floor = position

    # Trimming

    def trim(self, before: int, keep: Container[int] = ()) -> None:
        """Forget the extents that end at or below a position, except the last one. Any thread may call it."""
        self._check_usable()
        with self._changing:
            going = [segment for segment in self._segments[:-1] if segment.end <= before]
            kept = [segment for segment in going if segment.first in keep]
            if going:
                low, firsts = self._segments[len(going)].first, [segment.first for segment in kept]
                database = self._connections.maintenance
                self._writer.change_as_owner(lambda epoch: database.trim(epoch, low, firsts))
                self._segments = self._segments[len(going) :]
                self._kept = [*self._kept, *kept]
        if going or self._has_forgotten:
            self.drop_forgotten(segment.first for segment in going if segment not in kept)

    def release(self, extent: Extent) -> None:
        """Forget a kept extent. Any thread may call it."""
        self._check_usable()
        first, database = extent.first, self._connections.maintenance
        with self._changing:
            self._writer.change_as_owner(lambda epoch: database.unkeep(epoch, first))
            self._kept = [segment for segment in self._kept if segment.first != first]
        self.drop_forgotten([first])

    def drop_forgotten(self, extents: Iterable[int] = ()) -> None:
        """Free the space of forgotten extents: those given by first position, and any that earlier owners left."""
        for first in extents:
            self._blocks.forget(first)
        self._has_forgotten = True
        with suppress(DatabaseError):  # it can be done at any other time
            self._has_forgotten = not self._connections.maintenance.drop()

    def close(self) -> None:
        """Release the lease, so that another broker can take over at once, and close the connections."""
        if self._closed:
            return
        self._closed = True
        try:
            with suppress(LogError):  # it runs out by itself
                self._writer.release()
        finally:
            self._blocks.close()
            self._connections.close()

    # Reading

    def read(self, start: int) -> Iterator[Block]:
        """The committed blocks with events at ``start`` or later, in order. Raises JournalDamaged at a bad one."""
        limit = self._end
        for segment in self._segments:
            if segment.end > start and segment.first < limit:
                yield from self._blocks.read(segment, start, limit)

    @override
    def locate(self, position: int) -> Block:
        return self._blocks.locate(self._segment_of(position), position)

    @override
    def resident(self, position: int) -> Block | None:
        segment = self._find_segment(position)
        return None if segment is None else self._blocks.resident(segment.first, position)

    def check(self, extent: Extent) -> Iterator[tuple[int, BadRange | None]]:
        """Read a finished extent: the number of bytes and any damage, a step at a time."""
        yield from self._blocks.check(self._segment_of(extent.first))

    def forget_damage(self) -> None:
        """Do nothing: damage is not remembered."""

    def forget_unused(self) -> bool:
        """Keep cached blocks: most were written just now, and reading them again takes a round trip."""
        return False

    def _ask(self, statement: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return retry_read(lambda: statement(*args, **kwargs), self._clock, READ_PATIENCE, UNREADABLE)

    def _check_usable(self) -> None:
        if self._closed:
            raise LogClosed(f"the journal in {self._where} was closed")
        self._writer.check()
