"""The columns of a table in memory: grown and shrunk with few copies.

A column with the same value in all rows is that value with a stride of 0, and takes no memory. Any other grows and
shrinks in place, so that a table of hundreds of megabytes is never in memory twice. To read a column while its table
changes, make it read-only: then the table copies it.
"""

from __future__ import annotations

import contextlib

import numpy as np

from penstock.core.recovery.event_columns import Array

#: Rows that are moved at a time.
MOVED = 2**16


def filled(value: int, dtype: str, rows: int) -> Array:
    """A column with this value in all rows."""
    return np.broadcast_to(np.array(value, dtype), rows)


def is_one_value(column: Array) -> bool:
    """Whether a column is kept as one value for all rows."""
    return column.strides == (0,)


def extend(column: Array, added: Array) -> Array:
    """Append rows to a column. ``column`` is consumed, so nothing else should refer to it."""
    rows = len(column)
    if not len(added):
        return column
    value = column[0] if rows else added[0]
    if (is_one_value(column) or not rows) and (added == value).all():
        return np.broadcast_to(np.array(value, column.dtype), rows + len(added))
    if column.flags.writeable and column.flags.owndata:
        with contextlib.suppress(ValueError):  # there are views of it
            column.resize(rows + len(added))
            column[rows:] = added
            return column
    return np.concatenate((column, added))


def insert(column: Array, rows: Array, added: Array) -> Array:
    """Insert rows into a column, each before the row that had its number. Numbers ascend."""
    if not len(added):
        return column
    value = column[0] if len(column) else added[0]
    if (is_one_value(column) or not len(column)) and (added == value).all():
        return np.broadcast_to(np.array(value, column.dtype), len(column) + len(added))
    return np.insert(column, rows, added)


def keep(column: Array, mask: Array) -> Array:
    """The rows of a column that the mask selects. ``column`` is consumed."""
    count = int(np.count_nonzero(mask))
    if is_one_value(column):
        return column[:count]
    if not (column.flags.writeable and column.flags.owndata):
        return column[mask]
    done = 0
    for start in range(0, len(column), MOVED):
        part = column[start : start + MOVED][mask[start : start + MOVED]]
        column[done : done + len(part)] = part
        done += len(part)
    with contextlib.suppress(ValueError):  # as above
        column.resize(count)
        return column
    return column[:count].copy()
