"""What a filter excludes before anything is read: positions, queues and states.

Nothing is parsed here. Arrow decides whether a filter can be true of rows with known properties: it simplifies the
filter by them, as when it skips files of a dataset. Where it can't decide, the rows are read and the filter applies to
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

_FORMAT = ds.IpcFileFormat()
_NOWHERE = fs.LocalFileSystem()


def possible(schema: pa.Schema, wanted: ds.Expression, known: ds.Expression) -> bool:
    """Whether rows with the known properties may pass the filter."""
    fragment = _FORMAT.make_fragment("rows", filesystem=_NOWHERE, partition_expression=known)  # it is never opened
    rows = ds.FileSystemDataset([fragment], schema, _FORMAT, _NOWHERE)
    return next(iter(rows.get_fragments(filter=wanted)), None) is not None


def positions(schema: pa.Schema, wanted: ds.Expression, start: int, stop: int) -> tuple[int, int]:
    """The part of a range of positions outside of which no row passes the filter."""

    def between(low: int, high: int) -> bool:
        position = ds.field("position")
        return low < high and possible(schema, wanted, (position >= low) & (position < high))

    if not between(start, stop):
        return start, start
    low, high = start, stop - 1  # search the first position that may pass
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if between(start, middle + 1) else (middle + 1, high)
    first, high = low, stop  # and the last
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if between(middle, stop) else (low, middle)
    return first, low + 1


def wants_queue(schema: pa.Schema, wanted: ds.Expression, namespace: str, name: str) -> bool:
    """Whether rows of a queue may pass the filter."""
    return possible(schema, wanted, (ds.field("namespace") == namespace) & (ds.field("queue") == name))


def wants_no_queue(schema: pa.Schema, wanted: ds.Expression) -> bool:
    """Whether rows without a queue may pass the filter."""
    return possible(schema, wanted, ds.field("queue").is_null())


def words_of(schema: pa.Schema, wanted: ds.Expression, column: str, words: Iterable[str]) -> list[str]:
    """Which of these words may be a column's value in rows that pass the filter."""
    return [word for word in words if possible(schema, wanted, ds.field(column) == word)]


def columns_of(schema: pa.Schema, wanted: ds.Expression) -> set[str]:
    """The columns of a filter, and perhaps some that only its string literals mention."""
    mentioned = set(re.findall(r"\w+", str(wanted)))
    return {name for name in schema.names if name in mentioned}
