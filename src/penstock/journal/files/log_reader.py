"""Reading the log's segments: blocks in order, the block with a position, and their damage.

This module is not compiled: a compiled generator that is dropped does not run its ``finally``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.journal.contract import BadRange
from penstock.journal.errors import JournalDamaged
from penstock.journal.files.disk import Disk, File
from penstock.journal.files.failures import DiskFailures
from penstock.journal.files.segment_reader import (
    BadBlocks,
    DamagedBlock,
    Locator,
    next_valid,
    read_blocks,
    scan,
    walk,
    while_open,
)
from penstock.journal.format.block import Block, BlockError
from penstock.journal.format.segment import HEADER_SIZE, Segment


class LogReader:
    """Reads segments. The error for a damaged one has the lost positions. Any thread may use it."""

    def __init__(self, disk: Disk, locator: Locator, failures: DiskFailures) -> None:
        self._disk = disk
        self._locator = locator
        self._failures = failures

    def read(self, segments: Sequence[Segment], start: int, limit: int) -> Iterator[Block]:
        """The blocks with events from ``start`` up to ``limit``, in order.

        Checks each block's checksum, unless the start has done so. Raises JournalDamaged.
        """
        for segment in segments:
            if segment.end > start and segment.first < limit:
                yield from self._read_segment(segment, start, limit)

    def locate(self, segment: Segment, position: int) -> Block | None:
        """The block with a position, committed or not; None if there is none. Raises JournalDamaged."""
        try:
            with self._failures.converted():
                return self._locator.find(segment, position)
        except DamagedBlock as error:
            raise JournalDamaged(self._disk.where, segment.name, error.offset, error.lost, error.reason) from None

    def check(self, segment: Segment) -> Iterator[tuple[int, BadRange | None]]:
        """Verify a finished segment step by step: each step returns its bytes, and damage if there is any."""
        steps = while_open(
            lambda: self._disk.open(segment.name),
            lambda file: scan(file, HEADER_SIZE, segment.blocks_end, segment.first, segment.end),
        )
        for block, bad in steps:
            yield (block.header.length if block is not None else 0), bad and _bad_range(segment, bad)

    def _read_segment(self, segment: Segment, start: int, limit: int) -> Iterator[Block]:
        return while_open(lambda: self._open(segment), lambda file: self._read_blocks(file, segment, start, limit))

    def _open(self, segment: Segment) -> File:
        with self._failures.converted():
            return self._disk.open(segment.name)

    def _read_blocks(self, file: File, segment: Segment, start: int, limit: int) -> Iterator[Block]:
        position = max(start, segment.first)
        try:
            with self._failures.converted():
                offset, position, chain = self._find_start(file, segment, start)
                for block in read_blocks(
                    file, offset, segment.blocks_end, position, chain, verify=not segment.verified
                ):
                    if block.end > limit:
                        return
                    position = block.end
                    if position > start:
                        yield block
        except BlockError as error:
            raise self._damaged(segment, error, position, file) from None

    def _find_start(self, file: File, segment: Segment, start: int) -> tuple[int, int, int | None]:
        """Offset and position of the block with an event, and the checksum that it must be chained to, if known.

        Damage before it does not matter.
        """
        offset, position = HEADER_SIZE, segment.first
        chain: int | None = segment.header.checksum
        if start <= segment.first:
            return offset, position, chain
        offset = self._locator.offset(segment, start)
        if offset > HEADER_SIZE:
            position, chain = start, None
        try:
            for header, _, at in walk(file, offset, segment.blocks_end, verify=False):
                if header.end > start:
                    return at, header.first, chain
                offset, position, chain = at + header.length, header.end, header.crc
        except BlockError:
            following = next_valid(file, offset, start, stop=segment.blocks_end)
            if following is not None and following.first == start:
                return following.offset, start, None
        return offset, position, chain

    def _damaged(self, segment: Segment, error: BlockError, position: int, file: File) -> JournalDamaged:
        """The error, with the lost positions: up to the next valid block, or to the segment's end."""
        following = next_valid(file, error.offset, position + 1, stop=segment.blocks_end)
        lost = (position, following.first if following is not None else segment.end)
        return JournalDamaged(self._disk.where, segment.name, error.offset, lost, error.reason)


def _bad_range(segment: Segment, bad: BadBlocks) -> BadRange:
    return BadRange(bad.first, bad.end, f"{segment.name}, byte {bad.offset}", bad.reason)
