"""The entries of the cache of recent messages: batches as they were staged, and small ones merged.

A batch is a dozen objects. For hundreds of messages that is nothing, but a batch of one message would cost many times
its bytes, and keep the garbage collector busy. So the messages of several small batches are merged into one entry.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from penstock.core.events import EventBatch
from penstock.journal.format.rows import MessageRow
from penstock.schema import COLUMN, COLUMNS, MESSAGE_KINDS, Rows

#: A batch with at most FEW messages and FEW_BYTES is small; an entry merges up to MOST_GATHERED messages of small ones.
FEW: Final = 8
FEW_BYTES: Final = 4096
MOST_GATHERED: Final = 64
#: Bytes that an entry costs in addition to its messages.
BATCH_COST: Final = 1_500

#: The default value of each column of a message.
_DEFAULTS: dict[str, int | bytes] = {
    column.name: b"" if column.type == "binary" else column.default
    for column in COLUMNS
    if column.rows is Rows.MESSAGES
}
_CARRIES: Final = np.zeros(256, np.bool_)
_CARRIES[list(MESSAGE_KINDS)] = True


class PlainMessage:
    """The attributes of most messages. Messages with more are represented by a MessageRow."""

    __slots__ = ("at", "payload", "source")

    def __init__(self, payload: bytes, at: int, source: bytes) -> None:
        self.payload = payload
        self.at = at
        self.source = source


#: Columns that a plain message does not have, and that a receiver may see.
SPECIAL: Final = frozenset(
    ("asked_id", "request_id", "correlation_id", "published_at", "carried_source", "source_info")
)


class WholeBatch:
    """One batch, with an index from positions to its messages."""

    __slots__ = ("_batch", "_next", "_rows", "end", "first", "lookups", "messages", "size")

    def __init__(self, batch: EventBatch) -> None:
        self._batch = batch
        self.first, self.end = batch.first, batch.end
        self.messages, self.size = batch.messages, batch.size + BATCH_COST
        #: How often a message was looked up.
        self.lookups = 0
        #: Row numbers of the message rows; None if every row is one.
        self._rows: array[int] | None = None
        #: The index after that of the last lookup, which is usually the next one.
        self._next = 0
        if batch.messages < len(batch):
            rows = np.flatnonzero(_CARRIES[np.frombuffer(batch.kinds, np.uint8)])
            self._rows = array("q", rows.astype(np.int64, copy=False).tobytes())

    def payload(self, position: int) -> bytes:
        """The payload of a message of this batch."""
        return cast(list[bytes], self._batch.columns["payload"])[self._index(position)]

    def payloads(self, positions: Sequence[int]) -> list[bytes]:
        """The payloads of messages that are all in this batch."""
        column = cast(list[bytes], self._batch.columns["payload"])
        first = self.first
        if positions == list(range(positions[0], positions[0] + len(positions))):  # usually: they are consecutive
            index = self._index(positions[0])
            return column[index : index + len(positions)]
        if self._rows is None:
            return [column[position - first] for position in positions]
        if len(positions) < FEW:
            return [column[self._index(position)] for position in positions]
        rows = np.frombuffer(self._rows, np.int64)
        indices = cast(list[int], rows.searchsorted(np.array(positions, np.int64) - first).tolist())
        return [column[index] for index in indices]

    def plain(self, positions: Sequence[int]) -> list[PlainMessage]:
        """Messages that are all in this batch; none if the batch has any column of ``SPECIAL``."""
        batch = self._batch
        if not SPECIAL.isdisjoint(batch.columns):
            return []
        first, at, source, sources = batch.first, batch.at, batch.source, batch.sources
        found: list[PlainMessage] = []
        for position, payload in zip(positions, self.payloads(positions), strict=True):
            row = position - first
            found.append(PlainMessage(payload, at[row], sources[source[row]]))
        return found

    def numbers(self, name: str, positions: Sequence[int]) -> list[int]:
        """A fixed-width column of messages that are all in this batch."""
        column = self._batch.columns.get(name)
        if column is None:
            return [COLUMN[name].default] * len(positions)
        return [cast(int, column[self._index(position)]) for position in positions]

    def message(self, position: int) -> MessageRow:
        """A message of this batch with all its columns."""
        batch, index, row = self._batch, self._index(position), position - self.first
        columns: list[Any] = [
            batch.columns[name][index] if name in batch.columns else default for name, default in _DEFAULTS.items()
        ]
        return MessageRow(
            position, batch.kinds[row], batch.at[row], batch.queues[row], batch.sources[batch.source[row]], *columns
        )

    def _index(self, position: int) -> int:
        """The index of the message at this position among the batch's messages. The event there must be a message."""
        row, rows = position - self.first, self._rows
        if rows is None:
            return row
        index = self._next
        if index == len(rows) or rows[index] != row:
            index = bisect_left(rows, row)
        self._next = index + 1
        return index


