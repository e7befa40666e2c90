"""Counts rows and bytes per queue between two positions, and caches the counts of ranges that can't change any more.

An extent is counted in stretches of about 2 MiB. Those of a finished extent are added up once all are known. In the
growing extent, counting of the last stretch resumes where it stopped.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from threading import Lock

import numpy as np

from penstock.flight.history import Chooser
from penstock.journal.contract import Follower, HeldExtent, LocatedBlock, Span
from penstock.journal.format.block import Block
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views.merge import merged
from penstock.journal.views.selection import SHOWN
from penstock.schema import Kind

#: Index entries of a stretch.
STRETCH = 32
#: Cached stretches, of extents that are not fully counted.
REMEMBERED = 10_000
#: Cached growing stretches: one for each reader near the end.
GROWING = 100


class Tally:
    """Messages, payload bytes and events by queue; the name None stands for events of no queue."""

    def __init__(self) -> None:
        self._counts: dict[QueueName | None, tuple[int, int, int]] = {}

    def add(self, name: QueueName | None, messages: int, size: int, events: int) -> None:
        """Add to a queue's counts."""
        old = self._counts.get(name, (0, 0, 0))
        self._counts[name] = (old[0] + messages, old[1] + size, old[2] + events)

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        for name, counts in other._counts.items():
            self.add(name, *counts)

    def of(self, name: QueueName) -> tuple[int, int, int]:
        """The counts of one queue."""
        return self._counts.get(name, (0, 0, 0))

    def rows(self, queues: Chooser, *, messages: bool) -> int:
        """Rows of the view ``messages`` or ``events`` in the selected queues."""
        at = 0 if messages else 2
        items = self._counts.items()
        if queues is None:
            return sum(counts[at] for _, counts in items)
        return sum(counts[at] for name, counts in items if name is not None and queues(name))

    def count(self, located: LocatedBlock, start: int, stop: int) -> None:
        """Count the rows of a block between two positions."""
        block, extent = located
        low, high = max(start - block.first, 0), min(stop, block.end) - block.first
        kinds, queues = block.kinds[low:high], block.queues[low:high]
        numbers, which = np.unique(queues, return_inverse=True)
        published = kinds == Kind.PUBLISHED
        messages = np.bincount(which[published], minlength=len(numbers))
        events = np.bincount(which[SHOWN[kinds]], minlength=len(numbers))
        sizes = np.bincount(which[published], _sizes(block)[low:high][published], minlength=len(numbers))
        for at, number in enumerate(numbers.tolist()):
            name = extent.name_of(number, block.end) if number else None
            self.add(name, int(messages[at]), int(sizes[at]), int(events[at]))


def _sizes(block: Block) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    sizes = np.zeros(block.count, np.int64)
    if block.messages:
        sizes[block.message_rows()] = np.diff(block.binary("payload")[0])
    return sizes


class Tallies:
    """Counts of the journal. Threads may share one."""

    def __init__(self, reader: Follower) -> None:
        self._reader = reader
        self._lock = Lock()
        self._whole: dict[Hashable, Tally] = {}
        #: Extents that are counted in part.
        self._begun: set[Hashable] = set()
        self._stretches: OrderedDict[tuple[Hashable, int, int], Tally] = OrderedDict()
        #: Growing stretches: the end of the counted part, and its tally.
        self._growing: OrderedDict[tuple[Hashable, int], tuple[int, Tally]] = OrderedDict()

    def between(self, start: int, stop: int, deadline: float) -> tuple[Tally, bool]:
        """The tally of a range, and whether it is exact: after the deadline, the rest is extrapolated."""
        total, missing, counted = Tally(), 0, 0
        spans = self._reader.spans()
        self._forget(spans)
        for span in spans:
            for low, high, tally in self._parts(span, start, stop, deadline):
                if tally is None:
                    missing += high - low
                else:
                    counted += high - low
                    total.merge(tally)
        if missing and counted:
            self._estimate(total, missing / counted)
        return total, not missing

    def skip(self, start: int, stop: int, empty: Callable[[Tally], bool]) -> int:
        """The start of the first stretch at or after ``start`` that is not known to be empty."""
        for span in self._reader.spans():
            for low, _, tally in self._parts(span, start, stop, 0):
                if tally is None or not empty(tally):
                    return low
        return stop

    def _parts(self, span: Span, start: int, stop: int, deadline: float) -> Iterator[tuple[int, int, Tally | None]]:
        """The stretches of an extent that overlap a range, with their tallies; None if there was no time."""
        low, high = max(span.first, start), min(span.end, stop)
        if low >= high:
            return
        whole = self._whole.get(span.key)
        if whole is not None and (low, high) == (span.first, span.end):
            yield low, high, whole
            return
        if span.key not in self._begun and time.monotonic() > deadline:
            yield low, high, None  # opening it may take long
            return
        extent = self._reader.hold(span)
        if extent is None:
            return
        self._begun.add(span.key)
        total = Tally()
        complete = span.finished and (low, high) == (span.first, span.end)
        for first, end in _stretches(extent, high):
            if end <= low or first >= high:
                continue
            tally = self._stretch(span, extent, max(first, low), min(end, high), deadline)
            complete = complete and tally is not None
            if tally is not None and complete:
                total.merge(tally)
            yield max(first, low), min(end, high), tally
        if complete:
            with self._lock:
                self._whole[span.key] = total

    def _stretch(self, span: Span, extent: HeldExtent, low: int, high: int, deadline: float) -> Tally | None:
        key = (span.key, low, high)
        with self._lock:
            known = self._stretches.get(key)
            counted_to, growing = self._growing.get((span.key, low), (low, Tally()))
        if known is not None:
            return known
        if time.monotonic() > deadline:
            return None
        tally = Tally()
        if counted_to <= high:
            tally.merge(growing)
        else:
            counted_to = low
        blocks = (LocatedBlock(block, extent) for block in extent.blocks(counted_to, high, verify=False))
        for located in merged(blocks) if counted_to < high else ():
            tally.count(located, counted_to, high)
        with self._lock:
            if not span.finished and high == span.end:
                self._growing[(span.key, low)] = (high, tally)
            else:
                self._stretches[key] = tally
            for kept, most in ((self._growing, GROWING), (self._stretches, REMEMBERED)):
                while len(kept) > most:
                    kept.popitem(last=False)
        return tally

    def _estimate(self, total: Tally, more: float) -> None:
        for name, counts in list(total._counts.items()):
            total.add(name, *(round(count * more) for count in counts))

    def _forget(self, spans: Sequence[Span]) -> None:
        """Drop the tallies of trimmed extents."""
        here = {span.key for span in spans}
        with self._lock:
            self._whole = {key: tally for key, tally in self._whole.items() if key in here}
            self._begun &= here


def _stretches(extent: HeldExtent, limit: int) -> Iterator[tuple[int, int]]:
    """The start and end of each stretch of an extent."""
    marks = extent.marks(limit)[0]
    return pairwise(sorted({*marks[:-1:STRETCH], marks[-1]}))
