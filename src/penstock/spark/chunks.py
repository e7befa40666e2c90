"""Cut rows into chunks. Each chunk is published atomically and once, so a repetition must be cut the same way.

Where a chunk ends depends only on its rows, not on the batches in which Spark delivers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha1
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flight.flight_requests import CHUNK_BYTES
from penstock.spark.errors import SourceError

#: A chunk ends after this many rows, or before the row with which its payloads would exceed this many bytes.
#: Both are fixed for good: another version that cut differently could not repeat a query.
ROWS = 10_000
BYTES = 4 * 2**20
#: Digests are below this, like all numbers in calls.
DIGESTS = 2**63
#: Bytes used of a row's SHA-1, the fastest hash in Python for more than a few bytes.
_HASH = np.dtype([("taken", "<u8"), ("left", "V12")])


def chunks(batches: Iterable[pa.RecordBatch], *, rows: int = ROWS, size: int = BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows in chunks. Raises SourceError for a payload too large for any chunk."""
    held: list[pa.RecordBatch] = []
    room_rows, room_bytes = rows, size
    for batch in batches:
        sizes = _sizes(batch)
        at = 0
        while at < batch.num_rows:
            sums = np.cumsum(sizes[at : at + room_rows])
            fitting = int(np.searchsorted(sums, room_bytes, side="right"))
            if not fitting and not held:
                fitting = 1  # larger than a chunk should be: a chunk of its own
            if fitting:
                held.append(batch.slice(at, fitting))
                at += fitting
                room_rows -= fitting
                room_bytes -= int(sums[fitting - 1])
            if not room_rows or at < batch.num_rows:
                yield _joined(held)
                held = []
                room_rows, room_bytes = rows, size
    if held:
        yield _joined(held)


def digest(batch: pa.RecordBatch) -> int:
    """A number for these rows in any order: that of several batches is their sum, modulo ``DIGESTS``.

    Fixed for good, like the limits of chunks.
    """
    columns = [_values(batch.column(name)) for name in sorted(batch.schema.names)]
    encode = msgspec.msgpack.Encoder().encode
    rows = columns[0] if len(columns) == 1 else map(encode, zip(*columns, strict=True))
    hashes = b"".join([sha1(row, usedforsecurity=False).digest() for row in rows])
    return int(np.frombuffer(hashes, _HASH)["taken"].sum(dtype=np.uint64)) % DIGESTS


def _values(column: pa.Array) -> list[Any]:
    """The values of a column, text as UTF-8: to the broker, text and bytes are the same."""
    values: list[Any] = (column.cast(pa.binary()) if pa.types.is_string(column.type) else column).to_pylist()
    return values


def _sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = (
        pc.fill_null(pc.binary_length(batch.column("payload")), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    if sizes.size and sizes.max() > CHUNK_BYTES:
        raise SourceError(f"a payload has {sizes.max()} bytes, and at most {CHUNK_BYTES} can be written")
    return sizes


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
