"""The events of many blocks side by side: one array a column, however small the blocks are.

Blocks come one by one and are not kept: the needed columns of each are copied out at once, never the payloads. So a
million events take about 30 MB, whether they are in a thousand blocks or in a million, with small messages or large
ones. Little is done for each block, and nothing that needs a call of numpy: columns are gathered as bytes, and become
arrays when all are there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.schema import COLUMN, FINAL_KINDS, SPARK_KINDS, STATE_KINDS, Kind, Rows

Array = NDArray[Any]

#: Not needed: sources, times, and the other properties of a published message.
_UNWANTED = {"at", "source", "delivered_at", "correlation_id", "carried_source"}
_WANTED = COLUMN.keys() - _UNWANTED
_NUMBERS = {name for name in _WANTED if COLUMN[name].type != "binary"}
_STRINGS = _WANTED - _NUMBERS - {"payload"}

#: Queues and namespaces may come and go by the thousands among messages, and say nothing about messages.
CATALOGUE_KINDS = (Kind.QUEUE_CREATED, Kind.QUEUE_DELETED, Kind.NAMESPACE_CREATED, Kind.NAMESPACE_DELETED)

_MANY = np.zeros(256, np.bool_)
_MANY[[*STATE_KINDS, *FINAL_KINDS, *SPARK_KINDS, *CATALOGUE_KINDS, Kind.PUBLISHED, Kind.CARRIED]] = True
#: Purging thousands of queues takes one step.
PURGE_KINDS = (Kind.PURGED, Kind.DEAD_PURGED)
_PURGE = np.zeros(256, np.bool_)
_PURGE[[*PURGE_KINDS]] = True


class EventBlock(Protocol):
    """The interface of a block of events."""

    @property
    def first(self) -> int:
        """Position of the first row."""

    @property
    def count(self) -> int:
        """Number of rows."""

    @property
    def messages(self) -> int:
        """Number of rows that carry a message."""

    def at(self) -> Array:
        """A time for each row."""

    def message_rows(self) -> Array:
        """The numbers of the rows that carry a message."""

    def pieces(self, names: Container[str]) -> Iterator[tuple[str, bytes]]:
        """The existing columns of these, as bytes: a value for each row, or for byte strings their offsets."""

    def binary(self, name: str) -> tuple[Array, memoryview]:
        """Offsets and bytes of a column of byte strings, for the rows of its sort."""


class _NumberColumn:
    """A column of numbers while it is gathered. Rows of blocks without the column get the default."""

    __slots__ = ("_default", "_dtype", "_parts", "_rows", "sort")

    def __init__(self, name: str) -> None:
        spec = COLUMN[name]
        self.sort = (Rows.ALL, Rows.MESSAGES, Rows.OTHERS).index(spec.rows)
        self._dtype = np.dtype(spec.type)
        self._default = np.array(spec.default, self._dtype).tobytes()
        self._parts: list[bytes] = []
        self._rows = 0

    def add(self, start: int, rows: int, data: bytes) -> None:
        if self._rows < start:
            self._parts.append(self._default * (start - self._rows))
        self._parts.append(data)
        self._rows = start + rows

    def array(self, rows: int) -> Array:
        """The array; the parts are consumed."""
        if not self._parts:
            return np.broadcast_to(np.frombuffer(self._default, self._dtype), rows)
        self.add(rows, 0, b"")
        joined = b"".join(self._parts)
        self._parts = []
        return np.frombuffer(joined, self._dtype)


class Events:
    """Arrays over all rows, over message rows, and over the others. ``add`` the blocks, then ``finish``, then read.

    A message is numbered by its place among the message rows, an event without a message by its place among the others.
    """

    kinds: Array
    queues: Array
    positions: Array
    sizes: Array
    message_rows: Array
    other_rows: Array
    other_kinds: Array
    #: Rows that affect everything in a queue, or in the broker.
    singular: Array

    def __init__(self) -> None:
        self.count = 0
        self.message_count = 0
        #: The position after the last event.
        self.end = 0
        self._columns: dict[str, _NumberColumn] = {}
        self._arrays: dict[str, Array] = {}
        self._firsts: list[int] = []
        self._counts: list[int] = []
        self._offsets: list[bytes] = []
        self._offset_counts: list[int] = []
        self._strings: dict[str, list[tuple[int, bytes]]] = {name: [] for name in _STRINGS}
        #: When the messages with a request ID came.
        self.request_times: dict[int, int] = {}

    def add(self, block: EventBlock) -> None:
        """Copy the needed columns of the next block."""
        count, messages = block.count, block.messages
        starts = (self.count, self.message_count, self.count - self.message_count)
        rows = (count, messages, count - messages)
        offsets = bytes(4 * (messages + 1))
        for name, data in block.pieces(_WANTED):
            if name == "payload":
                offsets = data
            elif name in _NUMBERS:
                column = self._columns.get(name)
                if column is None:
                    column = self._columns[name] = _NumberColumn(name)
                column.add(starts[column.sort], rows[column.sort], data)
            else:
                self._add_strings(block, name, starts)
        if messages:
            self._offsets.append(offsets)
            self._offset_counts.append(messages + 1)
        self._firsts.append(block.first)
        self._counts.append(count)
        self.count += count
        self.message_count += messages
        self.end = block.first + count

    def finish(self) -> None:
        """Make the arrays, once all blocks are added."""
        self.kinds = self.numbers("kind")
        self.queues = self.numbers("queue")
        self.positions = self._positions()
        self.sizes = self._sizes()
        carries = (self.kinds == Kind.PUBLISHED) | (self.kinds == Kind.CARRIED)
        self.message_rows = np.flatnonzero(carries)
        self.other_rows = np.flatnonzero(~carries)
        self.other_kinds = self.kinds[self.other_rows]
        self.singular = ~_MANY[self.kinds]

    def has(self, name: str) -> bool:
        """Whether a column of numbers has anything but its default."""
        return name in self._columns

    def numbers(self, name: str) -> Array:
        """A column of numbers, for the rows of its sort."""
        found = self._arrays.get(name)
        if found is None:
            column = self._columns.get(name) or _NumberColumn(name)
            rows = (self.count, self.message_count, self.count - self.message_count)[column.sort]
            found = self._arrays[name] = column.array(rows)
        return found

    def strings(self, name: str, low: int, high: int) -> list[tuple[int, bytes]]:
        """The non-empty byte strings of a column, with the number of their row, for rows of its sort."""
        found = self._strings[name]
        return found[bisect_left(found, (low,)) : bisect_left(found, (high,))]

    def spans(self) -> Iterator[tuple[int, int]]:
        """Cut the rows into spans: one event about all that a queue has, or many of other kinds, or many purges."""
        if not self.count:
            return
        cuts = np.zeros(self.count, np.bool_)
        cuts[0] = True
        cuts[1:] = self.singular[1:] | self.singular[:-1]
        cuts[1:] &= ~(_PURGE[self.kinds[1:]] & (self.kinds[1:] == self.kinds[:-1]))
        starts = np.flatnonzero(cuts).tolist()
        yield from zip(starts, [*starts[1:], self.count], strict=True)

    def message_range(self, start: int, stop: int) -> tuple[int, int]:
        """The range of message rows between two rows."""
        low, high = np.searchsorted(self.message_rows, (start, stop)).tolist()
        return low, high

    def other_range(self, start: int, stop: int) -> tuple[int, int]:
        """The range of other rows between two rows."""
        low, high = np.searchsorted(self.other_rows, (start, stop)).tolist()
        return low, high

    def _add_strings(self, block: EventBlock, name: str, starts: tuple[int, int, int]) -> None:
        start = starts[1 if COLUMN[name].rows is Rows.MESSAGES else 2]
        offsets, data = block.binary(name)
        filled = np.flatnonzero(np.diff(offsets)).tolist()
        self._strings[name] += [(start + i, bytes(data[offsets[i] : offsets[i + 1]])) for i in filled]
        if name == "request_id":
            times = block.at()[block.message_rows()]
            self.request_times.update((start + i, int(times[i])) for i in filled)

    def _positions(self) -> Array:
        firsts = np.array(self._firsts, np.uint64)
        counts = np.array(self._counts, np.uint64)
        starts = np.cumsum(counts) - counts
        rows = np.arange(self.count, dtype=np.uint64)
        shifts = firsts - starts
        rows += shifts[0] if (shifts == shifts[0]).all() else np.repeat(shifts, self._counts)
        return rows

    def _sizes(self) -> Array:
        """The differences of the offsets, except those between the last of a block and the first of the next."""
        offsets = np.frombuffer(b"".join(self._offsets), np.int32)
        sizes = np.diff(offsets).view(np.uint32)
        joints = np.cumsum(np.array(self._offset_counts, np.intp))[:-1] - 1
        return np.delete(sizes, joints) if len(joints) else sizes
