"""The journal as the HTTP process reads it: messages by where they lie, when they were published, and their lives.

It is read as any other reader does, in threads of its own: the broker is not asked, and does not wait.
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
from penstock.admin.times import moment
from penstock.journal import Follower, open_journal
from penstock.journal.contract import ExtentInfo, Span
from penstock.journal.errors import Gone, LogError
from penstock.journal.format.block import Block, BlockError
from penstock.journal.format.rows import MessageRow, gather
from penstock.schema import FINAL_KINDS, Kind, Reason

#: How names of checkpoints end.
CHECKPOINT = ".ckpt"
#: Times of messages that are remembered.
REMEMBERED = 50_000
#: Events, and their bytes, that one request for a life looks through.
LOOKED_THROUGH = 2_000_000
LOOKED_BYTES = 256 * 2**20

T = TypeVar("T")
_KINDS = {int(kind): kind.name.lower() for kind in Kind}
_REASONS = {int(reason): reason.name.lower() for reason in Reason}


class LifeEvent(NamedTuple):
    """Something that happened to a message, as the journal has it."""

    position: int
    at: int
    kind: str
    queue: int
    source: str
    reason: str | None
    deliveries: int | None
    delivered_at: int
    #: It is no more after this.
    final: bool


def _segment(told: ExtentInfo) -> Segment:
    return Segment(
        name=told.name,
        first=told.first,
        end=told.first + told.events,
        bytes=told.bytes,
        created_at=moment(told.created),
        finished=told.finished,
    )


class JournalView:
    """Reads the journal of a data folder."""

    def __init__(self, url: str, folder: str = "") -> None:
        """``folder`` is where it lies, if it is in one."""
        self._url = url
        self._folder = folder
        self._follower: Follower | None = None
        self._times: OrderedDict[int, int] = OrderedDict()

    @property
    def _in_database(self) -> bool:
        return not self._folder and not self._url.startswith("memory:")

    @property
    def reader(self) -> Follower:
        """The journal. Raises LogError if it can't be read."""
        if self._follower is None:
            self._follower = open_journal(self._url).follow()
        return self._follower

    async def run(self, work: Callable[[], T]) -> T:
        """Do something with the journal in a thread. What can't be read is a problem."""
        try:
            return await asyncio.to_thread(work)
        except LogError as error:
            self._follower = None  # it may be another journal by now
            fail("refused", f"the journal can not be read there: {error}")

    async def times(self, places: Sequence[int]) -> dict[int, int]:
        """When the messages at these places were published. Those that can't be read are left out."""
        wanted = [place for place in dict.fromkeys(places) if place]
        missing = [place for place in wanted if place not in self._times]
        if missing:
            found = await self.run(lambda: self._published(missing))
            self._times.update(found)
            while len(self._times) > REMEMBERED:
                self._times.popitem(last=False)
        return {place: self._times[place] for place in wanted if place in self._times}

    async def messages(self, places: Sequence[int]) -> dict[int, MessageRow]:
        """Messages by where they lie. Those that can't be read are left out."""
        return await self.run(lambda: self._messages(places))

    def _published(self, places: Iterable[int]) -> dict[int, int]:
        """Two columns of each block are looked at, and no payload."""
        found: dict[int, int] = {}
        for block, here in self._blocks(sorted(places), verify=False):
            at = block.at()
            kept = block.column("published_at") if block.has("published_at") else None
            rows = block.message_rows()
            for place in here:
                row = place - block.first
                copied = int(kept[np.searchsorted(rows, row)]) if kept is not None else 0
                found[place] = copied or int(at[row])
        return found

    def _messages(self, places: Sequence[int]) -> dict[int, MessageRow]:
        found: dict[int, MessageRow] = {}
        for block, here in self._blocks(sorted(set(places)), verify=True):
            try:
                found.update(zip(here, gather(here, lambda place, block=block: block), strict=True))  # type: ignore[misc]
            except Gone:
                continue
        return found

    def _blocks(self, places: Sequence[int], *, verify: bool) -> Iterator[tuple[Block, list[int]]]:
        """The blocks that have these places, which are in order, and those of each."""
        spans = self.reader.spans()
        at = 0
        while at < len(places):
            block = self._block(spans, places[at], verify=verify)
            here = [place for place in places[at:] if block is not None and place < block.end] or [places[at]]
            at += len(here)
            if block is not None:
                yield block, here

    def _block(self, spans: Sequence[Span], place: int, *, verify: bool) -> Block | None:
        number = bisect_right(spans, place, key=lambda span: span.first) - 1
        if number < 0 or place >= spans[number].end:
            return None
        extent = self.reader.hold(spans[number])
        try:
            return next(extent.blocks(place, place + 1, verify=verify), None) if extent is not None else None
        except BlockError:
            return None

    # The journal as a whole

    async def facts(self) -> dict[str, Any]:
        """What ``JournalStatus`` tells of it."""
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
        """Of the newest: its position, and when it was written."""
        if self._in_database:
            told = open_journal(self._url).tools().info().checkpoints
            return (told[-1][0] if told else None), None
        entries = os.scandir(self._folder) if self._folder else ()
        newest = max((each for each in entries if each.name.endswith(CHECKPOINT)), key=lambda e: e.name, default=None)
        if newest is None:
            return None, None
        return int(newest.name.partition(".")[0], 16), moment(int(newest.stat().st_mtime * 1e6))

    async def segments(self) -> list[Segment]:
        """Its files, or what they are in memory, oldest first."""
        return await self.run(self._segments)

    def _segments(self) -> list[Segment]:
        if self._in_database:  # which tells without having them read
            return [_segment(each) for each in open_journal(self._url).tools().info().extents]
        found = []
        committed = self.reader.tail().committed
        for span in self.reader.spans():
            extent = self.reader.hold(span)
            if extent is None:
                continue  # it was removed just now
            _, sizes = extent.marks(min(committed, span.end))
            found.append(
                Segment(
                    name=extent.name,
                    first=span.first,
                    end=span.end,
                    bytes=sizes[-1] if sizes else 0,
                    created_at=moment(span.created),
                    finished=span.finished,
                )
            )
        return found

    # A message's life

    async def life(self, position: int, start: int) -> tuple[list[LifeEvent], int, int]:
        """Events of a message from ``start`` on, where to go on (0: the journal has no more), and the history's begin.

        The latter is 0 where the journal has all that happened since the message was published.
        """
        return await self.run(lambda: self._life(position, start))

    def _life(self, position: int, start: int) -> tuple[list[LifeEvent], int, int]:
        reader = self.reader
        tail = reader.tail()
        begin = max(start, position, tail.floor, tail.start)
        stop = self._reach(begin, min(tail.committed, begin + LOOKED_THROUGH))
        found: list[LifeEvent] = []
        since = 0
        if begin >= stop:
            return found, 0, 0
        for first, _ in reader.read(begin, begin + 1, verify=False, accept_loss=True):
            if begin > max(start, position):
                since = int(first.at()[max(0, begin - first.first)])
            elif begin == position:
                found.append(_told(first, position - first.first, None))
        for block, _ in reader.mentions(position, begin, stop):
            found += _events_of(block, position, begin, stop)
            if found and found[-1].final:
                return found, 0, since
        return found, stop if stop < tail.committed else 0, since

    def _reach(self, begin: int, stop: int) -> int:
        """How far it is from one position to another if no more than ``LOOKED_BYTES`` are to be looked through."""
        left = LOOKED_BYTES
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
    """The rows of a block that are about a message, but for the message itself."""
    found: list[LifeEvent] = []
    if block.has("message"):
        others = block.other_rows()
        for index in np.flatnonzero(block.column("message") == position).tolist():
            row = int(others[index])
            if start <= block.first + row < stop:
                found.append(_told(block, row, index))
    return found


def _told(block: Block, row: int, index: int | None) -> LifeEvent:
    """``index`` is the row's among those without a message; None for the message itself."""

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
