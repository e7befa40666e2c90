"""The columns of a chunk of waiting messages: arrays of equal length, a value for each message.

::

    ranks            [  7   8   9  12 … ]   array('Q')
    sizes            [100 100  80 100 … ]   array('I')
    extra[POSITION]  [  7   8   9   3 … ]   array('Q')   only where one differs from its rank: 3 was put back at 12
    extra[EXPIRES]                          array('q')   only where a message expires
    extra[RETRIES]                          array('B')   only where one has a counter
    extra[PRIORITY]                         array('Q')   only where one differs from the lane's own
    extra[REASON]                           array('B')   only for dead letters

That is 12 bytes for a plain waiting message.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.core.structures.item import (
    DEFAULTS,
    EXPIRES,
    OPTIONAL,
    POSITION,
    PRIORITY,
    RANK,
    REASON,
    RETRIES,
    SIZE,
    TYPES,
    Item,
    make_item,
)
from penstock.schema import FOREVER

#: From this number of messages on, numpy makes their ranks.
MANY: Final = 50
#: The columns after the sizes if all are omitted. They never end, and have no state.
_PLAIN_REST: Final = tuple(repeat(value) for value in DEFAULTS[EXPIRES:])


class Columns:
    """Messages in columns. Columns in which all values are the usual ones are omitted."""

    __slots__ = ("extra", "priority", "ranks", "sizes")

    def __init__(self, priority: int, ranks: array[int], sizes: array[int], extra: dict[int, array[int]]) -> None:
        #: The usual priority.
        self.priority = priority
        self.ranks = ranks
        self.sizes = sizes
        self.extra = extra

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def positions(self) -> array[int]:
        """The positions, which usually are the ranks."""
        return self.extra.get(POSITION, self.ranks)

    def item(self, at: int) -> Item:
        """One message."""
        rank, size, extra = self.ranks[at], self.sizes[at], self.extra
        if not extra:
            return make_item((rank, rank, size, 0, FOREVER, self.priority, 0))
        return Item(
            rank,
            extra[POSITION][at] if POSITION in extra else rank,
            size,
            extra[EXPIRES][at] if EXPIRES in extra else 0,
            extra[RETRIES][at] if RETRIES in extra else FOREVER,
            extra[PRIORITY][at] if PRIORITY in extra else self.priority,
            extra[REASON][at] if REASON in extra else 0,
        )

    def items(self, start: int, stop: int) -> Iterator[Item]:
        """Several messages."""
        ranks = self.ranks[start:stop].tolist()  # a position that equals the rank is the same object: messages are many
        sizes = self.sizes[start:stop]
        if not (self.extra or self.priority):
            return map(make_item, zip(ranks, ranks, sizes, *_PLAIN_REST, strict=False))
        positions = self.extra[POSITION][start:stop] if POSITION in self.extra else ranks
        rest = [
            self.extra[index][start:stop] if index in self.extra else repeat(self.default(index))
            for index in (EXPIRES, RETRIES, PRIORITY, REASON)
        ]
        return map(make_item, zip(ranks, positions, sizes, *rest, strict=False))

    def default(self, index: int) -> int:
        """The usual value of an optional column other than the positions."""
        return self.priority if index == PRIORITY else DEFAULTS[index]

    def append_run(self, first: int, sizes: Sequence[int], expires: int, retries: int) -> None:
        """Add messages at the end whose positions, and ranks, are ``first``, ``first + 1`` and so on."""
        count = len(sizes)
        run = range(first, first + count)
        if self.extra or expires or retries != FOREVER:
            if POSITION in self.extra:
                self.extra[POSITION].extend(run)
            self._append(EXPIRES, expires, count)
            self._append(RETRIES, retries, count)
            self._append(PRIORITY, self.priority, count)
            self._append(REASON, 0, count)
        if count < MANY:
            self.ranks.extend(run)
            self.sizes.extend(sizes)
        else:
            self.ranks.frombytes(np.arange(first, first + count, dtype=np.uint64).tobytes())
            self.sizes.extend(_as_array(sizes))

    def insert(self, at: int, items: Sequence[Item]) -> None:
        """Insert messages side by side."""
        for index in OPTIONAL:
            if index not in self.extra:
                if index == POSITION:
                    usual = all(item.position == item.rank for item in items)
                else:
                    default = self.default(index)
                    usual = all(item[index] == default for item in items)
                if usual:
                    continue
            self._optional(index)[at:at] = array(TYPES[index], [item[index] for item in items])
        self.sizes[at:at] = array(TYPES[SIZE], [item.size for item in items])
        self.ranks[at:at] = array(TYPES[RANK], [item.rank for item in items])

    def delete(self, start: int, stop: int) -> None:
        """Remove rows."""
        del self.ranks[start:stop]
        del self.sizes[start:stop]
        for column in self.extra.values():
            del column[start:stop]

    def split(self, at: int) -> Columns:
        """Remove the rows from here on, and return them."""
        extra = {index: column[at:] for index, column in self.extra.items()}
        upper = Columns(self.priority, self.ranks[at:], self.sizes[at:], extra)
        self.delete(at, len(self))
        return upper

    def due(self, now: int, limit: int) -> tuple[list[int], int]:
        """The indexes of up to ``limit`` expired messages, and when the next of the others expires; 0 = none does."""
        if EXPIRES not in self.extra:
            return [], 0
        times = np.frombuffer(self.extra[EXPIRES], np.int64)
        due = np.flatnonzero((times > 0) & (times <= now))[:limit]
        later = times > 0
        later[due] = False
        return due.tolist(), int(times[later].min(initial=2**63 - 1)) if later.any() else 0

    def as_arrays(self, low: int, high: int) -> list[NDArray[np.generic]]:
        """Copies of all columns, in the order of :class:`Item`."""
        columns: list[NDArray[np.generic]] = []
        for index in range(len(TYPES)):
            column = self.ranks if index == RANK else self.sizes if index == SIZE else self.extra.get(index)
            if column is None and index == POSITION:
                column = self.ranks
            if column is None:
                columns.append(np.full(high - low, self.default(index), dtype=TYPES[index]))
            else:
                columns.append(np.array(column[low:high], dtype=TYPES[index]))
        return columns

    def _append(self, index: int, value: int, count: int) -> None:
        """Add a value to an optional column, if it is not the usual one of an omitted column."""
        if index not in self.extra and value == self.default(index):
            return
        if count == 1:
            self._optional(index).append(value)
        else:
            self._optional(index).extend(array(TYPES[index], (value,)) * count)

    def _optional(self, index: int) -> array[int]:
        """An optional column, which is created if it is omitted so far."""
        column = self.extra.get(index)
        if column is None:
            usual = self.ranks[:] if index == POSITION else array(TYPES[index], (self.default(index),)) * len(self)
            column = self.extra[index] = usual
        return column


def empty_columns(priority: int) -> Columns:
    """Columns without a message."""
    return Columns(priority, array(TYPES[RANK]), array(TYPES[SIZE]), {})


def columns_from_arrays(priority: int, columns: Sequence[NDArray[np.generic]]) -> Columns:
    """Columns with the values of these arrays, in the order of :class:`Item`."""
    made = Columns(priority, _to_array(columns[RANK], RANK), _to_array(columns[SIZE], SIZE), {})
    for index in OPTIONAL:
        column = columns[index]
        if index == POSITION:
            usual = (column == columns[RANK]).all()
        else:
            different = column[:1] if column.strides == (0,) else column  # such an array is one value for all rows
            usual = (different == made.default(index)).all()
        if not usual:
            made.extra[index] = _to_array(column, index)
    return made


def _to_array(column: NDArray[np.generic], index: int) -> array[int]:
    return array(TYPES[index], np.ascontiguousarray(column, dtype=TYPES[index]).tobytes())


def _as_array(sizes: Sequence[int]) -> array[int]:
    if sizes.count(sizes[0]) == len(sizes):
        return array(TYPES[SIZE], (sizes[0],)) * len(sizes)
    return array(TYPES[SIZE], sizes)
