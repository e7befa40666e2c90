"""The table of frames: what a capture held, column by column. Pure: no Spark.

A decoder's frames are runs of like messages. What the messages of a run share is kept once and multiplied at the end by
numpy; what each has of its own goes into flat lists. So a row costs a few list entries and no object of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from operator import countOf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from penstock.wire import kokaq, phpmq, sspq
from penstock.wire.kokaq.fields import KNOWN, TAGS
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
#: Rows after which a record batch is made.
BATCH_ROWS = 16_384
#: Payload bytes after which one is made, when payloads are kept.
BATCH_BYTES = 32 * 2**20
#: From so many deliveries on, their metadata is read all at once; that costs as much as a few of them one by one.
MANY = 32


class FrameSource(NamedTuple):
    """Where frames come from: the first four columns. All but ``file`` may be unknown."""

    file: str
    stream: str | None = None
    protocol: str | None = None
    direction: str | None = None


class _FrameRun(NamedTuple):
    """What the messages of a run share: an entry of each of the repeated columns."""

    source: FrameSource
    at: int | None
    type: str | None
    namespace: str | None
    queue: str | None
    retries: int | None
    fields: str | None
    code: str | None
    error: str | None


#: Columns in which each message has a value of its own.
_OWN = ("id", "opaque", "ttl", "payload", "fields")
_Values: TypeAlias = "Sequence[Any] | pa.Array | None"


class _Metadata(NamedTuple):
    """The metadata of deliveries, as it stands on the wire, and the beginning of their ``fields``."""

    shared: str
    raw: list[bytes]


class FrameRows(NamedTuple):
    """What one frame is as rows. Lists and arrays have one value for each message; None is null for all."""

    type: str
    messages: int
    payloads: Sequence[bytes] | None = None
    namespace: str | None = None
    queue: str | None = None
    ids: _Values = None
    opaques: _Values = None
    ttl: int | _Values = None
    retries: int | None = None
    fields: str | _Values = None
    #: In place of ids, ttl and fields.
    metadata: _Metadata | None = None


class _Column:
    """A column that gets values now and then. Single values wait in a list until there is an array to go before."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._arrays: list[pa.Array] = []
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, values: Sequence[Any] | pa.Array, before: int) -> None:
        """Values of the rows from ``before`` on. Rows that got none are null."""
        self._pad(before)
        if isinstance(values, pa.Array):
            self._settle()
            self._arrays.append(values)
        else:
            self._waiting += values
        self._rows += len(values)

    def array(self, rows: int) -> pa.Array | None:
        """The whole column, or None if there was no value at all."""
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
    """Gathers rows and makes record batches of them."""

    def __init__(self, *, payloads: bool = False) -> None:
        self._payloads = payloads
        self._clear()

    def _clear(self) -> None:
        self._runs: list[_FrameRun] = []
        self._counts: list[int] = []
        self._starts: list[int] = []
        self._between: list[int] = []
        self._lengths: list[int] = []
        self._sizes: list[int] = []
        self._unread = _Metadata("", [])
        self._columns = {name: _Column(FRAMES.field(name).type) for name in _OWN}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def full(self) -> bool:
        """Whether it is time for a batch."""
        return len(self._lengths) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, source: FrameSource, at: int | None, rows: FrameRows, place: Place) -> None:
        """Add the messages of a frame."""
        self._gather(rows.metadata)
        fields = rows.fields if isinstance(rows.fields, str) else None
        shared = _FrameRun(source, at, rows.type, rows.namespace, rows.queue, rows.retries, fields, None, None)
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
        """Add a row for what could not be read: ``length`` bytes at ``offset``."""
        self._gather(None)
        self._add_run(_FrameRun(source, at, None, None, None, None, None, code, text), 1, offset, 0)
        self._lengths.append(length)
        self._sizes.append(-1)

    def _add_run(self, shared: _FrameRun, count: int, start: int, between: int) -> None:
        self._runs.append(shared)
        self._counts.append(count)
        self._starts.append(start)
        self._between.append(between)

    def _own(self, name: str, values: _Values) -> None:
        """Values of the rows just added."""
        if values is not None:
            self._columns[name].add(values, len(self._sizes) - len(values))

    def _gather(self, more: _Metadata | None) -> None:
        """Keep metadata until there is much of it, or something else comes: it is best read in large pieces."""
        unread = self._unread
        if more is not None and more.shared == unread.shared and len(more.raw[0]) == len(unread.raw[0]):
            unread.raw.extend(more.raw)
            return
        if unread.raw:
            found = _alike(*unread) or _one_by_one(*unread)
            before = len(self._sizes) - len(unread.raw)
            for name, values in zip(("id", "ttl", "fields"), found, strict=True):
                if values is not None:
                    self._columns[name].add(values, before)
        self._unread = more or _Metadata("", [])

    def batch(self) -> pa.RecordBatch:
        """The rows so far, which are then forgotten."""
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


