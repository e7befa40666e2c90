"""Executors reduce events to sums by queue and step of time, and to the *moves* of messages. Pure: no Spark.

Sums depend on single events: messages in, out and returned, bytes, times to acknowledge, hosts. A move is an event that
puts a message somewhere else: it was published, removed, made a dead letter or redriven; or its queue was emptied. What
a move means for depths and times in queues depends on earlier events, which only the driver knows (``lives``).

All work is done on columns. A part of a batch becomes one row of two values, ``Partial`` and ``Moves`` as bytes, so a
batch is one stage without a shuffle.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.pipelines.insight.minutes import COUNTS, GROWTH, QueueKey, StepSums, finest

Array = npt.NDArray[Any]

#: The kinds of moves, by their numbers. From ``PURGED`` on they concern a whole queue.
MOVES = (
    "published", "redriven", "dead", "acknowledged", "popped", "dropped", "purged", "dead_purged", "queue_deleted",
)  # fmt: skip
PUBLISHED, REDRIVEN, DEAD, ACKNOWLEDGED, POPPED, DROPPED, PURGED, DEAD_PURGED, DELETED = range(len(MOVES))

_PORT = re.compile(r":\d+$")


class Moves(NamedTuple):
    """Moves of messages, one per row. Times are in microseconds; ``delivered`` is 0 without a delivery."""

    position: Array
    kind: Array
    message: Array
    at: Array
    delivered: Array
    queue: Array
    talker: Array
    #: Messages removed when a queue was emptied.
    emptied: Array

    def where(self, rows: Array) -> Moves:
        """These rows, in this order."""
        return Moves(*(column[rows] for column in self))


class PartialSums(msgspec.Struct, array_like=True):
    """The sums of a queue and a step: its index in the partial's ``queues``, and the number of steps since 1970."""

    queue: int
    step: int
    sums: StepSums


class Partial(msgspec.Struct, array_like=True):
    """A part of a batch: the number of events, their last position, first and last time, and the sums."""

    rows: int
    position: int
    first: int
    last: int
    #: Microseconds of a step.
    unit: int
    queues: list[tuple[str, str]]
    talkers: list[str]
    sums: list[PartialSums]


def encode(partial: Partial, moves: Moves) -> tuple[bytes, bytes]:
    """Serialise a part."""
    batch = pa.record_batch(list(moves), names=list(Moves._fields))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return msgspec.msgpack.encode(partial), sink.getvalue().to_pybytes()


def decode(partial: bytes, moves: bytes) -> tuple[Partial, Moves]:
    """Deserialise a part."""
    table = pa.ipc.open_stream(moves).read_all()
    return msgspec.msgpack.decode(partial, type=Partial), Moves(*(column.to_numpy() for column in table.columns))


def add_up(events: pa.Table, since: int, unit: int) -> tuple[Partial, Moves]:
    """Reduce events, in steps of ``unit`` or coarser ones. Times before ``since`` count as ``since``."""
    at = np.maximum(_numbers(events, "at"), since)
    known = pc.fill_null(pc.not_equal(events.column("queue"), ""), False)
    positions = _numbers(events, "position")
    unit = max(unit, finest(int(at.max()) - int(at.min())))
    part = _Part(events.filter(known), at[known.to_numpy()], unit)
    queues = [tuple(each.split("\0")) for each in part.queues]
    ends = int(positions.max()), int(at.min()), int(at.max())
    partial = Partial(events.num_rows, *ends, unit, queues, part.talkers, [])  # type: ignore[arg-type]
    found: defaultdict[tuple[int, int], StepSums] = defaultdict(StepSums.empty)
    part.add_counts(found)
    part.add_reasons(found)
    part.add_talkers(found)
    part.add_durations(found)
    partial.sums = [PartialSums(*key, sums) for key, sums in found.items()]
    return partial, part.moves()


