"""Columns of an idle chunk, in as few bytes as their values need.

A column is kept as its lowest value and the distances from it: none if all values are equal, a ``range`` if they ascend
one by one, otherwise an array of the smallest type that holds them. Positions of messages that came together are such a
range, so a backlog that was published in runs costs almost nothing.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

_SMALLER = (("B", 2**8), ("H", 2**16), ("I", 2**32))


class PackedColumn(NamedTuple):
    """The values of a column: ``base`` plus each of the distances, or ``base`` repeated."""

    base: int
    distances: array[int] | range | None
    length: int


def pack(column: array[int]) -> PackedColumn:
    """Pack a column, which must not be empty."""
    values = np.frombuffer(column, column.typecode)
    base = int(values.min())
    spread = int(values.max()) - base
    if not spread:
        return PackedColumn(base, None, len(column))
    distances = values - values.dtype.type(base)
    if spread == len(column) - 1 and bool((distances[1:] == distances[:-1] + 1).all()):
        return PackedColumn(base, range(len(column)), len(column))
    smaller = next((code for code, limit in _SMALLER if spread < limit), column.typecode)
    return PackedColumn(base, array(smaller, distances.astype(smaller).tobytes()), len(column))


def unpack(packed: PackedColumn, code: str) -> array[int]:
    """Unpack a column into an array of this type."""
    base, distances, length = packed
    if distances is None:
        return array(code, (base,)) * length
    if isinstance(distances, range):
        return array(code, np.arange(base, base + length, dtype=np.dtype(code)).tobytes())
    values = np.frombuffer(distances, distances.typecode).astype(code)
    values += values.dtype.type(base)
    return array(code, values.tobytes())