class _Repeat:
    """Columns of which each run has one value."""

    def __init__(self, runs: list[_FrameRun], counts: _Numbers) -> None:
        self._runs = runs
        self._counts = counts

    def words(self, value_of: Callable[[_FrameRun], str | None]) -> pa.Array:
        """A text column of few different values."""
        codes: dict[str | None, int] = {}
        numbers = np.array([codes.setdefault(value_of(run), len(codes)) for run in self._runs], np.int32)
        if len(codes) == 1:
            return pa.repeat(pa.scalar(next(iter(codes)), pa.string()), int(self._counts.sum()))
        return pa.array(list(codes), pa.string()).take(pa.array(np.repeat(numbers, self._counts)))

    def numbers(self, value_of: Callable[[_FrameRun], int | None], kind: pa.DataType) -> pa.Array:
        """A column of numbers."""
        values = pa.array(list(map(value_of, self._runs)), kind)
        if values.null_count == len(values):
            return pa.nulls(int(self._counts.sum()), kind)
        return values.take(pa.array(np.repeat(np.arange(len(values)), self._counts)))


def _offsets(
    counts: _Numbers,
    lengths: _Numbers,
    starts: list[int],
    between: list[int],
) -> _Numbers:
    """Where each message begins: its run's start, and all that lies between."""
    before = np.cumsum(lengths) - lengths
    firsts = np.cumsum(counts) - counts
    within = np.arange(len(lengths)) - np.repeat(firsts, counts)
    base = np.array(starts, np.int64) - before[firsts]
    offsets: _Numbers = before + np.repeat(base, counts) + within * np.repeat(np.array(between, np.int64), counts)
    return offsets


# ---------------------------------------------------------------------------------------------------- frames to rows


def sspq_rows(frame: sspq.SspqFrame) -> FrameRows:
    """An SSPQ frame."""
    match frame:
        case sspq.Send(retries, payloads):
            return FrameRows("SEND", len(payloads), payloads, retries=retries)
        case sspq.Other(kind):
            return FrameRows("OTHER", 1, fields=json.dumps({"kind": kind}))
    return FrameRows(_SSPQ_NAMES[type(frame)], 1)


_SSPQ_NAMES: dict[type, str] = {
    sspq.Receive: "RECEIVE",
    sspq.Confirm: "CONFIRM",
    sspq.DeadReceive: "DEAD_RECEIVE",
    sspq.NoReceive: "NO_RECEIVE",
}


def phpmq_rows(frame: phpmq.PhpmqFrame) -> FrameRows:
    """A PHPMQ frame."""
    match frame:
        case phpmq.Publish(queue, payloads, ttl):
            return FrameRows("PUBLISH", len(payloads), payloads, queue=queue, ttl=ttl)
        case phpmq.Dispatch(queue, ids, payloads, ttls):
            return FrameRows("DISPATCH", len(ids), payloads, queue=queue, ids=ids, ttl=ttls)
        case phpmq.Acknowledge(queue, ids):
            return FrameRows("ACKNOWLEDGE", len(ids), queue=queue, ids=ids)
        case phpmq.Reject(queue, ids):
            return FrameRows("REJECT", len(ids), queue=queue, ids=ids)
        case phpmq.Requeue(queue, each, ttl):
            return FrameRows("REQUEUE", 1, queue=queue, ids=[each], ttl=ttl)
        case phpmq.Consume(queue, count):
            return FrameRows("CONSUME", 1, queue=queue, fields=json.dumps({"count": count}))


def kokaq_rows(frame: kokaq.KokaqRequest | kokaq.KokaqResponse) -> FrameRows:
    """A Kokaq frame. The names of types are those of the opcodes; what is no column is in ``fields``."""
    match frame:
        case kokaq.Pushes():
            fields = _json(
                {"message_type": frame.message_type.name, "two_way": frame.two_way, "client": frame.client or None}
            )
            return FrameRows(
                "PUSH", len(frame.payloads), frame.payloads, frame.namespace, frame.queue, None, frame.opaques, None,
                None, fields,
            )  # fmt: skip
        case kokaq.Pushed():
            fields = _json({"message_type": frame.message_type.name, "status": "SUCCESS", "reason": "OK"})
            return FrameRows("PUSH", len(frame.uuids), ids=frame.uuids, opaques=frame.opaques, fields=fields)
        case kokaq.Deliveries():
            return _deliveries(frame)
    return _kokaq_single(frame)


def _deliveries(frame: kokaq.Deliveries) -> FrameRows:
    shared = _json({"message_type": frame.message_type.name, "status": "SUCCESS", "reason": "OK"})[:-1]
    return FrameRows(
        _opcode(frame.opcode), len(frame.payloads), frame.payloads, frame.namespace, frame.queue,
        opaques=frame.opaques, metadata=_Metadata(shared, [*frame.metadata.raw]),
    )  # fmt: skip


