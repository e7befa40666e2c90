"""The journal as Arrow record batches: for Spark, pandas, polars, DuckDB.

Two views, with Spark's own types (no ``large_binary``, no unsigned numbers, no dictionaries), so that Spark can use a
batch as it is:

* ``messages``: published messages. One row per message, the same at every re-read, even after the message is gone.
* ``events``: the life of every message, and of the queues. Copies made by compaction, and catalogues, are left out.

Nothing works message by message: a column of a batch takes a few numpy or Arrow calls over the columns of its blocks.
The payloads of a large block are not even copied: the batch points into the mapped file. Other columns than requested
are not read. So a block's checksum, which covers the payloads, is only checked when payloads are requested; headers and
offsets, which could lead a reader astray, always are. docs/journal.md describes the columns.

This module and ``placed`` are the only ones here that need pyarrow (``pip install penstock[arrow]``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.journal.contract import BlockReader
from penstock.journal.errors import JournalDamaged
from penstock.journal.format.block import Block, BlockError
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views.merge import merged
from penstock.journal.views.selection import Piece, Queues, Selection, groups
from penstock.schema import COLUMN, FOREVER, Kind, Reason, Rows

#: The largest number of rows in a batch. Larger ones are sliced, without a copy.
MOST_ROWS = 65_536

_TIME = pa.timestamp("us", tz="UTC")
#: A priority is an unsigned 64-bit number, for which Spark has no integer type.
_PRIORITY = pa.decimal128(20, 0)

MESSAGES = pa.schema(
    {
        "position": pa.int64(),
        "id": pa.binary(),
        "namespace": pa.string(),
        "queue": pa.string(),
        "payload": pa.binary(),
        "published_at": _TIME,
        "expires_at": _TIME,
        "priority": _PRIORITY,
        "retries": pa.int32(),
        "protocol": pa.string(),
        "correlation_id": pa.binary(),
        "request_id": pa.binary(),
        "source_info": pa.string(),
    }
)
EVENTS = pa.schema(
    {
        "position": pa.int64(),
        "kind": pa.string(),
        "at": _TIME,
        "message_id": pa.binary(),
        "namespace": pa.string(),
        "queue": pa.string(),
        "deliveries": pa.int64(),
        "delivered_at": _TIME,
        "reason": pa.string(),
        "protocol": pa.string(),
        "peer": pa.string(),
        "payload_size": pa.int32(),
        "message": pa.int64(),
        "count": pa.int64(),
    }
)
SCHEMAS = {"messages": MESSAGES, "events": EVENTS}

Array = npt.NDArray[Any]


def schema(view: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of a view, or of some of its columns in the given order. Raises ValueError for unknown ones."""
    if view not in SCHEMAS:
        raise ValueError(f"there is no view {view!r}: choose one of {', '.join(SCHEMAS)}")
    whole = SCHEMAS[view]
    if columns is None:
        return whole
    unknown = [name for name in columns if name not in whole.names]
    if unknown:
        raise ValueError(f"{view} has no column {', '.join(unknown)}; it has {', '.join(whole.names)}")
    return pa.schema([whole.field(name) for name in columns])