class _Part:
    """Events with their columns coded as numbers."""

    def __init__(self, events: pa.Table, at: Array, unit: int) -> None:
        self._events = events
        self._at = at
        self._step = at // unit
        names = pc.binary_join_element_wise(events.column("namespace"), events.column("queue"), "\0")
        self._queue, self.queues = _coded(names)
        self._kind, self._kinds = _coded(events.column("kind"))
        protocol, protocols = _coded(events.column("protocol"))
        peer, peers = _coded(events.column("peer"))
        both, which = np.unique(protocol * max(1, len(peers)) + peer, return_inverse=True)
        names = [f"{protocols[each // len(peers)]} {_PORT.sub('', peers[each % len(peers)])}" for each in both.tolist()]
        self.talkers = sorted(set(names))
        numbers = {name: number for number, name in enumerate(self.talkers)}
        self._talker = np.array([numbers[name] for name in names], np.int64)[which]
        self._delivered = _numbers(events, "delivered_at")
        self._count = _numbers(events, "count")

    def _is(self, *kinds: str) -> Array:
        return np.isin(self._kind, [number for number, name in enumerate(self._kinds) if name in kinds])

    def add_counts(self, found: dict[tuple[int, int], StepSums]) -> None:
        """Add ``COUNTS`` by queue and step."""
        expired = pc.fill_null(pc.equal(self._events.column("reason"), "expired"), False)
        again = (self._delivered != 0) & (_numbers(self._events, "deliveries") > 1)
        kinds = ("published", "acknowledged", "popped", "dead", "redriven", "dropped")
        columns = {name: self._is(name) for name in kinds}
        columns |= {
            "bytes_in": _numbers(self._events, "payload_size"),
            "redelivered": again,
            "returned": self._is("returned", "requeued"),
            "expired": self._is("dead", "dropped") & expired.to_numpy(),
            "purged": np.where(self._is("purged", "dead_purged"), self._count, 0),
        }
        keys, which = groups(self._queue, self._step)
        sums = {name: summed(which, columns[name], len(keys)) for name in COUNTS}
        for number, key in enumerate(keys):
            found[key].counts = {name: value for name in COUNTS if (value := int(sums[name][number]))}

    def add_reasons(self, found: dict[tuple[int, int], StepSums]) -> None:
        """Add dead letters by reason."""
        rows = self._is("dead")
        reason, reasons = _coded(self._events.column("reason"))
        keys, which = groups(self._queue[rows], self._step[rows], reason[rows])
        for (queue, step, number), count in zip(keys, summed(which, None, len(keys)).tolist(), strict=True):
            found[queue, step].reasons[reasons[number]] = count

    def add_talkers(self, found: dict[tuple[int, int], StepSums]) -> None:
        """Add traffic by host. ``taken`` includes dead letters, which the driver subtracts."""
        published, taken = self._is("published"), self._is("acknowledged", "popped")
        rows = published | taken
        keys, which = groups(self._queue[rows], self._step[rows], self._talker[rows])
        columns = published, _numbers(self._events, "payload_size"), taken
        sums = [summed(which, column[rows], len(keys)).tolist() for column in columns]
        for (queue, step, talker), *values in zip(keys, *sums, strict=True):
            found[queue, step].talkers[self.talkers[talker]] = values

    def add_durations(self, found: dict[tuple[int, int], StepSums]) -> None:
        """Add times from delivery to acknowledgement."""
        rows = self._is("acknowledged") & (self._delivered != 0)
        lasted = buckets(self._at[rows] - self._delivered[rows])
        keys, which = groups(self._queue[rows], self._step[rows], lasted)
        for (queue, step, number), count in zip(keys, summed(which, None, len(keys)).tolist(), strict=True):
            found[queue, step].to_acknowledge[number] = count

    def moves(self) -> Moves:
        """The moves among the events."""
        number = np.array([MOVES.index(name) if name in MOVES else -1 for name in self._kinds] or [-1], np.int8)
        kind = number[self._kind]
        whole = Moves(
            _numbers(self._events, "position"), kind, _numbers(self._events, "message"), self._at, self._delivered,
            self._queue.astype(np.int32), self._talker.astype(np.int32), self._count,
        )  # fmt: skip
        return whole.where(np.flatnonzero(kind >= 0))


def _numbers(events: pa.Table, name: str) -> Array:
    """A column of numbers, with 0 for null."""
    found: Array = pc.fill_null(events.column(name).cast(pa.int64()), 0).to_numpy()
    return found


def _coded(column: pa.ChunkedArray) -> tuple[Array, list[str]]:
    """A text column as codes, and the texts of the codes. Null is an empty text."""
    found = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()


def groups(*columns: Array) -> tuple[list[Any], Array]:
    """The distinct rows of these columns, as tuples, and the index of each row among them."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        key = key * max(1, len(values)) + inverse
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), which


def summed(which: Array, values: Array | None, size: int) -> Array:
    """The sum of each group's values; without values, its number of rows."""
    if values is None:
        return np.bincount(which, minlength=size)
    found = np.zeros(size, np.int64)
    np.add.at(found, which, values.astype(np.int64))
    return found


def buckets(microseconds: Array) -> Array:
    """The bucket of each duration; ``minutes.duration`` is the inverse."""
    longer = np.maximum(microseconds, 1).astype(np.float64)
    return np.ceil(np.log(longer) / math.log(GROWTH)).astype(np.int64)


def gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterable[pa.Table]:
    """Record batches combined into tables of at least this many rows."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def joined(parts: Sequence[tuple[Partial, Moves]]) -> tuple[list[QueueKey], list[str], Moves]:
    """The moves of all parts, by position, with common numbers for queues and talkers."""
    queues: dict[QueueKey, int] = {}
    talkers: dict[str, int] = {}
    found = []
    for partial, moves in parts:
        queue = np.array([queues.setdefault(QueueKey(*each), len(queues)) for each in partial.queues], np.int64)
        talker = np.array([talkers.setdefault(each, len(talkers)) for each in partial.talkers], np.int64)
        found.append(moves._replace(queue=queue[moves.queue], talker=talker[moves.talker]))
    whole = Moves(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
    return list(queues), list(talkers), whole.where(np.argsort(whole.position, kind="stable"))
