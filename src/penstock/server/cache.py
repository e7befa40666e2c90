"""The newest messages, kept in memory so that delivering them does not read the disk.

Whole batches are kept as they were staged: remembering one costs nothing per message, and so does forgetting it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from penstock.core.events import EventBatch
from penstock.journal.rows import Message
from penstock.schema import COLUMN, COLUMNS, MESSAGE_KINDS, Rows

T = TypeVar("T")

#: Payload bytes kept unless told otherwise.
DEFAULT_BYTES = 64 * 2**20

_MESSAGE_COLUMNS: list[tuple[str, int | bytes]] = [
    (column.name, b"" if column.type == "binary" else column.default)
    for column in COLUMNS
    if column.rows is Rows.MESSAGES
]
_CARRIES = np.zeros(256, np.bool_)
_CARRIES[list(MESSAGE_KINDS)] = True


class _Recent:
    """One batch, and where its messages are in it."""

    __slots__ = ("batch", "rows")

    def __init__(self, batch: EventBatch) -> None:
        self.batch = batch
        #: Row numbers of the message rows; None if every row is one.
        self.rows: NDArray[np.intp] | None = None
        if batch.messages < len(batch):
            self.rows = np.flatnonzero(_CARRIES[np.frombuffer(batch.kinds, np.uint8)])

    def payloads(self, positions: Sequence[int]) -> list[bytes]:
        """The payloads of messages that are all in this batch."""
        column = cast(list[bytes], self.batch.columns["payload"])
        first = self.batch.first
        if self.rows is None:
            return [column[position - first] for position in positions]
        indices = np.searchsorted(self.rows, np.array(positions, np.int64) - first)
        return [column[index] for index in indices.tolist()]

    def numbers(self, name: str, positions: Sequence[int]) -> list[int]:
        """A fixed-width column of messages that are all in this batch."""
        column = self.batch.columns.get(name)
        if column is None:
            return [COLUMN[name].default] * len(positions)
        return [cast(int, column[self.index(position)]) for position in positions]

    def index(self, position: int) -> int:
        """Which of the batch's messages is at this position. It must be one."""
        row = position - self.batch.first
        return row if self.rows is None else int(np.searchsorted(self.rows, row))


class RecentMessages:
    """Batches, newest last, up to a number of payload bytes."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._batches: list[_Recent] = []
        self._firsts: list[int] = []
        self.bytes = 0

    def add(self, batch: EventBatch) -> None:
        """Remember a batch that has just been staged for the log, and forget the oldest ones beyond the limit."""
        if not batch.messages:
            return
        self._batches.append(_Recent(batch))
        self._firsts.append(batch.first)
        self.bytes += batch.size
        drop = 0
        while self.bytes > self._max_bytes and drop < len(self._batches) - 1:
            self.bytes -= self._batches[drop].batch.size
            drop += 1
        del self._batches[:drop], self._firsts[:drop]

    def payloads(self, positions: Sequence[int]) -> list[bytes | None]:
        """The payloads of messages, None for those that are not here."""
        return self._by_batch(positions, _Recent.payloads)

    def numbers(self, name: str, positions: Sequence[int]) -> list[int | None]:
        """A fixed-width column of messages, None for those that are not here."""
        return self._by_batch(positions, lambda recent, here: recent.numbers(name, here))

    def _by_batch(
        self, positions: Sequence[int], take: Callable[[_Recent, Sequence[int]], Sequence[T]]
    ) -> list[T | None]:
        found: list[T | None] = []
        start = 0
        while start < len(positions):
            recent = self._holding(positions[start])
            stop = start + 1
            if recent is None:
                found.append(None)
            else:
                first, end = recent.batch.first, recent.batch.end
                while stop < len(positions) and first <= positions[stop] < end:
                    stop += 1
                found += take(recent, positions[start:stop])
            start = stop
        return found

    def has(self, position: int) -> bool:
        """Whether a message is here."""
        return self._holding(position) is not None

    def message(self, position: int) -> Message | None:
        """A message with all that was published with it, if it is here."""
        recent = self._holding(position)
        if recent is None:
            return None
        batch, index, row = recent.batch, recent.index(position), position - recent.batch.first
        columns: list[Any] = [
            batch.columns[name][index] if name in batch.columns else default for name, default in _MESSAGE_COLUMNS
        ]
        return Message(
            position, batch.kinds[row], batch.at[row], batch.queues[row], batch.sources[batch.source[row]], *columns
        )

    def _holding(self, position: int) -> _Recent | None:
        at = bisect_right(self._firsts, position) - 1
        return self._batches[at] if at >= 0 and position < self._batches[at].batch.end else None
