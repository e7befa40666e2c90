"""Ends of batches within limits, parts of a range for parallel reads, and the lag behind a position.

No payload is read: an extent's marks give the bytes before a position, and two small columns give a block's rows per
queue. Counts of finished stretches are remembered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.flight.access import Caller
from penstock.flight.calls import Advance, Advanced, Lag, Lost, Plan, Planned, Range
from penstock.flight.history import Chooser, History
from penstock.flight.problems import trouble
from penstock.flight.tallies import Tallies, Tally
from penstock.journal.errors import Gone, JournalDamaged
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views.merge import merged
from penstock.journal.views.placed import Holding
from penstock.journal.views.selection import Piece, Selection

#: Parts of a plan at most: each is a call of its own.
MOST_PARTS = 100_000
#: Seconds that one lag request may spend on counting; the rest is estimated.
LAG_SECONDS = 0.2
#: The same for a list of all queues.
LIST_SECONDS = 5.0

Floats = npt.NDArray[np.float64]


class PublishedCount(NamedTuple):
    """Messages published to a queue. ``exact`` is False if there was no time to count them all."""

    messages: int
    bytes: int
    exact: bool


class Measures:
    """Measures ranges of the journal."""

    def __init__(self, history: History, now: Callable[[], float] = time.time) -> None:
        self._history = history
        self._reader = history.reader
        self._tallies = Tallies(self._reader)
        self._now = now

    def advance(self, call: Advance, caller: Caller) -> Advanced:
        """The end of the longest range within the limits, with at least one row if there is any."""
        _only_history(call.view)
        if call.max_rows < 0 or call.max_bytes < 0:
            raise trouble("bad-request", "max_rows and max_bytes must not be negative; 0 means no limit")
        queues = self._history.chooser(call, caller, accept_loss=call.accept_loss)
        checked = self._history.check(call)
        start, stop = checked.start, checked.stop
        if not call.max_rows and not call.max_bytes:
            return Advanced(stop=stop, rows=0, bytes=0)
        selection = Selection(start, stop, queues, messages=call.view == "messages")
        reads = (self._reader.read(*span, verify=False, accept_loss=call.accept_loss) for span in checked.kept())
        blocks = chain.from_iterable(reads)
        pieces = (piece for located in merged(blocks) if (piece := selection.piece(located)) is not None)
        return _advanced(pieces, stop, call.max_rows or 2**63, call.max_bytes or 2**63)

    def plan(self, call: Plan, caller: Caller) -> Planned:
        """Cut a range into parts of about the same size."""
        _only_history(call.view)
        if call.part_bytes <= 0 or call.partitions < 0:
            raise trouble("bad-request", "part_bytes must be above 0, and partitions not negative")
        self._history.chooser(call, caller, accept_loss=call.accept_loss)
        checked = self._history.check(call)
        pieces = [self._sizes(start, stop) for start, stop in checked.kept()]
        total = sum(float(sizes[-1]) for _, sizes in pieces if len(sizes))
        wanted = min(_rounds(math.ceil(total / call.part_bytes), call.partitions), MOST_PARTS)
        ranges: list[tuple[int, int]] = []
        for positions, sizes in pieces:
            if len(sizes) and positions[-1] > positions[0]:
                share = max(round(wanted * float(sizes[-1]) / total), 1) if len(pieces) > 1 else wanted
                ranges += _cut(positions, sizes, share)
        return Planned(
            identity=f"{self._reader.identity:016x}",
            ranges=ranges,
            losses=[Lost(first=loss.lost[0], stop=loss.lost[1], text=str(loss)) for loss in checked.losses],
        )

    def counts(self, names: Iterable[QueueName], status: Range) -> dict[QueueName, PublishedCount]:
        """Messages published to these queues in the readable range."""
        tally, exact = self._tallies.between(status.earliest, status.latest, time.monotonic() + LIST_SECONDS)
        return {name: PublishedCount(*tally.of(name)[:2], exact) for name in names}

    def lag(self, queues: Chooser, view: str, position: int) -> Lag:
        """The rows at or after a position, and the age of the first."""
        status = self._history.status()
        start, lost_from = max(position, status.earliest), self._history.put_back_to(position)
        if start >= status.latest:
            return Lag(rows=0, seconds=0.0, lost_from=lost_from)
        tally, _ = self._tallies.between(start, status.latest, time.monotonic() + LAG_SECONDS)
        rows = tally.rows(queues, messages=view != "events")
        at = self._first_time(queues, view, start, status.latest) if rows else 0
        return Lag(rows=rows, seconds=max(self._now() - at / 1e6, 0.0) if at else 0.0, lost_from=lost_from)

    def waiting(self, rows: int, place: int) -> Lag:
        """The lag of ``rows`` that wait in queues; ``place`` is where one of the oldest lies in the journal."""
        try:
            at = self._published_at(place) if place else 0
        except (Gone, JournalDamaged):  # it was consumed, moved, or is not committed yet
            at = 0
        return Lag(rows=rows, seconds=max(self._now() - at / 1e6, 0.0) if at else 0.0)

    def _published_at(self, place: int) -> int:
        places = np.array([place], np.uint64)
        row = Holding(self._reader, places).read(places, ["published_at"])
        return int(row.column(0).cast("int64")[0].as_py())

    def _first_time(self, queues: Chooser, view: str, start: int, stop: int) -> int:
        """When the first row of a view at or after a position was written; 0 if there is none."""
        messages = view != "events"

        def empty(tally: Tally) -> bool:
            return not tally.rows(queues, messages=messages)

        start = self._tallies.skip(start, stop, empty)
        selection = Selection(start, stop, queues, messages=messages)
        for located in merged(self._reader.read(start, stop, verify=False, accept_loss=True)):
            piece = selection.piece(located)
            if piece is not None:
                return int(piece.block.at()[piece.rows[0]])
        return 0

    def _sizes(self, start: int, stop: int) -> tuple[Floats, Floats]:
        """Some positions of each extent in a range, and the number of bytes before each of them."""
        positions: list[Floats] = []
        sizes: list[Floats] = []
        before = 0.0
        for span in self._reader.spans():
            low, high = max(span.first, start), min(span.end, stop)
            known = self._reader.marks(span, high) if low < high else None
            if known is None:
                continue
            marks, offsets = (np.array(each, np.float64) for each in known)
            inner = (marks > low) & (marks < high)
            ends = np.interp([low, high], marks, offsets)
            positions.append(np.concatenate(([low], marks[inner], [high])))
            sizes.append(np.concatenate((ends[:1], offsets[inner], ends[1:])) - ends[0] + before)
            before = float(sizes[-1][-1])
        if not positions:
            return np.empty(0), np.empty(0)
        return np.concatenate(positions), np.concatenate(sizes)


def _rounds(parts: int, at_once: int) -> int:
    """The next multiple of the number of parallel readers, so that they do not wait for a single last part."""
    return math.ceil(max(parts, 1) / at_once) * at_once if at_once else parts


def _only_history(view: str) -> None:
    if view not in ("messages", "events"):
        raise trouble("bad-request", f"{view} has no range of positions: use messages or events")


def _advanced(pieces: Iterable[Piece], stop: int, max_rows: int, max_bytes: int) -> Advanced:
    rows = size = 0
    for piece in pieces:
        lengths = _payload_sizes(piece)
        ends = size + np.cumsum(lengths)
        fits = min(int(np.searchsorted(ends, max_bytes, "right")), max_rows - rows)
        if rows + fits == 0:
            fits = 1  # make progress, however large the message is
        if fits < len(piece.rows):
            end = piece.block.first + int(piece.rows[fits - 1]) + 1 if fits else piece.block.first + int(piece.rows[0])
            return Advanced(stop=end, rows=rows + fits, bytes=int(ends[fits - 1]) if fits else size)
        rows, size = rows + len(piece.rows), int(ends[-1])
        if rows >= max_rows or size >= max_bytes:
            return Advanced(stop=piece.block.first + int(piece.rows[-1]) + 1, rows=rows, bytes=size)
    return Advanced(stop=stop, rows=rows, bytes=size)


def _payload_sizes(piece: Piece) -> npt.NDArray[np.int64]:
    """The payload's size for each row; 0 for rows that are not messages."""
    whole = np.zeros(piece.block.count, np.int64)
    whole[piece.block.message_rows()] = np.diff(piece.block.binary("payload")[0])
    sizes: npt.NDArray[np.int64] = whole[piece.rows]
    return sizes


def _cut(positions: Floats, sizes: Floats, parts: int) -> list[tuple[int, int]]:
    """Cut into parts of equal bytes, but never within a gap of the numbering."""
    start, stop = int(positions[0]), int(positions[-1])
    share = np.arange(1, parts) / max(parts, 1)
    cuts = np.unique(np.rint(np.interp(share * sizes[-1], sizes, positions)).astype(np.int64))
    if len(cuts) < parts - 1 <= stop - start - 1:  # few large messages: cut by position
        cuts = np.unique(np.rint(start + share * (stop - start)).astype(np.int64))
    at = np.searchsorted(positions, cuts)
    gap = (sizes[at] == sizes[at - 1]) & (positions[at] > cuts)
    cuts = np.unique(np.where(gap, positions[at], cuts).astype(np.int64))
    inner = [cut for cut in cuts.tolist() if start < cut < stop]
    return list(zip([start, *inner], [*inner, stop], strict=True))
