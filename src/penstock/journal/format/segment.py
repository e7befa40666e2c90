"""Segment files: their names, the header in front, the sparse index and the footer behind.

A segment is a header, blocks, and, once it is finished, an index and a footer. An unfinished one ends in zeros, because
space is reserved ahead; there are always some, so that a file that was cut short can be told from one that wasn't.

    header (64 bytes)
     0       4     6     8             16              24              32              40        44      48
    +-------+-----+-----+-------------+---------------+---------------+---------------+---------+-------+
    | magic | ver | dur | identity    | first         | after         | created (i64) | chain   | epoch |
    +-------+-----+-----+-------------+---------------+---------------+---------------+---------+-------+
    | reserved (12 bytes)             | CRC of 0..60  |
    +---------------------------------+---------------+ 64

    block, block, block …

    index: entries × u64 positions, entries × u64 offsets
    footer (64 bytes)
     0       4     6     8             16              24              32              40        44      48
    +-------+-----+-----+-------------+---------------+---------------+---------------+---------+-------+
    | magic | ver | flg | first       | end           | last at (i64) | blocks' end   | entries | chain |
    +-------+-----+-----+-------------+---------------+---------------+---------------+---------+-------+
    | blocks (u64)                    | index CRC     | CRC of 0..60  |
    +---------------------------------+---------------+---------------+ 64

Segments are chained as blocks are. ``after`` is the position at which the log ended before this segment: equal to
``first``, or lower when numbering resumed higher, which makes the gap a legal one. ``chain`` is the CRC of the last
block before it, and the first block of a segment is chained to the CRC of the segment's header. So neither a segment
nor a block can be missing, or come from elsewhere, unnoticed. A footer's ``chain`` is the same for the segment after
it: the CRC of the last block, or what that block had before a repair has chained it anew. Times are microseconds since
1970; ``last at`` is the base time of the last block.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from struct import Struct
from typing import Final, NamedTuple

from penstock.journal.contract import Durability
from penstock.journal.errors import JournalRefused
from penstock.journal.format.block import VERSION, BlockHeader, other_format
from penstock.journal.format.checksum import crc32

HEADER: Final = Struct("<4sHHQQQqII12xI")
FOOTER: Final = Struct("<4sHHQQqQIIQII")
HEADER_SIZE: Final = HEADER.size
FOOTER_SIZE: Final = FOOTER.size
HEADER_MAGIC: Final = b"PNSG"
FOOTER_MAGIC: Final = b"PNFT"
#: Footer flag: the segment was finished by its writer, not by the start after an unclean stop.
CLEAN: Final = 1
#: Footer flag: a repair has put the segment's first block over events that are lost; see `bridge`.
BRIDGE: Final = 2
#: Footer flag: a repair has chained the blocks anew. ``chain`` is what the next segment goes by, not the last CRC.
RECHAINED: Final = 4
#: An index entry stands for about this many bytes of blocks: what one look-up reads.
INDEX_STEP: Final = 64 * 1024

_NAME: Final = re.compile(r"[0-9a-f]{16}\.seg")
#: A segment that was to be removed, and is kept because live messages in it are damaged.
KEPT: Final = ".kept"
_KEPT_NAME: Final = re.compile(r"[0-9a-f]{16}\.seg\.kept")


def segment_name(first: int) -> str:
    """The file name of the segment that starts at a position; names sort as positions do."""
    return f"{first:016x}.seg"


def is_segment(name: str) -> bool:
    """Whether a file name is one of ours."""
    return _NAME.fullmatch(name) is not None


def is_kept(name: str) -> bool:
    """Whether a file is a segment that is kept for the damaged messages in it."""
    return _KEPT_NAME.fullmatch(name) is not None


def _signed(raw: bytes) -> bytes:
    return raw[:-4] + crc32(raw[:-4]).to_bytes(4, "little")


def _sound(raw: bytes, magic: bytes) -> bool:
    return len(raw) == HEADER_SIZE and raw[:4] == magic and crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little")


class SegmentHeader(NamedTuple):
    """See the drawing above."""

    durability: Durability
    identity: int
    first: int
    after: int
    created: int
    chain: int
    epoch: int

    def encode(self) -> bytes:
        """The 64 bytes. Their last four are what the first block is chained to."""
        durability, *rest = self
        return _signed(HEADER.pack(HEADER_MAGIC, VERSION, durability.value, *rest, 0))

    @property
    def checksum(self) -> int:
        """What the first block is chained to, and what tells the segment from every other one."""
        return int.from_bytes(self.encode()[-4:], "little")

    @classmethod
    def decode(cls, raw: bytes) -> SegmentHeader | None:
        """The header, or None where there isn't a sound one. Raises JournalRefused for another format."""
        if not _sound(raw, HEADER_MAGIC):
            return None
        _, version, durability, *rest = HEADER.unpack(raw)
        if version != VERSION:
            raise JournalRefused(f"a segment can not be read: {other_format(version)}")
        return cls(Durability(durability), *rest[:-1])


