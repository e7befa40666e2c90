"""The log in PostgreSQL, in the hands of its owner: see ``contract.Log``.

Every append is one commit of the database, so what is appended is committed and synced. Writing goes over one
connection, in the committer's thread; reading over another, through ``readahead``; trimming, which has no hurry, over a
third. An owner never goes on with an extent of the one before: its first append begins another, as with files.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from penstock.journal.contract import FIRST_POSITION, BadRange, Durability, Extent, OwnerOptions, resume_after
from penstock.journal.errors import JournalDamaged, LogClosed, LogError
from penstock.journal.format.block import Batch, Block, BlockError
from penstock.journal.format.encoding import Encoded, encode
from penstock.journal.format.segment import Segment, SparseIndex
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import (
    MADE_IN,
    BlockRow,
    Database,
    DatabaseError,
    NewBlock,
    NewExtent,
    ReadableDatabase,
    ShardRow,
)
from penstock.journal.postgresql.extents import REMEDY, check_extents, row_of, segment_of
from penstock.journal.postgresql.incarnations import is_another
from penstock.journal.postgresql.pace import BlockPace
from penstock.journal.postgresql.questions import away
from penstock.journal.postgresql.readahead import ReadAhead
from penstock.journal.postgresql.reading import BlockReader
from penstock.journal.postgresql.schema import partition
from penstock.journal.postgresql.seen import accepted_losses
from penstock.journal.postgresql.writer import HeadWriter, insist
from penstock.journal.segmented_log import SegmentedLog
from penstock.schema import Kind

#: Seconds for which reading waits for a database that can't be reached: the broker's loop may be waiting.
READ_PATIENCE = 1.0
T = TypeVar("T")


class Connections(NamedTuple):
    """What an owner talks to the database by: for the head, for reading, for what takes its time, and for the lease."""

    head: Database
    reading: ReadableDatabase
    aside: Database
    lease: Database

    def close(self) -> None:
        """Let go of all."""
        for each in self:
            each.close()


class _Fence(NamedTuple):
    """A batch of one row: a broker opened the journal."""

    first: int
    at: array[int]
    columns: dict[str, array[int] | list[bytes]]
    kinds: bytearray = bytearray([Kind.STARTED])
    queues: array[int] = array("I", [0])
    source: array[int] = array("H", [0])
    sources: list[bytes] = [b"penstock"]  # noqa: RUF012  # never changed


class DatabaseLog(SegmentedLog):
    """The log of the broker that owns it."""

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
        """``shard`` is what the claim has returned. Nothing is changed yet but by that."""
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
        #: Whether there may be something to be given back that somebody was reading.
        self._is_left = False
        self._reader = BlockReader(self._where, self._fetch, self._check_there)
        self._pace = BlockPace(writer.lease.seconds)
        self._blocks = ReadAhead(self._fetch, in_thread=in_thread)

    def take_over(self, shard: ShardRow) -> None:
        """Look at what is there, and put a block of ours at the head, so that nothing of the owner before follows it.

        A log without blocks has nothing that could be followed, and in another incarnation nothing follows the head:
        see ``incarnations``. Raises what ``append`` does, and JournalDamaged.
        """
        rows = self._ask(self._connections.head.extents)
        segments = [(row, segment_of(self._where, row, self.identity)) for row in rows]
        self._kept = [segment for row, segment in segments if row.kept]
        self._segments = [segment for row, segment in segments if not row.kept]
        check_extents(self._where, shard, self._segments)
        made_in = self._ask(lambda: self._connections.head.value(MADE_IN))
        self.put_back = is_another(made_in, rows, self._incarnation)
        if self.put_back:
            accepted = self._ask(lambda: accepted_losses(self._connections.head))
            self._end = max(resume_after(shard.head, self._clock.now()), *(high for _, high in accepted), 0)
        elif self._segments:
            self._fence(self._segments[-1])

    def _fence(self, segment: Segment) -> None:
        detail = json.dumps({"epoch": self.epoch, "owner": self._writer.owner}).encode()
        row = _Fence(segment.end, array("q", [self._clock.now()]), {"detail": [detail]})
        segment.index = SparseIndex()
        self._write(encode(row, self.epoch, segment.chain, synced=True), segment, None)

    # What it says of itself

    @property
    def identity(self) -> int:
        """See Log."""
        return self._identity

    @property
    def epoch(self) -> int:
        """See Log."""
        return self._writer.epoch

    @property
    def _growing(self) -> Segment | None:
        """The extent that this owner has begun, if it has."""
        return self._begun

    @property
    def committed(self) -> int:
        """See Log."""
        return self._end

    @property
    def synced(self) -> int:
        """See Log."""
        return self._end

    @property
    def block_bytes(self) -> int:
        """See Log."""
        return self._pace.bytes

    @property
    def floor(self) -> int:
        """See Log."""
        return max(self._writer.floor, self.start)

    @property
    def expects_checkpoint(self) -> bool:
        """See OwnedJournal: before anything is trimmed, or when an extent is finished, one is written."""
        return self.start > FIRST_POSITION or len(self._segments) > 1

    def check_reach(self, position: int) -> bool:
        """See OwnedJournal."""
        reached = self._segments[-1].end if self._segments else FIRST_POSITION
        if reached < position != self._end:
            reason = f"the journal ends at position {reached}, but there is a checkpoint at {position}"
            raise JournalDamaged(self._where, "checkpoints", 0, (reached, position), reason, remedy=REMEDY)
        return not self._segments or self._segments[0].header.after <= position

    # Writing

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """See Log."""
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
        block, began = _new_block(encoded), self._clock.monotonic()
        self._writer.append(block, segment.first, begins)
        self._pace.note(len(block.data), self._clock.monotonic() - began)
        segment.note(encoded.first, encoded.end, encoded.length, encoded.base, encoded.crc)
        self._blocks.cache.add(segment.first, block.first, block.end, block.data)
        self._end = block.end

    def sync(self) -> None:
        """See Log. All is committed; but readers are to be shown the floor."""
        self._check_usable()
        self._writer.show_floor()

    def seal(self, epoch: int) -> None:
        """See Log."""
        self._check_usable()
        self._check_newer(epoch)
        self._writer.seal(epoch)

    def set_floor(self, position: int) -> None:
        """See Log."""
        self._writer.floor = position

    def trim(self, before: int, keep: Container[int] = ()) -> None:
        """See Log. Any thread may call it."""
        self._check_usable()
        with self._changing:
            going = [segment for segment in self._segments[:-1] if segment.end <= before]
            kept = [segment for segment in going if segment.first in keep]
            if going:
                low, firsts = self._segments[len(going)].first, [segment.first for segment in kept]
                self._writer.ours(lambda epoch: self._connections.aside.trim(epoch, low, firsts))
                self._segments = self._segments[len(going) :]
                self._kept = [*self._kept, *kept]
        if going or self._is_left:
            self._give_back(segment.first for segment in going if segment not in kept)

    def release(self, extent: Extent) -> None:
        """See Log."""
        self._check_usable()
        first = extent.first
        with self._changing:
            self._writer.ours(lambda epoch: self._connections.aside.unkeep(epoch, first))
            self._kept = [each for each in self._kept if each.first != first]
        self._give_back([first])

    def drop_forgotten(self) -> None:
        """Give back what an owner before us has left."""
        self._give_back(())

    def _give_back(self, extents: Iterable[int]) -> None:
        for first in extents:
            self._blocks.cache.forget(first)
        self._is_left = True
        with suppress(DatabaseError):  # it can be done at any other time
            self._is_left = not self._connections.aside.drop()

    def close(self) -> None:
        """See Log. The lease is given back, so that another broker may go on at once."""
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
        """See Log."""
        limit = self._end
        for segment in self._segments:
            if segment.end > start and segment.first < limit:
                yield from self._reader.read(segment, start, limit)

    def locate(self, position: int) -> Block:
        """See Log."""
        segment = self._segment_of(position)
        try:
            block = self._blocks.find(segment.first, position)
        except BlockError as error:
            raise self._reader.damaged(segment, (position, position + 1), error.reason) from None
        if block is None:
            self._check_there(segment)
            raise self._reader.damaged(segment, (position, position + 1), "its block is missing")
        return block

    def resident(self, position: int) -> Block | None:
        """See Log."""
        segment = self._find_segment(position)
        return None if segment is None else self._blocks.resident(segment.first, position)

    def check(self, extent: Extent) -> Iterator[tuple[int, BadRange | None]]:
        """See Log."""
        segment = self._segment_of(extent.first)
        yield from self._reader.check(segment)

    def forget_damage(self) -> None:
        """See Log. Nothing is kept of what is damaged."""

    def forget_unused(self) -> bool:
        """See Log. What is kept here was mostly written just now, and is a way to the database the next time."""
        return False

    # How it is done

    def _fetch(self, extent: int, position: int, size: int) -> list[BlockRow]:
        return self._ask(lambda: self._connections.reading.blocks(extent, position, size))

    def _ask(self, ask: Callable[[], T]) -> T:
        """Read something. Raises LogAway where the database can't be asked for too long."""
        try:
            return insist(ask, self._clock, READ_PATIENCE)
        except DatabaseError as error:
            raise away(error, "the journal can not be read: ") from error

    def _check_there(self, segment: Segment) -> None:
        """Raise Gone if an extent was trimmed meanwhile."""
        self._segment_of(segment.first)

    def _check_usable(self) -> None:
        if self._closed:
            raise LogClosed(f"the journal in {self._where} was closed")
        self._writer.check()


def _new_block(encoded: Encoded) -> NewBlock:
    header = encoded.header
    return NewBlock(header.first, header.end, header.epoch, header.crc, header.base, encoded.data)
