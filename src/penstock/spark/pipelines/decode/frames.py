"""Builds the table of frames, column by column. Pure: no Spark.

A decoder's frames are runs of similar messages. Values that the messages of a run share are stored once, and repeated
by numpy at the end; the others go into flat lists. So a row costs a few list entries, and no object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.wire.located import Place
from penstock.wire.stream import WireError

_Numbers = np.ndarray[Any, np.dtype[np.int64]]

_TIME = pa.timestamp("us", tz="UTC")
FRAMES = pa.schema(
    {
        "file": pa.string(),
        "stream": pa.string(),
        "protocol": pa.string(),
        "direction": pa.string(),
        "offset": pa.int64(),
        "length": pa.int64(),
        "at": _TIME,
        "type": pa.string(),
        "namespace": pa.string(),
        "queue": pa.string(),
        "id": pa.binary(),
        "opaque": pa.binary(),
        "payload_size": pa.int32(),
        "payload": pa.binary(),
        "ttl": pa.int64(),
        "retries": pa.int32(),
        "fields": pa.string(),
        "code": pa.string(),
        "error": pa.string(),
    }
)
#: Rows of a record batch.
BATCH_ROWS = 16_384
#: Bytes of payloads after which a batch is complete.
BATCH_BYTES = 32 * 2**20


class FrameSource(NamedTuple):
    """The origin of frames: the first four columns. All but ``file`` may be unknown."""

    file: str
    stream: str | None = None
    protocol: str | None = None
    direction: str | None = None


class _SharedValues(NamedTuple):
    """The values that the messages of a run share: one for each repeated column."""

    source: FrameSource
    at: int | None
    type: str | None
    namespace: str | None
    queue: str | None
    retries: int | None
    fields: str | None
    code: str | None
    error: str | None


#: Columns with a separate value for each message.
_OWN = ("id", "opaque", "ttl", "payload", "fields")
Values: TypeAlias = "Sequence[Any] | pa.Array | None"


class Columns(NamedTuple):
    """Columns of a run's messages, and the rest as JSON. None: null for all."""

    ids: Values
    ttls: Values
    fields: Values


class Deferred(NamedTuple):
    """Data to decode in large pieces: as on the wire, and the beginning of each message's ``fields``."""

    shared: str
    raw: list[bytes]
    #: Decodes it to columns.
    read: Callable[[str, list[bytes]], Columns]


class FrameRows(NamedTuple):
    """One frame as rows. Lists and arrays have one value for each message; None is null for all."""

    type: str
    messages: int
    payloads: Sequence[bytes] | None = None
    namespace: str | None = None
    queue: str | None = None
    ids: Values = None
    opaques: Values = None
    ttl: int | Values = None
    retries: int | None = None
    fields: str | Values = None
    #: In place of ids, ttl and fields.
    deferred: Deferred | None = None


