"""Reading the blocks of an extent in order, each checked, and saying what is wrong where one is not as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.journal.contract import BadRange
from penstock.journal.errors import JournalDamaged
from penstock.journal.format.block import Block, BlockError, parse
from penstock.journal.format.segment import Segment
from penstock.journal.postgresql.database import BlockRow
from penstock.journal.postgresql.extents import REMEDY
from penstock.journal.postgresql.readahead import Fetch

#: How many bytes of blocks are read at a time.
WINDOW = 4 * 1024 * 1024


class BlockReader:
    """Reads what ``fetch`` gets. ``check_there`` raises where an extent was given back meanwhile."""

    def __init__(self, where: str, fetch: Fetch, check_there: Callable[[Segment], None]) -> None:
        self._where = where
        self._fetch = fetch
        self._check_there = check_there

    def read(self, segment: Segment, start: int, limit: int) -> Iterator[Block]:
        """The blocks of an extent that have events from ``start`` up to ``limit``. Raises JournalDamaged."""
        position, stop = max(start, segment.first), min(segment.end, limit)
        expected, chain = (segment.first, _header_crc(segment)) if position == segment.first else (None, None)
        while position < stop:
            rows = self._fetch(segment.first, position, WINDOW)
            if not rows:
                self._check_there(segment)
                raise self.damaged(segment, (position, stop), "its blocks are missing")
            for row in rows:
                if row.first >= stop:
                    return
                block = self._sound(segment, row, expected, chain)
                yield block
                position = expected = block.end
                chain = block.header.crc

    def check(self, segment: Segment) -> Iterator[tuple[int, BadRange | None]]:
        """As ``Log.check`` does it."""
        position = segment.first
        while position < segment.end:
            rows = self._fetch(segment.first, position, WINDOW)
            if not rows:
                self._check_there(segment)
            if not rows or rows[0].first > position:
                end = rows[0].first if rows else segment.end
                yield 0, BadRange(position, end, segment.name, "its blocks are missing")
                position = end
            for row in rows:
                yield len(row.data), self._bad(segment, row, position)
                position = row.end

    def damaged(self, segment: Segment, lost: tuple[int, int], reason: str) -> JournalDamaged:
        """What to raise for an extent that is not as it should be."""
        return JournalDamaged(self._where, segment.name, 0, lost, reason, remedy=REMEDY)

    def _bad(self, segment: Segment, row: BlockRow, position: int) -> BadRange | None:
        try:
            self._sound(segment, row, position, None)
        except JournalDamaged as error:
            return BadRange(*error.lost, segment.name, error.reason)
        return None

    def _sound(self, segment: Segment, row: BlockRow, position: int | None, chain: int | None) -> Block:
        """The block in a row, which must continue what was read before, where that is known. Raises JournalDamaged."""
        try:
            block = parse(row.data)
            if (block.first, block.end) != (row.first, row.end) or position not in (None, block.first):
                raise BlockError(0, f"it starts at position {block.first} where {position or row.first} must follow")
            if chain not in (None, block.header.previous):
                raise BlockError(0, "it does not continue the block before it")
        except BlockError as error:
            raise self.damaged(segment, (position or row.first, row.end), error.reason) from None
        return block


def _header_crc(segment: Segment) -> int:
    """What the first block of an extent is chained to."""
    return int.from_bytes(segment.header.encode()[-4:], "little")