class GatheredBatches:
    """The messages of consecutive small batches. Its methods are those of WholeBatch."""

    __slots__ = (
        "_at", "_columns", "_kinds", "_payloads", "_positions", "_queues", "_sources",
        "end", "first", "lookups", "messages", "size",
    )  # fmt: skip

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        self.messages = self.lookups = 0
        self.size = BATCH_COST
        self._positions = array("Q")
        self._kinds = bytearray()
        self._at = array("q")
        self._queues = array("I")
        self._sources: list[bytes] = []
        self._payloads: list[bytes] = []
        #: The other columns: values by index of the message, without defaults.
        self._columns: dict[str, dict[int, int | bytes]] = {}

    def add(self, batch: EventBatch) -> None:
        """Add the messages of another batch."""
        self._keep_columns(batch)
        for row, kind in enumerate(bytes(batch.kinds)):
            if kind in MESSAGE_KINDS:
                self._positions.append(batch.first + row)
                self._kinds.append(kind)
                self._at.append(batch.at[row])
                self._queues.append(batch.queues[row])
                self._sources.append(batch.sources[batch.source[row]])
        self._payloads += cast(list[bytes], batch.columns["payload"])
        self.end = batch.end
        self.messages += batch.messages
        self.size += batch.size

    def _keep_columns(self, batch: EventBatch) -> None:
        for name, values in batch.columns.items():
            default = _DEFAULTS.get(name)
            if default is not None and name != "payload":
                column = self._columns.setdefault(name, {})
                for index, value in enumerate(cast(Sequence[int | bytes], values), self.messages):
                    if value != default:
                        column[index] = value

    def payload(self, position: int) -> bytes:
        """The payload of a message that is here."""
        return self._payloads[self._index(position)]

    def payloads(self, positions: Sequence[int]) -> list[bytes]:
        """The payloads of messages that are all here."""
        return [self._payloads[self._index(position)] for position in positions]

    def plain(self, positions: Sequence[int]) -> list[PlainMessage]:
        """Messages that are all here; none if any message here has a column of ``SPECIAL``."""
        if not SPECIAL.isdisjoint(self._columns):
            return []
        indices = map(self._index, positions)
        return [PlainMessage(self._payloads[index], self._at[index], self._sources[index]) for index in indices]

    def numbers(self, name: str, positions: Sequence[int]) -> list[int]:
        """A fixed-width column of messages that are all here."""
        column, default = self._columns.get(name, {}), COLUMN[name].default
        return [cast(int, column.get(self._index(position), default)) for position in positions]

    def message(self, position: int) -> MessageRow:
        """A message that is here, with all its columns."""
        index = self._index(position)
        special = {name: column[index] for name, column in self._columns.items() if index in column}
        columns: dict[str, Any] = {**_DEFAULTS, **special, "payload": self._payloads[index]}
        row = self._kinds[index], self._at[index], self._queues[index], self._sources[index]
        return MessageRow(position, *row, *columns.values())

    def _index(self, position: int) -> int:
        return bisect_left(self._positions, position)
