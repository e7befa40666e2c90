"""Reading ranges of positions from mapped extents: the base of the followers of all journals.

A kind of journal provides three facts: how far it goes (``_look``), which extents there are (``_spans``), and the
mapped bytes of an extent (``_segment``). Everything else is derived from these. Reading a range again returns the same
events. Where that is no longer possible, a ``DataLoss`` has the lost positions:

* ``Trimmed``: the range begins before the history that retention keeps.
* ``DataLoss`` itself: a crash, a promotion or a restore has lost events of the range, or a repair had to give them up.
  Where shown events may be lost, numbering resumes higher: a position in that gap means that its reader has seen them.
* ``Replaced``: it is another journal now.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from threading import Lock

import numpy as np
from typing_extensions import override

from penstock.journal.contract import Follower, HeldExtent, LocatedBlock, SharedExtent, Span, Tail
from penstock.journal.errors import DataLoss, JournalDamaged, Replaced, Trimmed
from penstock.journal.files.disk import File
from penstock.journal.files.mapped_segment import MappedSegment
from penstock.journal.files.segment_reader import next_valid
from penstock.journal.format.block import Block, BlockError
from penstock.journal.format.catalogue import QueueName, SegmentCatalogue
from penstock.schema import Kind


class SpanReader(Follower, ABC):
    """A view of a journal, whose public methods are those of ``Follower``. Threads may share one."""

    def __init__(self, where: str) -> None:
        """Subclasses set ``identity`` before the first ``tail``."""
        self.where = where
        self.identity = 0
        self._lock = Lock()
        self._tail_lock = Lock()
        self._seen = 0

    # What each kind of journal provides

    @abstractmethod
    def _look(self) -> Tail:
        """How far the journal goes now. Raises JournalRefused."""

    @abstractmethod
    def _spans(self, committed: int) -> list[Span]:
        """The extents with events before a committed position, oldest first. ``committed`` is read before the call."""

    @abstractmethod
    def _segment(self, span: Span) -> MappedSegment:
        """Map an extent, at least up to the span's end. Raises FileNotFoundError if it is gone."""

    @abstractmethod
    def _file(self, name: str) -> File:
        """Open the bytes of an extent. Raises FileNotFoundError."""

    @abstractmethod
    def _path(self, segment: MappedSegment) -> str:
        """Where another process of this machine finds the bytes of an extent. Raises FileNotFoundError."""

    # How far it goes

    @override
    def tail(self) -> Tail:
        # Threads take turns: one that compared its tail with a newer one of another thread would see a journal that
        # went back.
        with self._tail_lock:
            tail = self._look()
            if tail.identity != self.identity:
                raise Replaced((1, max(self._seen, 2)), f"{self.where} holds another journal now")
            if tail.committed < self._seen:
                text = f"{self.where} was restored to an earlier state"
                raise DataLoss((tail.committed, self._seen), text)
            self._seen = tail.committed
            return tail

    @property
    @override
    def earliest(self) -> int:
        tail = self.tail()
        return max(tail.floor, tail.start)

    @property
    @override
    def latest(self) -> int:
        return self.tail().committed

    # Ranges

    @override
    def read(
        self, start: int, stop: int | None = None, *, verify: bool = True, accept_loss: bool = False
    ) -> Iterator[LocatedBlock]:
        tail = self.tail()
        stop = tail.committed if stop is None else stop
        losses = self.losses(start, stop)
        if losses and not accept_loss:
            raise losses[0]
        return self._read(start, min(stop, tail.committed), verify=verify, accept_loss=accept_loss)

    @override
    def mentions(self, message: int, start: int, stop: int) -> Iterator[LocatedBlock]:
        committed = self.tail().committed
        for span in self._spans(committed):
            low, high = max(span.first, start), min(span.end, stop, committed)
            extent = self.hold(span) if low < high else None
            if extent is not None:
                try:
                    yield from (LocatedBlock(block, extent) for block in extent.mentions(message, low, high))
                except BlockError as error:
                    raise self.damaged(extent, error, low, high) from None

    @override
    def losses(self, start: int, stop: int) -> list[DataLoss]:
        tail = self.tail()
        if not 0 < start <= stop:
            raise ValueError(f"positions {start} to {stop} are no range: positions count from 1")
        found: list[DataLoss] = []
        earliest = max(tail.floor, tail.start)
        if start < earliest and start < stop:
            found.append(Trimmed((start, min(earliest, stop)), f"the history begins at position {earliest} now"))
        if stop > tail.committed:
            lost = (max(start, tail.committed), stop)
            found.append(DataLoss(lost, f"the journal ends at position {tail.committed}"))
        for low, high, repaired in _gaps(self._spans(tail.committed), tail.committed):
            if repaired and start < high and low < stop:
                found.append(DataLoss((low, high), "they were damaged, and a repair could not save them"))
            elif low < start < high or low < stop < high:
                seen = start if low < start < high else stop
                text = f"a crash, a promotion or a restore has lost them. Numbering resumed at position {high}"
                found.append(DataLoss((low, high), text, events=(low, seen)))
        return found

    @override
    def position_at(self, time: int) -> int:
        tail = self.tail()
        earliest = max(tail.floor, tail.start)
        spans = self._spans(tail.committed)
        at = bisect_right(spans, time - 1, key=lambda span: span.created) - 1
        for span in spans[max(at, 0) :]:
            segment = self._segment(span)
            start = max(segment.position_before(time, span.end), earliest)
            for block in self._blocks(segment, start, span.end, verify=False):
                rows = np.flatnonzero(block.at() >= time)
                if rows.size and block.first + int(rows[-1]) >= earliest:
                    return max(block.first + int(rows[0]), earliest)
        return tail.committed

    @override
    def counts(self, start: int, stop: int | None = None, *, accept_loss: bool = False) -> dict[int, int]:
        stop = self.latest if stop is None else stop
        total = np.zeros(1, np.int64)
        for block, _ in self.read(start, stop, verify=False, accept_loss=accept_loss):
            low, high = max(start - block.first, 0), min(stop, block.end) - block.first
            queues = block.queues[low:high][block.kinds[low:high] == Kind.PUBLISHED]
            counted = np.bincount(queues, minlength=len(total))
            counted[: len(total)] += total
            total = counted
        return {number: int(total[number]) for number in np.flatnonzero(total).tolist()}

    @override
    def spans(self) -> list[Span]:
        return self._spans(self.tail().committed)

    @override
    def hold(self, span: Span) -> MappedSegment | None:
        try:
            return self._segment(span)
        except FileNotFoundError:
            return None

    @override
    def marks(self, span: Span, limit: int) -> tuple[list[int], list[int]] | None:
        extent = self.hold(span)
        return extent.marks(limit) if extent is not None else None

    @override
    def shared(self, start: int, stop: int, wanted: Callable[[QueueName], bool] | None) -> list[SharedExtent]:
        spans = [span for span in self.spans() if max(span.first, start) < min(span.end, stop)]
        found: list[SharedExtent] = []
        for span in spans:
            segment = self._segment(span)
            low, high = max(span.first, start), min(span.end, stop)
            found.append(segment.share(self._path(segment), low, high, wanted))
        if start < self.earliest:  # checked last: the first extent may have been trimmed before it was listed
            raise FileNotFoundError(f"the history begins at position {self.earliest} now")
        return found

    @override
    def catalogue(self) -> SegmentCatalogue:
        committed = self.tail().committed
        spans = [span for span in self._spans(committed) if span.first < span.end]
        return self._segment(spans[-1]).catalogue(spans[-1].end) if spans else SegmentCatalogue()

    @override
    def damaged(self, extent: HeldExtent, error: BlockError, position: int, stop: int) -> JournalDamaged:
        with suppress(FileNotFoundError):  # reads the file, as the writer may cut mapped bytes after the committed ones
            with closing(self._file(extent.name)) as file:
                following = next_valid(file, error.offset, position + 1)
            stop = min(stop, following.first) if following is not None else stop
        return JournalDamaged(self.where, extent.name, error.offset, (position, stop), error.reason)

    # Helpers

    def _read(self, start: int, stop: int, *, verify: bool, accept_loss: bool) -> Iterator[LocatedBlock]:
        position = start
        while position < stop:
            span = self._span_at(position)
            if (span is None or span.first > position) and not accept_loss and position < (earliest := self.earliest):
                raise Trimmed((position, earliest), "retention has removed them while they were being read")
            if span is None or span.first >= stop:
                return
            try:
                segment = self._segment(span)
            except FileNotFoundError:  # trimmed between listing and opening: list again
                continue
            end = min(span.end, stop)
            for block in self._blocks(segment, position, end, verify=verify):
                yield LocatedBlock(block, segment)
            position = end

    def _span_at(self, position: int) -> Span | None:
        """The segment that has the position, or else the first one after it."""
        committed = self.tail().committed  # before the segments are listed: they reach at least up to it
        return next((span for span in self._spans(committed) if span.end > position), None)

    def _blocks(self, segment: MappedSegment, start: int, stop: int, *, verify: bool) -> Iterator[Block]:
        position = start
        try:
            for block in segment.blocks(start, stop, verify=verify):
                yield block
                position = block.end
        except BlockError as error:
            raise self.damaged(segment, error, position, max(stop, position + 1)) from None


def _gaps(spans: list[Span], committed: int) -> list[tuple[int, int, bool]]:
    """The ranges of positions without events, and whether a repair has given them up."""
    gaps: list[tuple[int, int, bool]] = []
    for before, span in zip([None, *spans], spans, strict=False):
        low = before.end if before is not None else span.after
        if span.bridged:
            gaps.append((low, span.first + 1, True))
        elif low < span.first:
            gaps.append((low, span.first, False))
    if spans and spans[-1].end < committed:
        gaps.append((spans[-1].end, committed, False))
    return gaps