class _Fields(NamedTuple):
    """The metadata of a run of deliveries: what has a column of its own, and the rest as JSON. None: null for all."""

    uuids: _Values
    ttls: _Values
    fields: _Values


def _one_by_one(shared: str, raw: list[bytes]) -> _Fields:
    metadata = list(kokaq.MetadataRun(tuple(raw)))
    texts = [_json(_known(each))[1:] for each in metadata]
    fields = [f"{shared}, {text}" if len(text) > 1 else f"{shared}}}" for text in texts]
    return _Fields([each.uuid for each in metadata], [each.time_to_live for each in metadata], fields)


def _alike(shared: str, raw: list[bytes]) -> _Fields | None:
    """The same, all at once, for metadata of one shape that has only integers and identifiers; None for any other."""
    if len(raw) < MANY or countOf(map(len, raw), len(raw[0])) < len(raw) or (heads := _heads(raw[0])) is None:
        return None
    table = np.frombuffer(b"".join(raw), np.uint8).reshape(len(raw), -1)
    places = [0, 1, 2, 3] + [at + byte for at, _, _ in heads for byte in (-2, -1)]
    if (table[:, places] != table[0, places]).any():
        return None
    uuids = ttls = None
    text, texts = shared, []
    for at, size, name in heads:
        value = np.ascontiguousarray(table[:, at : at + size])
        if name == "uuid":
            uuids = _fixed(value.tobytes(), size, pa.binary())
        elif name == "time_to_live":
            ttls = pa.array(value.view(f">u{size}").ravel().astype(np.int64))
        elif size == 16:
            texts += [f'{text}, "{name}": "', _fixed(value.tobytes().hex().encode(), 2 * size, pa.string())]
            text = '"'
        else:
            number = pa.array(value.view(f">u{size}").ravel().astype(f"u{size}"))
            texts += [f'{text}, "{name}": ', number.cast(pa.string())]
            text = ""
    if not texts:
        return _Fields(uuids, ttls, [f"{shared}}}"] * len(raw))
    return _Fields(uuids, ttls, pc.binary_join_element_wise(*texts, f"{text}}}", ""))


def _fixed(joined: bytes, size: int, kind: pa.DataType) -> pa.Array:
    """An array of values that are all of one size."""
    count = len(joined) // size
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(size))
    return pa.Array.from_buffers(kind, count, [None, offsets, pa.py_buffer(joined)])


def _heads(raw: bytes) -> list[tuple[int, int, str]] | None:
    """Where each field's value is in metadata, its size and its name; None if a field is no integer of ours or ID."""
    found = []
    at = 6
    while at <= len(raw):
        tag, size = raw[at - 2 : at]
        known = KNOWN.get(tag)
        if known is None or (size != known.width if known.width else known.text or known.name == "correlation_id"):
            return None
        found.append((at, size, known.name))
        at += size + 2
    return sorted(found, key=lambda head: list(TAGS).index(head[2]))


def _kokaq_single(frame: kokaq.Request | kokaq.Response) -> FrameRows:
    fields: dict[str, Any] = {"message_type": frame.message_type.name}
    if isinstance(frame, kokaq.Request):
        fields |= {"two_way": frame.two_way, "client": frame.client or None}
    else:
        fields |= {"status": _named(kokaq.Status, frame.status), "reason": _named(kokaq.Reason, frame.reason)}
    metadata = frame.metadata or kokaq.Metadata()
    fields |= {"problem": frame.problem, **_known(metadata)}
    operation = frame.operation if isinstance(frame, kokaq.Request) else None
    return FrameRows(
        operation.name if operation is not None else _opcode(frame.opcode), 1,
        None if frame.payload is None else [frame.payload], frame.namespace, frame.queue,
        None if metadata.uuid is None else [metadata.uuid], [frame.opaque], metadata.time_to_live, None, _json(fields),
    )  # fmt: skip


def _known(metadata: kokaq.Metadata) -> dict[str, Any]:
    """The fields that are there and have no column of their own."""
    found = {name: value for name, value in structs.asdict(metadata).items() if value is not None}
    for name in ("uuid", "time_to_live"):
        found.pop(name, None)
    others = found.pop("others")
    if others:
        found["others"] = {f"0x{field.tag:02x}": field.value for field in others}
    return found


def _json(fields: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in fields.items() if value is not None}, default=bytes.hex)


def _opcode(number: int) -> str:
    return _named(kokaq.Opcode, number)


def _named(numbers: Iterable[Any], number: int) -> str:
    return next((each.name for each in numbers if each == number), f"0x{number:02x}")


def error_text(error: WireError, base: int) -> str:
    """What a decoder complains about, with the offset in the whole stream."""
    return f"{error.protocol}: {error.reason} (at byte {error.offset + base})"
