"""How the columns of a table are kept in memory: what grows, shrinks and stays the same, with few copies.

A column with the same value in all rows is that value with a stride of 0, and takes no memory. Any other grows and
shrinks where it is, so that a table of hundreds of megabytes is not there twice for a moment. Who wants to look at a
column while its table changes makes it read-only: then it is copied.
"""

from __future__ import annotations

import contextlib

import numpy as np

from penstock.core.recovery.event_columns import Array

#: Rows that are moved together.
MOVED = 2**16


def filled(value: int, dtype: str, rows: int) -> Array:
    """A column of so many rows with this value in all of them."""
    return np.broadcast_to(np.array(value, dtype), rows)


def is_one_value(column: Array) -> bool:
    """Whether a column is kept as one value for all rows."""
    return column.strides == (0,)


def extend(column: Array, added: Array) -> Array:
    """A column with more rows behind it. The first one is used up, so nobody should hold it any more."""
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
    """A column with more rows in it, each before the one that had that number. Numbers are in order."""
    if not len(added):
        return column
    value = column[0] if len(column) else added[0]
    if (is_one_value(column) or not len(column)) and (added == value).all():
        return np.broadcast_to(np.array(value, column.dtype), len(column) + len(added))
    return np.insert(column, rows, added)


def keep(column: Array, mask: Array) -> Array:
    """Those rows of a column that the mask has. The column is used up."""
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