class _OwnColumn:
    """A column with gaps. Single values are collected in a list until an array follows."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._arrays: list[pa.Array] = []
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, values: Sequence[Any] | pa.Array, before: int) -> None:
        """Add values for the rows from ``before`` on. Rows without a value are null."""
        self._pad(before)
        if isinstance(values, pa.Array):
            self._settle()
            self._arrays.append(values)
        else:
            self._waiting += values
        self._rows += len(values)

    def array(self, rows: int) -> pa.Array | None:
        """The whole column; None if it has no value."""
        if not self._rows:
            return None
        self._pad(rows)
        self._settle()
        return pa.concat_arrays(self._arrays) if len(self._arrays) > 1 else self._arrays[0]

    def _pad(self, rows: int) -> None:
        if self._rows < rows:
            self._waiting += [None] * (rows - self._rows)
            self._rows = rows

    def _settle(self) -> None:
        if self._waiting:
            self._arrays.append(pa.array(self._waiting, self._kind))
            self._waiting = []


class Frames:
    """Collects rows, and makes record batches of them."""

    def __init__(self, *, payloads: bool = False) -> None:
        self._payloads = payloads
        self._clear()

    def _clear(self) -> None:
        self._runs: list[_SharedValues] = []
        self._counts: list[int] = []
        self._starts: list[int] = []
        self._between: list[int] = []
        self._lengths: list[int] = []
        self._sizes: list[int] = []
        self._unread: Deferred | None = None
        self._columns = {name: _OwnColumn(FRAMES.field(name).type) for name in _OWN}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def full(self) -> bool:
        """Whether a batch is complete."""
        return len(self._lengths) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, source: FrameSource, at: int | None, rows: FrameRows, place: Place) -> None:
        """Add the messages of a frame."""
        self._gather(rows.deferred)
        fields = rows.fields if isinstance(rows.fields, str) else None
        shared = _SharedValues(source, at, rows.type, rows.namespace, rows.queue, rows.retries, fields, None, None)
        self._add_run(shared, rows.messages, place.start, place.between)
        self._lengths += place.lengths
        self._sizes += [-1] * rows.messages if rows.payloads is None else map(len, rows.payloads)
        self._own("id", rows.ids)
        self._own("opaque", rows.opaques)
        self._own("ttl", [rows.ttl] * rows.messages if isinstance(rows.ttl, int) else rows.ttl)
        self._own("fields", None if isinstance(rows.fields, str) else rows.fields)
        if self._payloads:
            self._own("payload", rows.payloads)
            self._bytes += sum(place.lengths)

    def fail(self, source: FrameSource, at: int | None, offset: int, length: int, code: str, text: str) -> None:
        """Add a row for ``length`` unreadable bytes at ``offset``."""
        self._gather(None)
        self._add_run(_SharedValues(source, at, None, None, None, None, None, code, text), 1, offset, 0)
        self._lengths.append(length)
        self._sizes.append(-1)

    def _add_run(self, shared: _SharedValues, count: int, start: int, between: int) -> None:
        self._runs.append(shared)
        self._counts.append(count)
        self._starts.append(start)
        self._between.append(between)

    def _own(self, name: str, values: Values) -> None:
        """Add values for the newest rows."""
        if values is not None:
            self._columns[name].add(values, len(self._sizes) - len(values))

    def _gather(self, more: Deferred | None) -> None:
        """Collect deferred data of one kind, and decode it when something else follows."""
        unread = self._unread
        if unread is not None and more is not None and _alike(unread, more):
            unread.raw.extend(more.raw)
            return
        if unread is not None:
            found = unread.read(unread.shared, unread.raw)
            before = len(self._sizes) - len(unread.raw)
            for name, values in zip(("id", "ttl", "fields"), found, strict=True):
                if values is not None:
                    self._columns[name].add(values, before)
        self._unread = more

    def batch(self) -> pa.RecordBatch:
        """The rows so far. Starts a new batch."""
        self._gather(None)
        counts = np.array(self._counts, np.int64)
        lengths = np.array(self._lengths, np.int64)
        sizes = np.array(self._sizes, np.int32)
        repeat = _Repeat(self._runs, counts)
        columns: dict[str, pa.Array] = {
            name: repeat.words(lambda run, at=index: run.source[at])  # type: ignore[misc]
            for index, name in enumerate(FrameSource._fields)
        }
        for name in ("type", "namespace", "queue", "code", "error"):
            columns[name] = repeat.words(lambda run, name=name: getattr(run, name))  # type: ignore[misc]
        columns["offset"] = pa.array(_offsets(counts, lengths, self._starts, self._between))
        columns["length"] = pa.array(lengths)
        columns["at"] = repeat.numbers(lambda run: run.at, pa.int64()).cast(_TIME)
        columns["retries"] = repeat.numbers(lambda run: run.retries, pa.int32())
        columns["payload_size"] = pa.array(sizes, mask=sizes < 0)
        for name in ("id", "opaque", "ttl", "payload"):
            columns[name] = self._column(name)
        columns["fields"] = self._fields(repeat)
        self._clear()
        return pa.RecordBatch.from_arrays([columns[name] for name in FRAMES.names], schema=FRAMES)

    def _column(self, name: str) -> pa.Array:
        found = self._columns[name].array(len(self))
        return pa.nulls(len(self), FRAMES.field(name).type) if found is None else found

    def _fields(self, repeat: _Repeat) -> pa.Array:
        shared, own = repeat.words(lambda run: run.fields), self._columns["fields"].array(len(self))
        if own is None or shared.null_count == len(shared):
            return shared if own is None else own
        return pc.coalesce(shared, own)


def _alike(first: Deferred, second: Deferred) -> bool:
    """Whether both can be decoded together: equally long first messages are a sufficient hint."""
    same = first.read is second.read and first.shared == second.shared
    return same and len(first.raw[0]) == len(second.raw[0])


class _Repeat:
    """Columns with one value for each run."""

    def __init__(self, runs: list[_SharedValues], counts: _Numbers) -> None:
        self._runs = runs
        self._counts = counts

    def words(self, value_of: Callable[[_SharedValues], str | None]) -> pa.Array:
        """A text column with few distinct values."""
        codes: dict[str | None, int] = {}
        numbers = np.array([codes.setdefault(value_of(run), len(codes)) for run in self._runs], np.int32)
        if len(codes) == 1:
            return pa.repeat(pa.scalar(next(iter(codes)), pa.string()), int(self._counts.sum()))
        return pa.array(list(codes), pa.string()).take(pa.array(np.repeat(numbers, self._counts)))

    def numbers(self, value_of: Callable[[_SharedValues], int | None], kind: pa.DataType) -> pa.Array:
        """A column of numbers."""
        values = pa.array(list(map(value_of, self._runs)), kind)
        if values.null_count == len(values):
            return pa.nulls(int(self._counts.sum()), kind)
        return values.take(pa.array(np.repeat(np.arange(len(values)), self._counts)))


def _offsets(counts: _Numbers, lengths: _Numbers, starts: list[int], between: list[int]) -> _Numbers:
    """The offset of each message: its run's start, and everything in between."""
    before = np.cumsum(lengths) - lengths
    firsts = np.cumsum(counts) - counts
    within = np.arange(len(lengths)) - np.repeat(firsts, counts)
    base = np.array(starts, np.int64) - before[firsts]
    offsets: _Numbers = before + np.repeat(base, counts) + within * np.repeat(np.array(between, np.int64), counts)
    return offsets


def error_text(error: WireError, base: int) -> str:
    """A decoder's error, with the offset in the whole stream."""
    return f"{error.protocol}: {error.reason} (at byte {error.offset + base})"
