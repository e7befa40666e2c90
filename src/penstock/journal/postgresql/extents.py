"""Converts extents between rows of the database and segments of the local format."""

from __future__ import annotations

from penstock.journal.contract import FIRST_POSITION
from penstock.journal.errors import JournalDamaged, JournalRefused
from penstock.journal.format.segment import CLEAN, HEADER_SIZE, Footer, Segment, SegmentHeader
from penstock.journal.postgresql.database import ExtentRow, ShardRow
from penstock.journal.postgresql.schema import partition

#: The advice for damage: a database has no files to repair.
REMEDY = "Restore a backup of the database, or copy what can be read: penstock journal copy"


def segment_of(where: str, row: ExtentRow, identity: int) -> Segment:
    """The extent. Raises JournalRefused if its header is damaged, or belongs to another journal."""
    header = SegmentHeader.decode(row.header)
    if header is None or header.first != row.first or header.identity != identity:
        raise JournalRefused(
            f"{where}: the header of extent {row.first} is damaged, or that of another journal. {REMEDY}"
        )
    segment = Segment(header)
    segment.name = partition(row.first)
    segment.finish(
        Footer(row.flags, row.first, row.end, row.last_at, HEADER_SIZE + row.size, 0, row.chain, row.blocks, 0)
    )
    segment.finished = row.finished
    return segment


def row_of(segment: Segment, incarnation: int) -> ExtentRow:
    """The row of a finished extent."""
    size = segment.blocks_end - HEADER_SIZE
    sums = (segment.end, size, segment.blocks, segment.last_at, segment.chain)
    return ExtentRow(segment.first, segment.header.encode(), incarnation, *sums, CLEAN, finished=True, kept=False)


def check_extents(where: str, shard: ShardRow, segments: list[Segment]) -> None:
    """Raise JournalDamaged unless the extents follow each other from where the log begins up to its head."""
    end, chain = shard.low, None
    for segment in segments:
        if segment.header.after != end and not (segment is segments[0] and segment.first == shard.low):
            raise _missing(where, segment.name, (end, segment.header.after), "extents before it are missing")
        if chain is not None and segment.header.chain != chain:
            raise _missing(where, segment.name, (end, segment.first), "it does not continue the extent before it")
        end, chain = segment.end, segment.chain
    if not segments and shard.head != FIRST_POSITION:
        raise _missing(where, "extents", (shard.low, shard.head), "there are none")
    if segments and end != shard.head:
        raise _missing(where, segments[-1].name, (end, shard.head), f"it ends at {end}, the journal at {shard.head}")


def _missing(where: str, name: str, lost: tuple[int, int], reason: str) -> JournalDamaged:
    return JournalDamaged(where, name, 0, lost, reason, remedy=REMEDY)
