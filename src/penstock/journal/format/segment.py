"""Segment files: their names, the header, and after the blocks the sparse index and the footer.

A segment is a header, blocks, and, once it is finished, an index and a footer. An unfinished one always ends in zeros,
because space is allocated ahead. So a file that was cut short can be recognized.

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
``first``, or lower if numbering resumed higher, which makes the gap legal. ``chain`` is the CRC of the last block
before the segment, and its first block is chained to the CRC of its header. So neither a segment nor a block can be
missing or foreign unnoticed. A footer's ``chain`` is the ``chain`` of the next segment: the CRC of the last block, or,
if a repair has chained that block to another one, the CRC before the repair. Times are microseconds since 1970; ``last
at`` is the base time of the last block.
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
#: Footer flag: the first block is a bridge over lost events; see ``repair.bridge``.
BRIDGE: Final = 2
#: Footer flag: a repair has changed the chain of the blocks. ``chain`` is that of the next segment, not the last CRC.
RECHAINED: Final = 4
#: The bytes of blocks for one index entry, which is about what a look-up reads.
INDEX_STEP: Final = 64 * 1024

_NAME: Final = re.compile(r"[0-9a-f]{16}\.seg")
#: Suffix of a trimmed segment that is kept because live messages in it are damaged.
KEPT: Final = ".kept"
_KEPT_NAME: Final = re.compile(r"[0-9a-f]{16}\.seg\.kept")


def segment_name(first: int) -> str:
    """The file name of the segment that begins at a position. Names sort as positions do."""
    return f"{first:016x}.seg"


def is_segment(name: str) -> bool:
    """Whether a file is a segment, by its name."""
    return _NAME.fullmatch(name) is not None


def is_kept(name: str) -> bool:
    """Whether a file is a kept segment, by its name."""
    return _KEPT_NAME.fullmatch(name) is not None


def _signed(raw: bytes) -> bytes:
    return raw[:-4] + crc32(raw[:-4]).to_bytes(4, "little")


def _valid(raw: bytes, magic: bytes) -> bool:
    return len(raw) == HEADER_SIZE and raw[:4] == magic and crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little")


class SegmentHeader(NamedTuple):
    """The header, as drawn above. ``created`` is the time of the first event."""

    durability: Durability
    identity: int
    first: int
    after: int
    created: int
    chain: int
    epoch: int

    def encode(self) -> bytes:
        """The 64 bytes."""
        durability, *rest = self
        return _signed(HEADER.pack(HEADER_MAGIC, VERSION, durability.value, *rest, 0))

    @property
    def checksum(self) -> int:
        """Its CRC, to which the first block is chained, and which distinguishes the segment from every other."""
        return int.from_bytes(self.encode()[-4:], "little")

    @classmethod
    def decode(cls, raw: bytes) -> SegmentHeader | None:
        """The header, or None if it is invalid. Raises JournalRefused for another format."""
        if not _valid(raw, HEADER_MAGIC):
            return None
        _, version, durability, *rest = HEADER.unpack(raw)
        if version != VERSION:
            raise JournalRefused(f"a segment cannot be read: {other_format(version)}")
        return cls(Durability(durability), *rest[:-1])


class Footer(NamedTuple):
    """The footer, as drawn above. ``entries`` is the number of index entries."""

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
        """The footer, or None if it is invalid."""
        if not _valid(raw, FOOTER_MAGIC):
            return None
        return cls(*FOOTER.unpack(raw)[2:-1])

    @property
    def file_size(self) -> int:
        """The size of the file with this footer."""
        return self.blocks_end + 16 * self.entries + FOOTER_SIZE


class SparseIndex:
    """The offsets of blocks, one entry per ``INDEX_STEP`` bytes, so that small commits cost no memory."""

    def __init__(self) -> None:
        self.positions = array("Q")
        self.offsets = array("Q")

    def add(self, position: int, offset: int) -> None:
        """Add the next block. Most need no entry."""
        if not self.offsets or offset >= self.offsets[-1] + INDEX_STEP:
            self.offsets.append(offset)  # first: a thread that finds a position then finds its offset
            self.positions.append(position)

    def find(self, position: int) -> int:
        """The number of the entry whose blocks may contain the position."""
        return max(bisect_right(self.positions, position) - 1, 0)

    def stretch(self, entry: int, blocks_end: int) -> tuple[int, int]:
        """The start and end offset of an entry's blocks."""
        start = self.offsets[entry] if self.offsets else blocks_end
        return start, self.offsets[entry + 1] if entry + 1 < len(self.offsets) else blocks_end

    def encode(self) -> bytes:
        """The bytes before the footer."""
        return self.positions.tobytes() + self.offsets.tobytes()

    @classmethod
    def decode(cls, raw: bytes) -> SparseIndex:
        """Decode the bytes before the footer, whose CRC was verified."""
        index = cls()
        index.positions.frombytes(raw[: len(raw) // 2])
        index.offsets.frombytes(raw[len(raw) // 2 :])
        return index


class Segment:
    """The state of one segment file. The writer of the last one moves its ends; readers read ``end`` first."""

    def __init__(self, header: SegmentHeader) -> None:
        self.header = header
        self.name = segment_name(header.first)
        self.first = header.first
        #: The position after the last event, and the offset after the last block.
        self.end = header.first
        self.blocks_end = HEADER_SIZE
        self.blocks = 0
        #: The CRC to which the next block is chained.
        self.chain = header.checksum
        self.last_at = header.created
        self.finished = False
        self.clean = False
        #: Whether this process has verified all of its checksums.
        self.verified = False
        #: None for a finished segment, whose index is in the file.
        self.index: SparseIndex | None = SparseIndex()

    def __repr__(self) -> str:
        return f"<Segment {self.first}..{self.end}, {self.blocks_end} bytes>"

    @property
    def size(self) -> int:
        """Bytes without the space allocated ahead."""
        return self.blocks_end

    @property
    def created(self) -> int:
        """The time of its first event, microseconds since 1970."""
        return self.header.created

    def add(self, header: BlockHeader) -> None:
        """Record the next block."""
        self.note(header.first, header.end, header.length, header.base, header.crc)

    def note(self, first: int, end: int, length: int, base: int, crc: int) -> None:
        """Record the next block by its properties. ``end`` is moved last: see the class."""
        assert self.index is not None
        self.index.add(first, self.blocks_end)
        self.blocks_end += length
        self.blocks += 1
        self.chain = crc
        self.last_at = max(self.last_at, base)
        self.end = end

    def footer(self, *, clean: bool) -> tuple[bytes, Footer]:
        """The bytes of the index, and the footer, for the end of the file."""
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
        """Mark it as finished, with the facts in the footer."""
        self.end = footer.end
        self.blocks_end = footer.blocks_end
        self.blocks = footer.blocks
        self.chain = footer.chain
        self.last_at = footer.last_at
        self.finished = True
        self.clean = bool(footer.flags & CLEAN)
        self.index = None