def read(
    reader: BlockReader,
    view: str,
    start: int,
    stop: int | None = None,
    *,
    queues: Queues = None,
    columns: Sequence[str] | None = None,
    accept_loss: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows of a view between two positions, in order. Without ``stop``, up to the last committed event.

    ``queues`` are numbers, or a function that selects names. Blocks are combined until a batch has 8,192 rows, or 512
    rows and 8 MiB of payloads; a batch has at most 65,536 rows and 64 MiB of payloads. The range is checked before the
    first batch is built: raises the errors of the reader's ``read``.
    """
    wanted = schema(view, columns)
    stop = reader.latest if stop is None else stop
    blocks = reader.read(start, stop, verify="payload" in wanted.names, accept_loss=accept_loss)
    selection = Selection(start, stop, queues, messages=view == "messages")
    pieces = (piece for found in merged(blocks) if (piece := selection.piece(found)) is not None)
    return _batches(reader, wanted, view, groups(pieces, payloads="payload" in wanted.names))


def _batches(
    reader: BlockReader, wanted: pa.Schema, view: str, grouped: Iterable[list[Piece]]
) -> Iterator[pa.RecordBatch]:
    builders = MESSAGE_COLUMNS if view == "messages" else _EVENT_COLUMNS
    repeats = Repeats()
    for group in grouped:
        rows = Group(group, reader.identity, repeats)
        try:
            arrays = [builders[name](rows) for name in wanted.names]
        except BlockError as error:
            extent = group[0].extent.name
            lost = (group[0].block.first, group[-1].block.end)
            raise JournalDamaged(reader.where, extent, error.offset, lost, error.reason) from None
        batch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
        for at in range(0, batch.num_rows, MOST_ROWS):
            yield batch.slice(at, MOST_ROWS)


class Repeats:
    """Caches constant columns for the next batches, which mostly have the same value."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, pa.Array]] = {}

    def get(self, name: str, value: object, kind: pa.DataType, count: int) -> pa.Array:
        """A column of ``count`` equal values. Only the latest value of each column is cached."""
        kept = self._kept.get(name)
        if kept is None or kept[0] != value or len(kept[1]) < count:
            kept = self._kept[name] = (value, pa.repeat(pa.scalar(value, kind), count))
        return kept[1].slice(0, count)


class Group:
    """The rows of one batch, with the values that several columns share."""

    def __init__(self, pieces: list[Piece], identity: int, repeats: Repeats) -> None:
        self.pieces = pieces
        self.identity = identity
        self.count = sum(len(piece.rows) for piece in pieces)
        self._repeats = repeats

    def join(self, parts: Callable[[Piece], Array]) -> Array:
        """Concatenate one array per piece."""
        arrays = [parts(piece) for piece in self.pieces]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def any_has(self, name: str) -> bool:
        """Whether any block stores a column, whose values are otherwise its default."""
        return any(piece.block.has(name) for piece in self.pieces)

    def numbers(self, name: str) -> Array:
        """A column of the journal for our rows, with its default on rows that do not have it."""
        return self.join(lambda piece: _spread(piece, name))

    def kinds(self) -> Array:
        """The kind of each row."""
        return self.join(lambda piece: piece.block.kinds[piece.rows])

    @cached_property
    def positions(self) -> Array:
        """The position of each row."""
        first, end = self.pieces[0].block.first, self.pieces[-1].block.end
        if end - first == self.count and all(piece.whole for piece in self.pieces):
            return np.arange(first, end)
        return self.join(lambda piece: piece.rows + piece.block.first)

    def binary(self, name: str) -> pa.Array:
        """A binary column of message rows. All our rows must be message rows."""
        parts = [_binary(piece, name) for piece in self.pieces]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def repeated(self, name: str, value: object, kind: pa.DataType) -> pa.Array:
        """A column of a view with one value for all our rows."""
        return self._repeats.get(name, value, kind, self.count)

    def words(
        self, name: str, code: Callable[[Piece, dict[Any, int]], Array], text: Callable[[Any], str | None]
    ) -> pa.Array:
        """A text column with few distinct values: ``code`` numbers them, adding new ones, ``text`` spells them."""
        values: dict[Any, int] = {}
        codes = [code(piece, values) for piece in self.pieces]
        words = [text(value) for value in values]
        if len(words) == 1:
            return self.repeated(name, words[0], pa.string())
        return _look_up(words, np.concatenate(codes))


# ---------------------------------------------------------------------------------------------- columns of the journal


def _index(piece: Piece, name: str) -> Array | slice:
    """The indices of the piece's rows in a column that only message rows, or only other rows, have."""
    block = piece.block
    if piece.whole and block.rows(name) == block.count:
        return slice(None)
    sort = block.message_rows() if COLUMN[name].rows is Rows.MESSAGES else block.other_rows()
    if len(sort) == len(piece.rows):
        return slice(None)
    return np.searchsorted(sort, piece.rows)


def _spread(piece: Piece, name: str) -> Array:
    block, column = piece.block, COLUMN[name]
    if not block.has(name):
        return np.full(len(piece.rows), column.default, np.int64 if column.type == "q" else np.uint64)
    values = block.column(name)
    if len(values) == block.count:
        return _rows_of(values, piece)
    whole = np.full(block.count, column.default, values.dtype)
    whole[block.message_rows() if column.rows is Rows.MESSAGES else block.other_rows()] = values
    return whole[piece.rows]


def _offsets(block: Block, name: str) -> tuple[Array, memoryview]:
    """A binary column, its offsets checked, since the block's checksum may not have been."""
    offsets, data = block.binary(name)
    if offsets[0] or (offsets[1:] < offsets[:-1]).any():
        raise BlockError(block.offset, f"the offsets of column {name} are out of order")
    return offsets, data


def _binary(piece: Piece, name: str) -> pa.Array:
    block = piece.block
    if not block.has(name):
        return pa.repeat(pa.scalar(b""), len(piece.rows))
    offsets, data = _offsets(block, name)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    whole = pa.Array.from_buffers(pa.binary(), block.messages, buffers)
    index = _index(piece, name)
    if isinstance(index, slice):
        return whole
    if index[-1] - index[0] == len(index) - 1:
        return whole.slice(index[0], len(index))
    return whole.take(pa.array(index))


def piece_sizes(piece: Piece) -> Array:
    """The payload size per row; -1 on rows without a message."""
    sizes = np.full(piece.block.count, -1, np.int32)
    sizes[piece.block.message_rows()] = np.diff(_offsets(piece.block, "payload")[0])
    return sizes[piece.rows]


# ---------------------------------------------------------------------------------------------------- columns of views


def _position(group: Group) -> pa.Array:
    return pa.array(group.positions.astype(np.int64, copy=False))


def timed(values: Array, missing: Array | None = None) -> pa.Array:
    """Times from microseconds since 1970."""
    return pa.array(values.astype(np.int64, copy=False), mask=missing).view(_TIME)


def _at(group: Group) -> pa.Array:
    return timed(
        group.join(lambda piece: _rows_of(piece.block.column("at"), piece).astype(np.int64) + piece.block.base)
    )


def _nullable_time(name: str) -> Callable[[Group], pa.Array]:
    def build(group: Group) -> pa.Array:
        if not group.any_has(name):
            return pa.nulls(group.count, _TIME)
        values = group.numbers(name)
        return timed(values, values == 0)

    return build


def ids(identity: int, positions: Array, missing: Array | None = None) -> pa.Array:
    """Message IDs of 16 bytes: the journal's identity and the position, both big-endian."""
    raw = np.empty((len(positions), 2), ">u8")
    raw[:, 0] = identity
    raw[:, 1] = positions
    made = pa.Array.from_buffers(pa.binary(16), len(positions), [None, pa.py_buffer(raw)]).cast(pa.binary())
    return made if missing is None else pc.if_else(pa.array(missing), pa.scalar(None, pa.binary()), made)


def _id(group: Group) -> pa.Array:
    made = ids(group.identity, group.positions)
    if not group.any_has("asked_id"):
        return made
    asked = group.binary("asked_id")
    return pc.if_else(pc.greater(pc.binary_length(asked), 0), asked, made)


def _message(group: Group) -> Array:
    """The position of each row's message; 0 for none."""
    own = group.kinds() == Kind.PUBLISHED
    return np.where(own, group.positions.astype(np.uint64), group.numbers("message")).astype(np.int64)


def _message_position(group: Group) -> pa.Array:
    positions = _message(group)
    return pa.array(positions, mask=positions == 0)


def _message_id(group: Group) -> pa.Array:
    positions = _message(group)
    return ids(group.identity, positions, positions == 0)


def _priority(group: Group) -> pa.Array:
    if not group.any_has("priority"):
        return group.repeated("priority", Decimal(0), _PRIORITY)
    raw = np.zeros((group.count, 2), np.uint64)
    raw[:, 0] = group.numbers("priority")
    return pa.Array.from_buffers(_PRIORITY, group.count, [None, pa.py_buffer(raw)])


def _retries(group: Group) -> pa.Array:
    if not group.any_has("retries"):
        return pa.nulls(group.count, pa.int32())
    values = group.numbers("retries").astype(np.int32)
    return pa.array(values, mask=values == FOREVER)


def _text_or_none(name: str) -> Callable[[Group], pa.Array]:
    """Byte strings of message rows; empty ones become null."""

    def build(group: Group) -> pa.Array:
        if not group.any_has(name):
            return pa.nulls(group.count, pa.binary())
        values = group.binary(name)
        return pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, pa.binary()), values)

    return build


