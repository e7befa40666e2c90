"""The journal for the HTTP process: messages by position, their publication times, and their events.

It is read in threads, without the broker, as any other reader does.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import numpy as np

from penstock.admin.problems import fail
from penstock.admin.resources.operations import Segment
from penstock.admin.times import to_datetime
from penstock.journal import Follower, open_journal
from penstock.journal.contract import ExtentInfo, Span
from penstock.journal.errors import Gone, LogError
from penstock.journal.format.block import Block, BlockError
from penstock.journal.format.rows import MessageRow, gather
from penstock.schema import FINAL_KINDS, Kind, Reason

#: Suffix of checkpoint files.
CHECKPOINT = ".ckpt"
#: Publication times that are cached.
MOST_TIMES = 50_000
#: Events, and their bytes, that one request for a message's events scans.
SCANNED_EVENTS = 2_000_000
SCANNED_BYTES = 256 * 2**20

T = TypeVar("T")
_KINDS = {int(kind): kind.name.lower() for kind in Kind}
_REASONS = {int(reason): reason.name.lower() for reason in Reason}


class LifeEvent(NamedTuple):
    """An event of a message, as the journal stores it."""

    position: int
    at: int
    kind: str
    queue: int
    source: str
    reason: str | None
    deliveries: int | None
    delivered_at: int
    #: The message is gone after this.
    final: bool


def _segment(extent: ExtentInfo) -> Segment:
    return Segment(
        name=extent.name,
        first=extent.first,
        end=extent.first + extent.events,
        bytes=extent.bytes,
        created_at=to_datetime(extent.created),
        finished=extent.finished,
    )


class JournalView:
    """Reads the broker's journal."""

    def __init__(self, url: str, folder: str = "") -> None:
        """``folder`` is empty if the journal is in memory or in a database."""
        self._url = url
        self._folder = folder
        self._follower: Follower | None = None
        self._times: OrderedDict[int, int] = OrderedDict()

    @property
    def _in_database(self) -> bool:
        return not self._folder and not self._url.startswith("memory:")

    @property
    def reader(self) -> Follower:
        """The opened journal. Raises LogError."""
        if self._follower is None:
            self._follower = open_journal(self._url).follow()
        return self._follower

    async def run(self, work: Callable[[], T]) -> T:
        """Read in a thread. Raises ApiProblem for what can't be read."""
        try:
            return await asyncio.to_thread(work)
        except LogError as error:
            self._follower = None  # the journal may have been replaced
            fail("refused", f"this part of the journal can't be read: {error}")

    async def times(self, positions: Sequence[int]) -> dict[int, int]:
        """When the messages at these positions were published, without those that can't be read. 0 is no position."""
        wanted = [each for each in dict.fromkeys(positions) if each]
        missing = [each for each in wanted if each not in self._times]
        if missing:
            found = await self.run(lambda: self._published(missing))
            self._times.update(found)
            while len(self._times) > MOST_TIMES:
                self._times.popitem(last=False)
        return {each: self._times[each] for each in wanted if each in self._times}

    async def messages(self, positions: Sequence[int]) -> dict[int, MessageRow]:
        """Messages by position, without those that can't be read."""
        return await self.run(lambda: self._messages(positions))

    def _published(self, positions: Iterable[int]) -> dict[int, int]:
        """Reads two columns of each block and no payload."""
        found: dict[int, int] = {}
        for block, here in self._blocks(sorted(positions), verify=False):
            at = block.at()
            original = block.column("published_at") if block.has("published_at") else None
            rows = block.message_rows()
            for position in here:
                row = position - block.first
                moved = int(original[np.searchsorted(rows, row)]) if original is not None else 0
                found[position] = moved or int(at[row])
        return found

    def _messages(self, positions: Sequence[int]) -> dict[int, MessageRow]:
        found: dict[int, MessageRow] = {}
        for block, here in self._blocks(sorted(set(positions)), verify=True):
            try:
                found.update(zip(here, gather(here, lambda position, block=block: block), strict=True))  # type: ignore[misc]
            except Gone:
                continue
        return found

    def _blocks(self, positions: Sequence[int], *, verify: bool) -> Iterator[tuple[Block, list[int]]]:
        """The blocks that contain these sorted positions, each with the positions in it."""
        spans = self.reader.spans()
        at = 0
        while at < len(positions):
            block = self._block(spans, positions[at], verify=verify)
            here = [each for each in positions[at:] if block is not None and each < block.end] or [positions[at]]
            at += len(here)
            if block is not None:
                yield block, here

    def _block(self, spans: Sequence[Span], position: int, *, verify: bool) -> Block | None:
        number = bisect_right(spans, position, key=lambda span: span.first) - 1
        if number < 0 or position >= spans[number].end:
            return None
        extent = self.reader.hold(spans[number])
        try:
            return next(extent.blocks(position, position + 1, verify=verify), None) if extent is not None else None
        except BlockError:
            return None

    # The journal as a whole

    async def facts(self) -> dict[str, Any]:
        """The fields of ``JournalStatus`` that describe the journal."""
        return await self.run(self._facts)

    def _facts(self) -> dict[str, Any]:
        reader = self.reader
        tail = reader.tail()
        segments = self._segments()
        position, at = self._checkpoint()
        return {
            "kind": "files" if self._folder else "database" if self._in_database else "memory",
            "identity": f"{reader.identity:016x}",
            "earliest": max(tail.floor, tail.start),
            "latest": tail.committed,
            "bytes": sum(each.bytes for each in segments),
            "segments": len(segments),
            "checkpoint": position,
            "checkpoint_at": at,
        }

    def _checkpoint(self) -> tuple[int | None, datetime | None]:
        """Position and time of the newest checkpoint."""
        if self._in_database:
            checkpoints = open_journal(self._url).tools().info().checkpoints
            return (checkpoints[-1][0] if checkpoints else None), None
        entries = os.scandir(self._folder) if self._folder else ()
        newest = max((each for each in entries if each.name.endswith(CHECKPOINT)), key=lambda e: e.name, default=None)
        if newest is None:
            return None, None
        return int(newest.name.partition(".")[0], 16), to_datetime(int(newest.stat().st_mtime * 1e6))

    async def segments(self) -> list[Segment]:
        """The segments, oldest first."""
        return await self.run(self._segments)

    def _segments(self) -> list[Segment]:
        if self._in_database:  # its tools list them without reading them
            return [_segment(each) for each in open_journal(self._url).tools().info().extents]
        found = []
        committed = self.reader.tail().committed
        for span in self.reader.spans():
            extent = self.reader.hold(span)
            if extent is None:
                continue  # it has just been removed
            _, sizes = extent.marks(min(committed, span.end))
            found.append(
                Segment(
                    name=extent.name,
                    first=span.first,
                    end=span.end,
                    bytes=sizes[-1] if sizes else 0,
                    created_at=to_datetime(span.created),
                    finished=span.finished,
                )
            )
        return found

    # A message's life

    async def life(self, position: int, start: int) -> tuple[list[LifeEvent], int, int]:
        """Events of a message from ``start`` on, the position to continue at, and the time at which the history starts.

        The position is 0 at the end of the journal. The time is 0 if no event of the message has been removed.
        """
        return await self.run(lambda: self._life(position, start))

    def _life(self, position: int, start: int) -> tuple[list[LifeEvent], int, int]:
        reader = self.reader
        tail = reader.tail()
        begin = max(start, position, tail.floor, tail.start)
        stop = self._reach(begin, min(tail.committed, begin + SCANNED_EVENTS))
        found: list[LifeEvent] = []
        since = 0
        if begin >= stop:
            return found, 0, 0
        for first, _ in reader.read(begin, begin + 1, verify=False, accept_loss=True):
            if begin > max(start, position):
                since = int(first.at()[max(0, begin - first.first)])
            elif begin == position:
                found.append(_life_event(first, position - first.first, None))
        for block, _ in reader.mentions(position, begin, stop):
            found += _events_of(block, position, begin, stop)
            if found and found[-1].final:
                return found, 0, since
        return found, stop if stop < tail.committed else 0, since

    def _reach(self, begin: int, stop: int) -> int:
        """The end of a scan from ``begin`` to at most ``stop`` that covers at most ``SCANNED_BYTES``."""
        left = SCANNED_BYTES
        for span in self.reader.spans():
            marks = self.reader.marks(span, min(span.end, stop)) if begin < span.end and span.first < stop else None
            if marks is None:
                continue
            positions, offsets = marks
            low = max(bisect_right(positions, begin) - 1, 0)
            high = bisect_right(offsets, offsets[low] + left) - 1
            if high < len(offsets) - 1:
                return min(stop, positions[max(high, low + 1)])
            left -= offsets[-1] - offsets[low]
        return stop


def _events_of(block: Block, position: int, start: int, stop: int) -> list[LifeEvent]:
    """The rows of a block that refer to a message, without the message itself."""
    found: list[LifeEvent] = []
    if block.has("message"):
        others = block.other_rows()
        for index in np.flatnonzero(block.column("message") == position).tolist():
            row = int(others[index])
            if start <= block.first + row < stop:
                found.append(_life_event(block, row, index))
    return found


def _life_event(block: Block, row: int, index: int | None) -> LifeEvent:
    """``index`` counts only rows without a message; None for the message itself."""

    def number(name: str) -> int:
        return int(block.column(name)[index]) if index is not None and block.has(name) else 0

    sources = block.sources or [b""]
    kind = int(block.kinds[row])
    return LifeEvent(
        position=block.first + row,
        at=int(block.at()[row]),
        kind=_KINDS.get(kind, str(kind)),
        queue=int(block.queues[row]),
        source=sources[int(block.source[row])].decode("utf-8", "replace"),
        reason=_REASONS.get(number("reason")) if number("reason") else None,
        deliveries=number("deliveries") if index is not None else None,
        delivered_at=number("delivered_at"),
        final=kind in FINAL_KINDS,
    )
