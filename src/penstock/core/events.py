"""Stages the core's events, in the columns of :mod:`penstock.schema`.

The log gives every row its position when it is staged, so a message has its identity before it is on disk. Rows wait
here until they are taken to the journal; each batch becomes one block.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from struct import Struct, pack
from typing import Final, TypeAlias

from penstock.schema import COLUMN, Kind, Rows

#: A batch is closed and a new one begun before its size exceeds this, well below the 64 MiB of the largest block. A
#: larger row has a batch of its own.
BATCH_BYTES: Final = 32 * 2**20
#: The cost of a row beside its bytes, in memory and on disk: a bound, so that rows without any are counted too.
ROW_BYTES: Final = 96
#: A block spans less than an hour. The times of a batch lie at most this far from its first, to either side.
BATCH_SPAN: Final = 29 * 60 * 1_000_000
#: Sources are numbered with 16 bits in a block.
BATCH_SOURCES = 60_000

Values: TypeAlias = "array[int] | list[bytes]"

#: Columns of a row that ends a message.
_END_COLUMNS: Final = ("message", "deliveries", "delivered_at")
#: Rows of single messages that are kept until they are moved to the columns together.
MOST_SINGLES: Final = 64
_INT64: Final = Struct("=q")
_UINT32: Final = Struct("=I")
_UINT16: Final = Struct("=H")
_OF_MESSAGES: Final = frozenset(name for name, column in COLUMN.items() if column.rows is Rows.MESSAGES)


class EventBatch:
    """Consecutive rows, column by column. ``columns`` holds only the columns in use."""

    __slots__ = (
        "_ends",
        "_payloads",
        "_singles",
        "_source_index",
        "at",
        "columns",
        "first",
        "kinds",
        "messages",
        "others",
        "queues",
        "size",
        "source",
        "sources",
    )

    def __init__(self, first: int) -> None:
        self.first = first
        self.kinds = bytearray()
        self.at: array[int] = array("q")
        self.queues: array[int] = array("I")
        self.source: array[int] = array("H")
        self.sources: list[bytes] = []
        self.columns: dict[str, Values] = {}
        self.messages = 0
        self.others = 0
        #: Bytes of payloads and all other values of variable length, and the cost of the rows.
        self.size = 0
        self._source_index: dict[bytes, int] = {}
        self._payloads: list[bytes] = []
        #: Rows of single messages that are not in the columns yet, and those of them that are final: adding each of
        #: them to three, or six, arrays takes ten times as long.
        self._singles: list[tuple[int, int, int]] = []
        self._ends: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def begun_at(self) -> int:
        """The time of the first row. There must be one."""
        return self.at[0] if self.at else self._singles[0][0]

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + len(self.kinds)

    def add_messages(
        self,
        kind: Kind,
        at: int,
        queue: int,
        source: bytes,
        payloads: Sequence[bytes],
        columns: Mapping[str, Values],
        size: int | None = None,
    ) -> None:
        """Stage message rows, one for each payload. Each of ``columns`` has a value for each of them.

        ``size`` is that of payloads and columns, if it is known.
        """
        if len(payloads) == 1:
            self._add_single(kind, at, queue, source)
        else:
            self._add_rows(kind, at, queue, source, len(payloads))
        if not self.messages:
            self.columns["payload"] = self._payloads
        self._payloads.extend(payloads)
        for name, values in columns.items():
            self._extend(name, self.messages, values)
        self.messages += len(payloads)
        self.size += _size(payloads, columns) if size is None else size

    def add_others(
        self,
        kind: Kind,
        at: int,
        queue: int,
        source: bytes,
        count: int,
        columns: Mapping[str, Values],
        size: int | None = None,
    ) -> None:
        """Stage ``count`` rows without a message. Each of ``columns`` has a value for each of them. See above."""
        self._add_rows(kind, at, queue, source, count)
        for name, values in columns.items():
            self._extend(name, self.others, values)
        self.others += count
        self.size += _size((), columns) if size is None else size

    def add_end(
        self, kind: Kind, at: int, queue: int, source: bytes, message: int, deliveries: int, delivered_at: int
    ) -> None:
        """Stage the row of a message that is gone for good: see ``EventLog.end``."""
        self._ends.append((message, deliveries, delivered_at))
        self._add_single(kind, at, queue, source)

    def _add_single(self, kind: Kind, at: int, queue: int, source: bytes) -> None:
        self.size += ROW_BYTES
        self.kinds.append(kind)
        self._singles.append((at, queue, self._number(source)))
        if len(self._singles) >= MOST_SINGLES:
            self._add_singles()

    def _add_singles(self) -> None:
        """Move the rows of single messages to the columns."""
        count = len(self._singles)
        at, queues, source = zip(*self._singles, strict=True)
        packed = pack(f"={count}q", *at), pack(f"={count}I", *queues), pack(f"={count}H", *source)
        self.at.frombytes(packed[0])
        self.queues.frombytes(packed[1])
        self.source.frombytes(packed[2])
        self._singles.clear()
        if self._ends:
            for name, values in zip(_END_COLUMNS, zip(*self._ends, strict=True), strict=True):
                self._extend(name, self.others, values)
            self.others += len(self._ends)
            self._ends.clear()

    def close(self) -> None:
        """Give every column a value for every row of its sort. Call it before reading columns."""
        if self._singles:
            self._add_singles()
        for name, column in self.columns.items():
            rows = self.messages if name in _OF_MESSAGES else self.others
            if len(column) < rows:
                self._extend(name, rows, ())

    def _number(self, source: bytes) -> int:
        index = self._source_index.get(source)
        if index is None:
            index = self._source_index[source] = len(self.sources)
            self.sources.append(source)
        return index

    def _add_rows(self, kind: Kind, at: int, queue: int, source: bytes, count: int) -> None:
        if self._singles:
            self._add_singles()
        index = self._number(source)
        self.size += ROW_BYTES * count
        if count == 1:
            self.kinds.append(kind)
            self.at.append(at)
            self.queues.append(queue)
            self.source.append(index)
            return
        self.kinds.extend(bytes((kind,)) * count)  # as bytes: multiplying a one-value array takes thrice as long
        self.at.frombytes(_INT64.pack(at) * count)
        self.queues.frombytes(_UINT32.pack(queue) * count)
        self.source.frombytes(_UINT16.pack(index) * count)

    def _extend(self, name: str, rows: int, values: Sequence[int] | Sequence[bytes]) -> None:
        """Add ``values`` after ``rows`` rows; those of them that omitted this column get its default."""
        column = self.columns.get(name)
        if column is None:
            kind = COLUMN[name].type
            column = self.columns[name] = [] if kind == "binary" else array(kind)
        if (missing := rows - len(column)) > 0:
            _pad(column, missing, COLUMN[name].default)
        column.extend(values)  # type: ignore[arg-type]  # the column and its values are of one sort


class EventLog:
    """The staged rows, and the position of the next one."""

    def __init__(self, next_position: int) -> None:
        self._closed: list[EventBatch] = []
        self._closed_size = 0
        self.batch = EventBatch(next_position)
        #: The limit of batches, and of the current one, for which more room may have been made.
        self._most = self._limit = BATCH_BYTES

    def bound(self, size: int) -> None:
        """Close batches at another size than ``BATCH_BYTES``, from now on."""
        self._most = self._limit = min(size, BATCH_BYTES)

    @property
    def next_position(self) -> int:
        """The position that the next row will have."""
        batch = self.batch
        return batch.first + len(batch.kinds)

    @property
    def size(self) -> int:
        """Bytes of the staged rows."""
        return self.batch.size + self._closed_size

    @property
    def staged(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._closed or self.batch.kinds)

    def messages(
        self,
        at: int,
        queue: int,
        source: bytes,
        payloads: Sequence[bytes],
        columns: Mapping[str, Values],
        kind: Kind = Kind.PUBLISHED,
        size: int | None = None,
    ) -> int:
        """Stage message rows and return the position of the first. ``size`` is that of the payloads, if it is known."""
        if size is None or columns:
            size = _size(payloads, columns)
        batch = self._room(at, len(payloads) * ROW_BYTES + size)
        first = batch.first + len(batch.kinds)
        batch.add_messages(kind, at, queue, source, payloads, columns, size)
        return first

    def others(self, kind: Kind, at: int, queue: int, source: bytes, count: int, columns: Mapping[str, Values]) -> int:
        """Stage rows without a message and return the position of the first. May span several batches."""
        most = self._most // ROW_BYTES or 1
        if count <= most:
            return self._add_others(kind, at, queue, source, count, columns)
        first = self.next_position
        for start in range(0, count, most):
            part = {name: values[start : start + most] for name, values in columns.items()}
            self._add_others(kind, at, queue, source, min(most, count - start), part)
        return first

    def other(self, kind: Kind, at: int, queue: int, source: bytes, *, detail: bytes = b"", **columns: int) -> int:
        """Stage one row without a message and return its position. Columns are given by name."""
        values: dict[str, Values] = {name: array(COLUMN[name].type, (value,)) for name, value in columns.items()}
        if detail:
            values["detail"] = [detail]
        return self.others(kind, at, queue, source, 1, values)

    def end(
        self, kind: Kind, at: int, queue: int, source: bytes, message: int, deliveries: int, delivered_at: int
    ) -> int:
        """Stage a final row for one message, as ``others`` does for many, and return the position."""
        batch = self._room(at, ROW_BYTES)
        first = batch.first + len(batch.kinds)
        batch.add_end(kind, at, queue, source, message, deliveries, delivered_at)
        return first

    def make_room(self, at: int, size: int) -> EventBatch:
        """A batch with room for ``size`` bytes and the cost of their rows, so that a crash can't part them.

        What is staged next is in one block if it is no larger than that, or is added to the batch itself.
        """
        if len(self.batch.sources) >= BATCH_SOURCES:
            self._turn()
        batch = self._room(at, size)
        self._limit = max(self._limit, batch.size + size)
        return batch

    def take(self) -> list[EventBatch]:
        """Hand over everything staged so far, as batches in order."""
        if len(self.batch):
            self._turn()
        taken, self._closed = self._closed, []
        self._closed_size = 0
        return taken

    def _add_others(
        self, kind: Kind, at: int, queue: int, source: bytes, count: int, columns: Mapping[str, Values]
    ) -> int:
        size = _size((), columns)
        batch = self._room(at, count * ROW_BYTES + size)
        first = batch.first + len(batch.kinds)
        batch.add_others(kind, at, queue, source, count, columns, size)
        return first

    def _room(self, at: int, size: int) -> EventBatch:
        batch = self.batch
        if batch.kinds and (
            batch.size + size > self._limit
            or abs(at - batch.begun_at) > BATCH_SPAN
            or len(batch.sources) > BATCH_SOURCES
        ):
            self._turn()
        return self.batch

    def _turn(self) -> None:
        self.batch.close()
        self._closed.append(self.batch)
        self._closed_size += self.batch.size
        self.batch = EventBatch(self.batch.end)
        self._limit = self._most


def _pad(column: Values, rows: int, default: int) -> None:
    if isinstance(column, list):
        column.extend([b""] * rows)
    else:
        column.extend(array(column.typecode, (default,)) * rows)


def _size(payloads: Sequence[bytes], columns: Mapping[str, Values]) -> int:
    """The bytes in these, without the cost of each row."""
    size = sum(map(len, payloads))
    for values in columns.values():
        if isinstance(values, list):
            size += sum(map(len, values))
    return size
