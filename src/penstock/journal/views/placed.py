"""Messages by place, as Arrow record batches: the content of the queues, which may be anywhere in the journal.

A message's place is where it was published, or where compaction has copied it to, perhaps below the beginning of the
history. A copy contains everything that was published, so the columns are those of ``arrow``'s view ``messages``. The
extents are held while they are read, so that retention cannot remove them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.journal.contract import Follower, HeldExtent, LocatedBlock, Span
from penstock.journal.errors import Gone, JournalDamaged
from penstock.journal.format.block import BlockError
from penstock.journal.views.arrow import MESSAGE_COLUMNS, MESSAGES, Group, Repeats, ids, piece_sizes, timed
from penstock.journal.views.merge import merged
from penstock.journal.views.selection import Piece
from penstock.schema import MESSAGE_KINDS

#: A gap of fewer positions is read, not skipped.
NEAR = 1000

Places = npt.NDArray[np.integer[Any]]

_IS_MESSAGE = np.zeros(256, np.bool_)
_IS_MESSAGE[list(MESSAGE_KINDS)] = True


class Holding:
    """Holds the extents that contain the given messages."""

    def __init__(self, reader: Follower, places: Places) -> None:
        """Raises Gone if a place is not in the journal any more: then look up the places again."""
        self._reader = reader
        self._spans: list[Span] = []
        self._extents: list[HeldExtent] = []
        ordered = np.sort(places)
        at = 0
        for span in reader.spans():
            stop = int(np.searchsorted(ordered, span.end))
            if stop > at:
                extent = reader.hold(span) if int(ordered[at]) >= span.first else None
                if extent is None:
                    break
                self._spans.append(span)
                self._extents.append(extent)
                at = stop
        if at < len(ordered):
            raise Gone(f"there is no message at position {int(ordered[at])} any more")

    def read(self, places: Places, columns: Sequence[str]) -> pa.RecordBatch:
        """Columns of ``arrow.MESSAGES`` for at least one message, in the order of ``places``."""
        ordered, back = _sorted(places)
        pieces = list(self._pieces(ordered, verify="payload" in columns))
        shape = pa.schema([MESSAGES.field(name) for name in columns])
        group = Group(pieces, self._reader.identity, Repeats())
        try:
            arrays = [_COLUMNS[name](group) for name in columns]
        except BlockError as error:
            raise self._damaged(pieces[0].extent, pieces[0].block.first, pieces[-1].block.end, error) from None
        batch = pa.RecordBatch.from_arrays(arrays, schema=shape)
        return batch if back is None else batch.take(pa.array(back))

    def sizes(self, places: Places) -> npt.NDArray[np.int64]:
        """The sizes of payloads, without reading them."""
        ordered, back = _sorted(places)
        parts = [piece_sizes(piece) for piece in self._pieces(ordered, verify=False)]
        sizes: npt.NDArray[np.int64] = np.concatenate([np.empty(0, np.int64), *parts])
        return sizes if back is None else sizes[back]

    def _pieces(self, places: Places, *, verify: bool) -> Iterator[Piece]:
        """The rows at sorted places, with small blocks merged."""
        at = 0
        while at < len(places):
            for block, extent in merged(self._run(places, at, verify=verify)):
                stop = int(np.searchsorted(places, block.end))
                if stop > at:
                    rows = (places[at:stop].astype(np.int64) - block.first).astype(np.intp)
                    if not _IS_MESSAGE[block.kinds[rows]].all():
                        raise Gone(f"not every event from position {block.first} to {block.end} is a message")
                    yield Piece(block, extent, rows, block.end)
                    at = stop

    def _run(self, places: Places, at: int, *, verify: bool) -> Iterator[LocatedBlock]:
        """Consecutive blocks, from that of a place on, as long as the next place is near."""
        number = bisect_right(self._spans, int(places[at]), key=lambda span: span.first) - 1
        span, extent = self._spans[number], self._extents[number]
        begin = first = int(places[at])
        try:
            for block in extent.blocks(first, span.end, verify=verify):
                yield LocatedBlock(block, extent)
                first = block.end
                at = int(np.searchsorted(places, block.end))
                if at == len(places) or places[at] >= min(span.end, block.end + NEAR):
                    return
        except BlockError as error:
            damaged = self._reader.damaged(extent, error, first, span.end)
            if first == begin or places[at] < damaged.lost[1]:
                raise damaged from None
            # The damage is between two places: the next run begins after it.

    def _damaged(self, extent: HeldExtent, first: int, end: int, error: BlockError) -> JournalDamaged:
        return JournalDamaged(self._reader.where, extent.name, error.offset, (first, end), error.reason)


def _sorted(places: Places) -> tuple[Places, npt.NDArray[np.intp] | None]:
    """The places in order, and the indices that restore their original order; None if it is the same."""
    if (places[1:] >= places[:-1]).all():
        return places, None
    order = np.argsort(places)
    back = np.empty(len(order), np.intp)
    back[order] = np.arange(len(order))
    return places[order], back


# Columns that a copy stores under other names


def _positions(group: Group) -> npt.NDArray[Any]:
    own = group.positions.astype(np.uint64)
    if not group.any_has("original"):
        return own
    original = group.numbers("original").astype(np.uint64)
    return np.where(original, original, own)


def _id(group: Group) -> pa.Array:
    made = ids(group.identity, _positions(group))
    if not group.any_has("asked_id"):
        return made
    asked = group.binary("asked_id")
    return pc.if_else(pc.greater(pc.binary_length(asked), 0), asked, made)


def _published_at(group: Group) -> pa.Array:
    own = group.join(lambda piece: piece.block.at()[piece.rows])
    copied = group.numbers("published_at").astype(np.int64)
    return timed(np.where(copied, copied, own))


def _protocol(group: Group) -> pa.Array:
    own = MESSAGE_COLUMNS["protocol"](group)
    if not group.any_has("carried_source"):
        return own
    source = group.binary("carried_source")
    words = pc.replace_substring_regex(source, " (.|\n)*$", "").cast(pa.string())
    return pc.if_else(pc.greater(pc.binary_length(source), 0), words, own)


_COLUMNS: dict[str, Callable[[Group], pa.Array]] = {
    **MESSAGE_COLUMNS,
    "position": lambda group: pa.array(_positions(group).astype(np.int64)),
    "id": _id,
    "published_at": _published_at,
    "protocol": _protocol,
}
