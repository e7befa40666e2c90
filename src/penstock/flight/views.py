"""The columns of the views, and the size of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.flight.problems import trouble
from penstock.journal.views import arrow

#: Rows and payload bytes of a batch, as in the views of the history. A single message may be larger.
MOST_ROWS = 8192
MOST_BYTES = 8 * 1024 * 1024

#: The current content of the queues: ``messages`` with the state of each.
LIVE = pa.schema([*arrow.MESSAGES, ("state", pa.string()), ("deliveries", pa.int64()), ("reason", pa.string())])
SCHEMAS = {**arrow.SCHEMAS, "live": LIVE, "leased": arrow.MESSAGES}


def schema(view: str, columns: Sequence[str] = ()) -> pa.Schema:
    """The schema of a view, or of some columns in the requested order. Raises Trouble for unknown columns."""
    whole = SCHEMAS[view]
    unknown = [name for name in columns if name not in whole.names]
    if unknown:
        text = f"{view} has no column {', '.join(unknown)}; it has {', '.join(whole.names)}"
        raise trouble("bad-request", text)
    if len(set(columns)) < len(columns):
        raise trouble("bad-request", "a column is requested twice")
    return pa.schema([whole.field(name) for name in columns]) if columns else whole


def split(sizes: npt.NDArray[Any], *, payloads: bool) -> Iterator[slice]:
    """Cut rows with these payload sizes into batches."""
    ends = np.cumsum(sizes, dtype=np.int64)
    at = before = 0
    while at < len(sizes):
        stop = min(at + MOST_ROWS, len(sizes))
        if payloads:
            stop = min(stop, max(int(np.searchsorted(ends, before + MOST_BYTES, "right")), at + 1))
        yield slice(at, stop)
        at, before = stop, int(ends[stop - 1])
