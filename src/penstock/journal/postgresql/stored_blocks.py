"""Reading an extent's blocks from the database: all in order, each checked, and single ones through a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.journal.contract import BadRange
from penstock.journal.errors import JournalDamaged
from penstock.journal.format.block import Block, BlockError, parse
from penstock.journal.format.segment import Segment
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import BlockRow, NewBlock, ReadableDatabase
from penstock.journal.postgresql.extents import REMEDY
from penstock.journal.postgresql.readahead import Fetch, ReadAhead
from penstock.journal.postgresql.retries import retry_read

#: Bytes of blocks that are read at a time.
WINDOW = 4 * 1024 * 1024
#: Seconds for which reading waits for an unreachable database. The broker's loop may be waiting.
READ_PATIENCE = 1.0
UNREADABLE = "the journal cannot be read: "


class BlockReader:
    """Reads blocks in order with ``fetch``. ``check_present`` raises if an extent was trimmed meanwhile."""

    def __init__(self, where: str, fetch: Fetch, check_present: Callable[[Segment], object]) -> None:
        self._where = where
        self._fetch = fetch
        self._check_present = check_present

    def read(self, segment: Segment, start: int, limit: int) -> Iterator[Block]:
        """The blocks of an extent with events from ``start`` up to ``limit``. Raises JournalDamaged."""
        position, stop = max(start, segment.first), min(segment.end, limit)
        expected, chain = (segment.first, _header_crc(segment)) if position == segment.first else (None, None)
        while position < stop:
            rows = self._fetch(segment.first, position, WINDOW)
            if not rows:
                self._check_present(segment)
                raise self.damaged(segment, (position, stop), "its blocks are missing")
            for row in rows:
                if row.first >= stop:
                    return
                block = self._sound(segment, row, expected, chain)
                yield block
                position = expected = block.end
                chain = block.header.crc

    def check(self, segment: Segment) -> Iterator[tuple[int, BadRange | None]]:
        """Read all blocks of an extent: bytes and damage, a step at a time."""
        position = segment.first
        while position < segment.end:
            rows = self._fetch(segment.first, position, WINDOW)
            if not rows:
                self._check_present(segment)
            if not rows or rows[0].first > position:
                end = rows[0].first if rows else segment.end
                yield 0, BadRange(position, end, segment.name, "its blocks are missing")
                position = end
            for row in rows:
                yield len(row.data), self._bad(segment, row, position)
                position = row.end

    def damaged(self, segment: Segment, lost: tuple[int, int], reason: str) -> JournalDamaged:
        """The error for a damaged extent."""
        return JournalDamaged(self._where, segment.name, 0, lost, reason, remedy=REMEDY)

    def _bad(self, segment: Segment, row: BlockRow, position: int) -> BadRange | None:
        try:
            self._sound(segment, row, position, None)
        except JournalDamaged as error:
            return BadRange(*error.lost, segment.name, error.reason)
        return None

    def _sound(self, segment: Segment, row: BlockRow, position: int | None, chain: int | None) -> Block:
        """Parse the block in a row, which must start at a position and continue a chain, if they are known."""
        try:
            block = parse(row.data)
            if (block.first, block.end) != (row.first, row.end) or position not in (None, block.first):
                raise BlockError(0, f"it starts at position {block.first} where {position or row.first} must follow")
            if chain not in (None, block.header.previous):
                raise BlockError(0, "it does not continue the block before it")
        except BlockError as error:
            raise self.damaged(segment, (position or row.first, row.end), error.reason) from None
        return block


class StoredBlocks(BlockReader):
    """The blocks of the owner's log. Any thread may use it. Raises LogAway while the database is unreachable."""

    def __init__(
        self, database: ReadableDatabase, clock: Clock, segment_of: Callable[[int], Segment], *, in_thread: bool
    ) -> None:
        """``segment_of`` finds the extent with a position, and raises Gone if it was trimmed."""
        super().__init__(database.where, self._blocks, lambda segment: segment_of(segment.first))
        self._database = database
        self._clock = clock
        self._ahead = ReadAhead(self._blocks, in_thread=in_thread)

    def _blocks(self, extent: int, position: int, size: int) -> list[BlockRow]:
        return retry_read(lambda: self._database.blocks(extent, position, size), self._clock, READ_PATIENCE, UNREADABLE)

    def locate(self, segment: Segment, position: int) -> Block:
        """The block of an extent with a position. Raises Gone, or JournalDamaged."""
        try:
            block = self._ahead.find(segment.first, position)
        except BlockError as error:
            raise self.damaged(segment, (position, position + 1), error.reason) from None
        if block is None:
            self._check_present(segment)
            raise self.damaged(segment, (position, position + 1), "its block is missing")
        return block

    def resident(self, extent: int, position: int) -> Block | None:
        """The same block if it is cached."""
        return self._ahead.resident(extent, position)

    def add(self, extent: int, block: NewBlock) -> None:
        """Cache a block that was written just now."""
        self._ahead.cache.add(extent, block.first, block.end, block.data)

    def forget(self, extent: int) -> None:
        """Drop the cached blocks of an extent that is gone."""
        self._ahead.cache.forget(extent)

    def close(self) -> None:
        """Stop reading ahead."""
        self._ahead.close()


def _header_crc(segment: Segment) -> int:
    """The checksum that the first block of an extent is chained to."""
    return int.from_bytes(segment.header.encode()[-4:], "little")
