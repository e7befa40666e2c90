"""Turns record batches into ``requests.Write``, one each. Rows are checked here, so that errors can name them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flight import flight_requests as requests
from penstock.flight.access import queue_name
from penstock.flight.calls import Write
from penstock.flight.flight_requests import CHUNK_BYTES, CHUNK_ROWS
from penstock.flight.problems import trouble

#: Microseconds: the longest time that the protocols can express, 136 years.
MOST_TIME = 2**32 * 1_000_000

_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating)

#: The types that each column may have, and their description.
COLUMNS: dict[str, tuple[tuple[Callable[[pa.DataType], bool], ...], str]] = {
    "payload": ((*_BYTES, *_TEXT), "binary or string"),
    "queue": (_TEXT, "string, as in default/jobs"),
    "ttl": ((*_NUMBERS, pa.types.is_duration), "a duration, or seconds as a number"),
    "delay": ((*_NUMBERS, pa.types.is_duration), "a duration, or seconds as a number"),
    "priority": ((pa.types.is_integer, pa.types.is_decimal), "an integer from 0 up"),
    "correlation_id": ((*_BYTES, *_TEXT), "binary or string"),
}


def check_schema(schema: pa.Schema) -> None:
    """Raises Trouble if these columns can't be published."""
    names = schema.names
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) < len(names):
        what = f"there is no column {', '.join(unknown)}" if unknown else "a column is repeated"
        raise trouble("bad-request", f"{what}; columns are: {', '.join(COLUMNS)}")
    if "payload" not in names:
        raise trouble("bad-request", "the column payload is missing")
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        tests, words = COLUMNS[field.name]
        if not any(test(kind) for test in tests):
            raise trouble("bad-request", f"the column {field.name} is {field.type}; it must be {words}")


def as_request(call: Write, number: int, batch: pa.RecordBatch, peer: str, owner: str) -> requests.Write:
    """A batch as a chunk. Raises Trouble with the first bad row."""
    _check_size(batch)
    names, indices = _queues(call, batch)
    return requests.Write(
        writer=call.writer,
        epoch=call.epoch,
        partition=call.partition,
        chunk=number,
        digest=call.digest,
        queues=names,
        queue=indices,
        payloads=_column(batch, "payload", pa.binary()).to_pylist(),
        ttl=_times(batch, "ttl", -1),
        delay=_times(batch, "delay", 0),
        priority=_priorities(batch),
        correlation_ids=_correlation_ids(batch),
        create_queues=call.create_queues,
        begun=call.begun,
        peer=peer,
        owner=owner,
    )


def _check_size(batch: pa.RecordBatch) -> None:
    if batch.num_rows > CHUNK_ROWS:
        raise trouble("bad-request", f"a chunk has {CHUNK_ROWS} rows at most, not {batch.num_rows}: send more batches")
    payload = _plain(batch.column("payload"))
    if payload.null_count:
        row = pc.index(pc.is_null(payload), True).as_py()
        raise trouble("bad-request", f"row {row} has no payload: it may be empty, but not null")
    size = pc.sum(pc.binary_length(payload)).as_py() or 0
    if size > CHUNK_BYTES:
        text = f"a chunk has {CHUNK_BYTES} bytes of payloads at most, not {size}: send smaller batches"
        raise trouble("bad-request", text)


def _plain(array: pa.Array) -> pa.Array:
    """The array without a dictionary, and with a type that has ``binary_length``."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    array = _plain(batch.column(name))
    return array if array.type == kind else array.cast(kind)


def _queues(call: Write, batch: pa.RecordBatch) -> tuple[list[str], bytes]:
    """The queues, and the index of each row's queue."""
    if call.queue:
        queue_name(call.queue)
    if "queue" not in batch.schema.names:
        if not call.queue:
            raise trouble("bad-request", "no queue: give one in the descriptor, or a column queue")
        return [call.queue], np.zeros(batch.num_rows, np.uint32).tobytes()
    column = _column(batch, "queue", pa.string())
    if column.null_count and not call.queue:
        row = pc.index(pc.is_null(column), True).as_py()
        raise trouble("bad-request", f"row {row} has no queue, and the descriptor has none either")
    encoded = pc.fill_null(column, call.queue).dictionary_encode()
    names: list[str] = encoded.dictionary.to_pylist()
    for name in names:
        queue_name(name)
    return names, encoded.indices.to_numpy(zero_copy_only=False).astype("<u4").tobytes()


def _times(batch: pa.RecordBatch, name: str, missing: int) -> bytes:
    """A column of times as microseconds; empty if the batch does not have it."""
    if name not in batch.schema.names:
        return b""
    column = _plain(batch.column(name))
    if pa.types.is_duration(column.type):
        numbers = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
        values = np.asarray(numbers.fill_null(0).to_numpy(zero_copy_only=False), np.float64)
    else:
        values = np.asarray(column.cast(pa.float64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)) * 1e6
    wrong = ~((values >= 0) & (values <= MOST_TIME))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        text = f"row {row}: {name} is {column[row].as_py()}; it must be from 0 to {MOST_TIME // 1_000_000} seconds"
        raise trouble("bad-request", text)
    times: npt.NDArray[Any] = np.where(column.is_null().to_numpy(zero_copy_only=False), missing, np.rint(values))
    return times.astype("<i8").tobytes()


def _priorities(batch: pa.RecordBatch) -> bytes:
    if "priority" not in batch.schema.names:
        return b""
    column = _plain(batch.column("priority"))
    try:
        numbers = column.cast(pa.uint64()).fill_null(0)
    except pa.ArrowInvalid:
        raise trouble("bad-request", "a priority must be a whole number from 0 to 2⁶⁴ − 1") from None
    return bytes(numbers.to_numpy(zero_copy_only=False).astype("<u8").tobytes())


def _correlation_ids(batch: pa.RecordBatch) -> list[bytes]:
    if "correlation_id" not in batch.schema.names:
        return []
    ids: list[bytes] = _column(batch, "correlation_id", pa.binary()).fill_null(b"").to_pylist()
    return ids
