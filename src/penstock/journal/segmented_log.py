"""A log of segments: the part that files and a database share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable
from threading import RLock

from mypy_extensions import mypyc_attr

from penstock.journal.contract import FIRST_POSITION, UNBOUNDED, Durability, OwnerOptions
from penstock.journal.errors import Fenced, Gone
from penstock.journal.format.block import Batch, Block
from penstock.journal.format.rows import MessageRow, gather, gather_numbers
from penstock.journal.format.segment import Segment, SegmentHeader


@mypyc_attr(allow_interpreted_subclasses=True)  # not all logs are compiled
class SegmentedLog(ABC):
    """The part of ``contract.Log`` that does not depend on where blocks are kept. Subclasses write and read blocks.

    Compiled classes can't inherit from the contract itself, which is a protocol.
    """

    def __init__(self, options: OwnerOptions | None) -> None:
        self.options = options or OwnerOptions()
        self.sync_seconds = 0.0
        #: Replaced, never changed: readers in other threads iterate over it.
        self._segments: list[Segment] = []
        #: Trimmed segments that are kept for damaged messages. Replaced, never changed.
        self._kept: list[Segment] = []
        #: Held while either list is replaced.
        self._changing = RLock()
        #: The position that the next append must have.
        self._end = FIRST_POSITION

    @property
    @abstractmethod
    def identity(self) -> int:
        """64 random bits."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch that appends must have."""

    @property
    @abstractmethod
    def _growing(self) -> Segment | None:
        """The segment that appends go to; None if the next append begins a segment."""

    @abstractmethod
    def locate(self, position: int) -> Block:
        """The block with a position, committed or not. Raises Gone or JournalDamaged."""

    @abstractmethod
    def resident(self, position: int) -> Block | None:
        """The same block if it is in memory."""

    def at_once(self, position: int) -> Block | None:
        """The same block if it can be read without waiting."""
        return self.resident(position)

    @property
    def start(self) -> int:
        """The lowest position that may still exist."""
        return self._segments[0].first if self._segments else self._end

    @property
    def end(self) -> int:
        """The position that the next append must have."""
        return self._end

    @property
    def block_bytes(self) -> int:
        """Unbounded: appends may be of any size."""
        return UNBOUNDED

    @property
    def wants_roll(self) -> bool:
        """Whether the next append should begin a segment, and therefore needs a catalogue."""
        segment = self._growing
        if segment is None:
            return True
        is_old = segment.last_at - segment.created >= self.options.extent_age
        return segment.blocks_end >= self.options.extent_bytes or is_old

    def extents(self) -> list[Segment]:
        """The segments, oldest first. Callers must not change them."""
        return list(self._segments)

    def kept(self) -> list[Segment]:
        """Trimmed segments that are kept for damaged messages."""
        return list(self._kept)

    def messages(self, positions: Iterable[int]) -> list[MessageRow]:
        """The messages at these positions, in the given order. Raises Gone."""
        return gather(positions, self.locate)

    def numbers(self, name: str, positions: Iterable[int]) -> list[int]:
        """One fixed-width column of the messages at these positions. Raises Gone."""
        return gather_numbers(name, positions, self.locate)

    def _check_expected(self, batch: Batch, position: int, epoch: int) -> None:
        """Raise Fenced unless an append expects the current head and epoch."""
        if epoch != self.epoch or not position == batch.first == self._end:
            raise Fenced(
                f"the journal is at position {self._end}, epoch {self.epoch}; this append was meant for"
                f" {position}, epoch {epoch}, and starts at {batch.first}"
            )

    def _check_newer(self, epoch: int) -> None:
        """Raise Fenced unless an epoch is higher than that of the log."""
        if epoch <= self.epoch:
            raise Fenced(f"the journal is at epoch {self.epoch}; {epoch} is not a newer one")

    def _next_header(self, batch: Batch, durability: Durability) -> SegmentHeader:
        """The header of a segment that begins with a batch."""
        before = self._segments[-1] if self._segments else None
        return SegmentHeader(
            durability=durability,
            identity=self.identity,
            first=self._end,
            after=before.end if before else FIRST_POSITION,
            created=batch.at[0] if batch.at else 0,
            chain=before.chain if before else 0,
            epoch=self.epoch,
        )

    def _segment_of(self, position: int) -> Segment:
        """The segment with a position, which may be a kept one. Raises Gone."""
        segment = self._find_segment(position)
        if segment is None:
            raise self._gone(position)
        return segment

    def _find_segment(self, position: int) -> Segment | None:
        for segments in (self._segments, self._kept):
            at = bisect_right(segments, position, key=lambda segment: segment.first) - 1
            if at >= 0 and position < segments[at].end:
                return segments[at]
        return None

    def _gone(self, position: int) -> Gone:
        return Gone(f"position {position} is not in the journal, which goes from {self.start} to {self._end - 1}")
