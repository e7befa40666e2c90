"""The newest messages, kept in memory so that delivering them does not read the disk.

Whole batches are kept as they were staged: remembering one costs nothing per message, and so does forgetting it. A
batch goes as soon as each of its messages was looked up: they are delivered once, as a rule.

Behind a backlog the newest messages are the last to be delivered, and keeping them is of no use. So few are kept until
somebody asks for one that was forgotten only therefore; then all are. Where batches are forgotten without ever having
been asked for, fewer are kept again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from penstock.core.events import EventBatch
from penstock.journal.format.rows import MessageRow
from penstock.schema import COLUMN, COLUMNS, MESSAGE_KINDS, Rows

T = TypeVar("T")

#: Bytes kept unless told otherwise, with what the rows cost.
DEFAULT_BYTES = 64 * 2**20
#: So many are kept at least, though nobody has asked for any.
LEAST_BYTES = 4 * 2**20
#: What a batch costs beside its messages: with one message it is a hundred bytes in a dozen objects.
BATCH_COST = 1_500
#: Batches that were forgotten are noted in stretches of so many bytes.
MISSED_BYTES = 2**20

_MESSAGE_COLUMNS: list[tuple[str, int | bytes]] = [
    (column.name, b"" if column.type == "binary" else column.default)
    for column in COLUMNS
    if column.rows is Rows.MESSAGES
]
_CARRIES = np.zeros(256, np.bool_)
_CARRIES[list(MESSAGE_KINDS)] = True


class PlainMessage(NamedTuple):
    """All that most messages have. Where they have more, there is a MessageRow of them."""

    payload: bytes
    at: int
    source: bytes


#: Columns that a message has beside those of a plain one, as far as whom it is given to may be told of them.
SPECIAL = frozenset(("asked_id", "request_id", "correlation_id", "published_at", "carried_source", "source_info"))


class _Recent:
    """One batch, and where its messages are in it."""

    __slots__ = ("batch", "lookups", "rows")

    def __init__(self, batch: EventBatch) -> None:
        self.batch = batch
        #: Messages that were asked for.
        self.lookups = 0
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

    def plain(self, positions: Sequence[int]) -> list[PlainMessage]:
        """Messages that are all in this batch; nothing if there are any of ``SPECIAL`` in it."""
        batch = self.batch
        if not SPECIAL.isdisjoint(batch.columns):
            return []
        rows = [position - batch.first for position in positions]
        sources = [batch.sources[batch.source[row]] for row in rows]
        return list(map(PlainMessage, self.payloads(positions), [batch.at[row] for row in rows], sources))

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


def _cost(batch: EventBatch) -> int:
    return batch.size + BATCH_COST


class RecentMessages:
    """Batches, newest last, up to a number of bytes."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        #: How many are kept now: see the module's description.
        self._wanted = self._least = min(LEAST_BYTES, max_bytes)
        #: None: each of its messages was looked up.
        self._batches: list[_Recent | None] = []
        self._firsts: list[int] = []
        self.bytes = 0
        #: Batches of which every message was looked up: they go with the next one that comes, as more than its payload
        #: may be asked of a message.
        self._delivered: list[_Recent] = []
        #: Stretches of batches that would be here if all were kept: where each begins, and its bytes.
        self._missed: deque[tuple[int, int]] = deque()
        self._missed_bytes = 0

    def add(self, batch: EventBatch) -> None:
        """Remember a batch that has just been staged for the log, and forget the oldest ones beyond the limit."""
        self._forget_delivered()
        if not batch.messages:
            return
        self._batches.append(_Recent(batch))
        self._firsts.append(batch.first)
        self.bytes += _cost(batch)
        self._forget_oldest(len(self._batches) - 1)

    def committed(self, position: int) -> None:
        """What is below this position can be read from the log: the newest batch is not kept for its own sake then."""
        if self.bytes > self._wanted:
            self._forget_oldest(bisect_left(self._firsts, position))

    def _forget_oldest(self, most: int) -> None:
        """Forget batches that are not wanted, ``most`` at most."""
        drop = 0
        while drop < most and (self._batches[drop] is None or self.bytes > self._wanted):
            self._drop(self._batches[drop])
            drop += 1
        del self._batches[:drop], self._firsts[:drop]
        while self._missed and self.bytes + self._missed_bytes > self._max_bytes:
            self._missed_bytes -= self._missed.popleft()[1]

    def _drop(self, recent: _Recent | None) -> None:
        """Forget the oldest batch. If nobody has ever asked for it, the others are not worth so much either."""
        if recent is None:
            return
        cost = _cost(recent.batch)
        self.bytes -= cost
        if recent.lookups:
            return
        self._wanted = max(self._least, self._wanted // 2)
        self._missed_bytes += cost
        if self._missed and self._missed[-1][1] < MISSED_BYTES:
            first, before = self._missed.pop()
            self._missed.append((first, before + cost))
        else:
            self._missed.append((recent.batch.first, cost))

    def _forget_delivered(self) -> None:
        for recent in self._delivered:
            at = self._holding(recent.batch.first)
            if at is not None and self._batches[at] is recent:
                self.bytes -= _cost(recent.batch)
                self._batches[at] = None
        self._delivered.clear()

    def payloads(self, positions: Sequence[int]) -> list[bytes | None]:
        """The payloads of messages, None for those that are not here."""
        return self._by_batch(positions, _Recent.payloads, self._looked_up)

    def numbers(self, name: str, positions: Sequence[int]) -> list[int | None]:
        """A fixed-width column of messages, None for those that are not here."""
        return self._by_batch(positions, lambda recent, here: recent.numbers(name, here))

    def _by_batch(
        self,
        positions: Sequence[int],
        take: Callable[[_Recent, Sequence[int]], Sequence[T | None]],
        note: Callable[[_Recent, int], None] | None = None,
    ) -> list[T | None]:
        found: list[T | None] = []
        start = 0
        while start < len(positions):
            at = self._holding(positions[start])
            stop = start + 1
            if at is None:
                found.append(None)
            else:
                recent = cast(_Recent, self._batches[at])
                first, end = recent.batch.first, recent.batch.end
                while stop < len(positions) and first <= positions[stop] < end:
                    stop += 1
                found += take(recent, positions[start:stop])
                if note is not None:
                    note(recent, stop - start)
            start = stop
        return found

    def _looked_up(self, recent: _Recent, count: int) -> None:
        before = recent.lookups
        recent.lookups += count
        if before < recent.batch.messages <= recent.lookups:
            self._delivered.append(recent)

    def span(self, position: int) -> tuple[int, int] | None:
        """The positions, end excluded, of the batch that has a message; None if it is not here."""
        at = self._holding(position)
        if at is None:
            return None
        batch = cast(_Recent, self._batches[at]).batch
        return batch.first, batch.end

    def plain(self, positions: Sequence[int]) -> list[PlainMessage | None]:
        """Messages without any of ``SPECIAL``; None for those that are not here, or have some."""
        return self._by_batch(positions, self._plain)

    def _plain(self, recent: _Recent, positions: Sequence[int]) -> Sequence[PlainMessage | None]:
        found = recent.plain(positions)
        if not found:
            return [None] * len(positions)
        self._looked_up(recent, len(positions))
        return found

    def message(self, position: int) -> MessageRow | None:
        """A message with all that was published with it, if it is here."""
        at = self._holding(position)
        if at is None:
            return None
        recent = cast(_Recent, self._batches[at])
        batch, index, row = recent.batch, recent.index(position), position - recent.batch.first
        columns: list[Any] = [
            batch.columns[name][index] if name in batch.columns else default for name, default in _MESSAGE_COLUMNS
        ]
        self._looked_up(recent, 1)
        return MessageRow(
            position, batch.kinds[row], batch.at[row], batch.queues[row], batch.sources[batch.source[row]], *columns
        )

    def _holding(self, position: int) -> int | None:
        """Which batch has this position. If it would be here, had we kept as many as we may, we do so from now on."""
        at = bisect_right(self._firsts, position) - 1
        if at < 0:
            if self._missed and position >= self._missed[0][0]:
                self._wanted = self._max_bytes
            return None
        recent = self._batches[at]
        return at if recent is not None and position < recent.batch.end else None
