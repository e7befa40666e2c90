"""How rows are cut into chunks. Each chunk is published whole and once, so a repetition must be cut the same way.

Where a chunk ends depends on its rows alone, and not on the batches in which Spark happens to hand them over.
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

from penstock.flight.requests import CHUNK_BYTES
from penstock.spark.errors import SourceError

#: A chunk ends after so many rows, or before the row with which its payloads would have more than so many bytes.
#: These numbers must not change from one version to the next: a query that is run again would cut differently.
ROWS = 10_000
BYTES = 4 * 2**20
#: Digests are below this, as all numbers in calls.
DIGESTS = 2**63
#: What is taken of a row's SHA-1, which is the fastest that Python has for more than some bytes.
_HASH = np.dtype([("taken", "<u8"), ("left", "V12")])


def chunks(batches: Iterable[pa.RecordBatch], *, rows: int = ROWS, size: int = BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows, in chunks. Raises SourceError for a payload that no chunk can hold."""
    held: list[pa.RecordBatch] = []
    room_rows, room_bytes = rows, size
    for batch in batches:
        sizes = _sizes(batch)
        at = 0
        while at < batch.num_rows:
            sums = np.cumsum(sizes[at : at + room_rows])
            fitting = int(np.searchsorted(sums, room_bytes, side="right"))
            if not fitting and not held:
                fitting = 1  # larger than a chunk should be, so it is one of its own
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
    """A number for these rows, whatever their order: those of several batches are the sum, modulo ``DIGESTS``.

    It must not change from one version to the next, either.
    """
    columns = [_values(batch.column(name)) for name in sorted(batch.schema.names)]
    encode = msgspec.msgpack.Encoder().encode
    rows = columns[0] if len(columns) == 1 else map(encode, zip(*columns, strict=True))
    hashes = b"".join([sha1(row, usedforsecurity=False).digest() for row in rows])
    return int(np.frombuffer(hashes, _HASH)["taken"].sum(dtype=np.uint64)) % DIGESTS


def _values(column: pa.Array) -> list[Any]:
    """Text and bytes are the same to the broker."""
    found: list[Any] = (column.cast(pa.binary()) if pa.types.is_string(column.type) else column).to_pylist()
    return found


def _sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = (
        pc.fill_null(pc.binary_length(batch.column("payload")), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    if found.size and found.max() > CHUNK_BYTES:
        raise SourceError(f"a payload has {found.max()} bytes, and {CHUNK_BYTES} is the most that can be written")
    return found


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