def _source_info(group: Group) -> pa.Array:
    """The publishers' source info. It was valid UTF-8 when it arrived, but the block may be damaged and unchecked."""
    values = _text_or_none("source_info")(group)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise BlockError(0, "a Source Info is not UTF-8") from None


def _look_up(words: list[str | None], codes: Array) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(codes))


def _spelled(numbers: Array, words: list[str | None]) -> pa.Array:
    if int(numbers.max(initial=0)) >= len(words):
        raise BlockError(0, f"{int(numbers.max())} has no meaning")
    return _look_up(words, numbers) if len(words) > 1 else pa.nulls(len(numbers), pa.string())


def spellings(kinds: type[Kind] | type[Reason]) -> list[str | None]:
    """The word for each number; None for 0 and for unused numbers."""
    words: list[str | None] = [None] * (max(kinds) + 1)
    for each in kinds:
        words[each] = each.name.lower() if each else None
    return words


_KIND_WORDS, _REASON_WORDS = spellings(Kind), spellings(Reason)


def _codes(numbers: Array, values: dict[Any, int], value_of: Callable[[int], Any]) -> Array:
    """Map the numbers of one block to numbers that are valid for the whole batch."""
    if not numbers.strides[0] or len(numbers) == 1:
        only = values.setdefault(value_of(int(numbers[0])), len(values))
        return np.full(len(numbers), only, np.int32)
    distinct, inverse = np.unique(numbers, return_inverse=True)
    codes = [values.setdefault(value_of(number), len(values)) for number in distinct.tolist()]
    return np.array(codes, np.int32)[inverse]