class Footer(NamedTuple):
    """See the drawing above."""

    flags: int
    first: int
    end: int
    last_at: int
    blocks_end: int
    entries: int
    chain: int
    blocks: int
    index_crc: int

    def encode(self) -> bytes:
        """The 64 bytes."""
        return _signed(FOOTER.pack(FOOTER_MAGIC, VERSION, *self, 0))

    @classmethod
    def decode(cls, raw: bytes) -> Footer | None:
        """The footer, or None where there isn't a sound one."""
        if not _sound(raw, FOOTER_MAGIC):
            return None
        return cls(*FOOTER.unpack(raw)[2:-1])

    @property
    def file_size(self) -> int:
        """How long the file of this footer is."""
        return self.blocks_end + 16 * self.entries + FOOTER_SIZE


class SparseIndex:
    """Where blocks start, one entry per ``INDEX_STEP`` bytes, so that one-message commits cost no memory."""

    def __init__(self) -> None:
        self.positions = array("Q")
        self.offsets = array("Q")

    def add(self, position: int, offset: int) -> None:
        """Tell of the next block. Most are not kept."""
        if not self.offsets or offset >= self.offsets[-1] + INDEX_STEP:
            self.offsets.append(offset)  # first: who looks a position up in another thread finds its offset
            self.positions.append(position)

    def find(self, position: int) -> int:
        """The number of the entry whose stretch of blocks has the position, if any has."""
        return max(bisect_right(self.positions, position) - 1, 0)

    def stretch(self, entry: int, blocks_end: int) -> tuple[int, int]:
        """The offsets between which the entry's blocks lie."""
        start = self.offsets[entry] if self.offsets else blocks_end
        return start, self.offsets[entry + 1] if entry + 1 < len(self.offsets) else blocks_end

    def encode(self) -> bytes:
        """The bytes before the footer."""
        return self.positions.tobytes() + self.offsets.tobytes()

    @classmethod
    def decode(cls, raw: bytes) -> SparseIndex:
        """From the bytes before the footer, whose CRC was right."""
        index = cls()
        index.positions.frombytes(raw[: len(raw) // 2])
        index.offsets.frombytes(raw[len(raw) // 2 :])
        return index


class Segment:
    """What is known of one segment file. The writer of the last one moves its ends; readers look at ``end`` first."""

    def __init__(self, header: SegmentHeader) -> None:
        self.header = header
        self.name = segment_name(header.first)
        self.first = header.first
        #: The position after the last event, and the offset after the last block.
        self.end = header.first
        self.blocks_end = HEADER_SIZE
        self.blocks = 0
        #: What the next block is chained to.
        self.chain = int.from_bytes(header.encode()[-4:], "little")
        self.last_at = header.created
        self.finished = False
        self.clean = False
        #: Whether this process has seen every checksum of it to be right.
        self.verified = False
        #: None for a finished segment: it is in the file, and read when it is needed.
        self.index: SparseIndex | None = SparseIndex()

    def __repr__(self) -> str:
        return f"<Segment {self.first}..{self.end}, {self.blocks_end} bytes>"

    @property
    def size(self) -> int:
        """Bytes on disk, reserved space apart."""
        return self.blocks_end

    @property
    def created(self) -> int:
        """The time of its first event, microseconds since 1970."""
        return self.header.created

    def add(self, header: BlockHeader) -> None:
        """Take note of the next block."""
        self.note(header.first, header.end, header.length, header.base, header.crc)

    def note(self, first: int, end: int, length: int, base: int, crc: int) -> None:
        """The same, by the block's positions, bytes, base time and checksum. ``end`` is moved last: see the class."""
        assert self.index is not None
        self.index.add(first, self.blocks_end)
        self.blocks_end += length
        self.blocks += 1
        self.chain = crc
        self.last_at = max(self.last_at, base)
        self.end = end

    def footer(self, *, clean: bool) -> tuple[bytes, Footer]:
        """What finishes the file: the bytes of the index, and the footer."""
        assert self.index is not None
        index = self.index.encode()
        footer = Footer(
            flags=CLEAN if clean else 0,
            first=self.first,
            end=self.end,
            last_at=self.last_at,
            blocks_end=self.blocks_end,
            entries=len(self.index.offsets),
            chain=self.chain,
            blocks=self.blocks,
            index_crc=crc32(index),
        )
        return index, footer

    def finish(self, footer: Footer) -> None:
        """Take the ends from the footer."""
        self.end = footer.end
        self.blocks_end = footer.blocks_end
        self.blocks = footer.blocks
        self.chain = footer.chain
        self.last_at = footer.last_at
        self.finished = True
        self.clean = bool(footer.flags & CLEAN)
        self.index = None