def _queue_codes(piece: Piece, values: dict[Any, int]) -> Array:
    return _codes(_rows_of(piece.block.queues, piece), values, lambda number: piece.name_of(number) if number else None)


def _namespace_codes(piece: Piece, values: dict[Any, int]) -> Array:
    """The codes of the queues' namespaces; rows about a namespace store its name in their detail."""
    codes = _queue_codes(piece, values)
    if not piece.block.has("detail"):
        return codes
    kinds = piece.block.kinds[piece.rows]
    for at in np.flatnonzero((kinds == Kind.NAMESPACE_CREATED) | (kinds == Kind.NAMESPACE_DELETED)).tolist():
        other = int(np.searchsorted(piece.block.other_rows(), piece.rows[at]))
        name = bytes(piece.block.value("detail", other)).decode("utf-8", "replace")
        codes[at] = values.setdefault(QueueName(name, ""), len(values))
    return codes


def _source_codes(piece: Piece, values: dict[Any, int]) -> Array:
    sources = piece.block.sources or [b""]

    def source(number: int) -> bytes:
        if number >= len(sources):
            raise BlockError(piece.block.offset, "a row has a source that is not there")
        return sources[number]

    return _codes(_rows_of(piece.block.source, piece), values, source)


def _rows_of(column: Array, piece: Piece) -> Array:
    """The piece's part of a column of all rows. A constant column keeps its stride of 0."""
    return column[: len(piece.rows)] if piece.whole or not column.strides[0] else column[piece.rows]


def _namespace(group: Group) -> pa.Array:
    return group.words("namespace", _namespace_codes, lambda name: name and name.namespace)


def _queue(group: Group) -> pa.Array:
    return group.words("queue", _queue_codes, lambda name: name and name.queue)


def _protocol(group: Group) -> pa.Array:
    return group.words("protocol", _source_codes, lambda source: _spell(source.partition(b" ")[0]))


def _peer(group: Group) -> pa.Array:
    return group.words("peer", _source_codes, lambda source: _spell(source.partition(b" ")[2]))


def _spell(word: bytes) -> str | None:
    return word.decode("utf-8", "replace") or None


_WITH_DELIVERIES = [Kind.RETURNED, Kind.REQUEUED, Kind.DEAD, Kind.ACKNOWLEDGED, Kind.POPPED, Kind.DROPPED]
_WITH_COUNT = [Kind.PURGED, Kind.DEAD_PURGED, Kind.LEASED, Kind.LEASE_ENDED, Kind.WRITTEN]


def _only_for(name: str, kinds: list[Kind]) -> Callable[[Group], pa.Array]:
    def build(group: Group) -> pa.Array:
        return pa.array(group.numbers(name).astype(np.int64), mask=~np.isin(group.kinds(), kinds))

    return build


def _payload_size(group: Group) -> pa.Array:
    sizes = group.join(piece_sizes)
    return pa.array(sizes, mask=sizes < 0)


MESSAGE_COLUMNS: dict[str, Callable[[Group], pa.Array]] = {
    "position": _position,
    "id": _id,
    "namespace": _namespace,
    "queue": _queue,
    "payload": lambda group: group.binary("payload"),
    "published_at": _at,
    "expires_at": _nullable_time("expires_at"),
    "priority": _priority,
    "retries": _retries,
    "protocol": _protocol,
    "correlation_id": _text_or_none("correlation_id"),
    "request_id": _text_or_none("request_id"),
    "source_info": _source_info,
}
_EVENT_COLUMNS: dict[str, Callable[[Group], pa.Array]] = {
    "position": _position,
    "kind": lambda group: _spelled(group.kinds(), _KIND_WORDS),
    "at": _at,
    "message_id": _message_id,
    "namespace": _namespace,
    "queue": _queue,
    "deliveries": _only_for("deliveries", _WITH_DELIVERIES),
    "delivered_at": _nullable_time("delivered_at"),
    "reason": lambda group: _spelled(group.numbers("reason"), _REASON_WORDS),
    "protocol": _protocol,
    "peer": _peer,
    "payload_size": _payload_size,
    "message": _message_position,
    "count": _only_for("count", _WITH_COUNT),
}
