"""The rows of a table: a column for each field of the messages that are alive, sorted by position.

Columns in which every row has the default are not kept, and one that has the same value in all rows is kept as that
value; ``column_storage`` does the rest. So a plain waiting message costs 16 bytes, and 8 if there is one queue whose
messages are of one size.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.core.recovery.column_storage import extend, filled, insert, is_one_value, keep
from penstock.core.recovery.event_columns import Array
from penstock.schema import FOREVER

#: The columns of a table: type and default. A rank or location of 0 stands for the message's own position.
COLUMNS: dict[str, tuple[str, int]] = {
    "position": ("u8", 0),
    "queue": ("u4", 0),
    "size": ("u4", 0),
    "rank": ("u8", 0),
    "priority": ("u8", 0),
    "expires": ("i8", 0),
    "due": ("i8", 0),
    "retries": ("u1", FOREVER),
    "published_retries": ("u1", FOREVER),
    "deliveries": ("u4", 0),
    "reason": ("u1", 0),
    "location": ("u8", 0),  # where the payload lies since the message was carried forward
}
_KEPT = ("position", "queue", "size")


class Rows:
    """Messages in columns."""

    def __init__(self, columns: Mapping[str, Array] | None = None) -> None:
        self.columns: dict[str, Array] = {name: np.empty(0, COLUMNS[name][0]) for name in _KEPT}
        self.columns.update(columns or {})

    def __len__(self) -> int:
        return len(self.columns["position"])

    def column(self, name: str) -> Array:
        """A column for reading, whether it is kept or not."""
        kept = self.columns.get(name)
        if kept is not None:
            return kept
        dtype, default = COLUMNS[name]
        return filled(default, dtype, len(self))

    def ranks(self) -> Array:
        """The rank of every message."""
        return self._or_positions("rank")

    def places(self) -> Array:
        """The place of every message's payload."""
        return self._or_positions("location")

    def find(self, messages: Array) -> tuple[Array, Array]:
        """The rows of those messages that exist, and a mask of them."""
        positions = self.columns["position"]
        rows = np.searchsorted(positions, messages)
        found = rows < len(positions)
        found[found] = positions[rows[found]] == messages[found]
        return rows[found], found

    def assign(self, name: str, rows: Array, values: Array) -> None:
        """Set a column of some rows."""
        if not rows.size:
            return
        dtype, default = COLUMNS[name]
        if name not in self.columns:
            if (values == default).all():
                return
            self.columns[name] = np.full(len(self), default, dtype)
        elif is_one_value(self.columns[name]) and (values == self.columns[name][0]).all():
            return
        elif not self.columns[name].flags.writeable:
            self.columns[name] = self.columns[name].copy()
        self.columns[name][rows] = values.astype(dtype)

    def append(self, new: Mapping[str, Array]) -> None:
        """Add rows at the end; missing columns have their defaults."""
        before, count = len(self), len(new["position"])
        for name, (dtype, default) in COLUMNS.items():
            values = new.get(name)
            if name not in self.columns and (values is None or bool((values == default).all())):
                continue
            old = self.columns.pop(name) if name in self.columns else filled(default, dtype, before)
            added = filled(default, dtype, count) if values is None else values.astype(dtype, copy=False)
            self.columns[name] = extend(old, added)

    def sort(self) -> None:
        """Sort the rows by position again."""
        order = np.argsort(self.columns["position"], kind="stable")
        for name, column in self.columns.items():
            self.columns[name] = column if is_one_value(column) else column[order]

    def keep(self, mask: Array) -> None:
        """Remove all other rows."""
        for name in list(self.columns):
            self.columns[name] = keep(self.columns.pop(name), mask)

    def set_aside(self, mask: Array) -> dict[str, Array]:
        """Remove all rows but these, and return them for ``put_back``."""
        count, aside = int(np.count_nonzero(mask)), {}
        for name in list(self.columns):
            column = self.columns.pop(name)
            self.columns[name] = column[:count] if is_one_value(column) else column[mask]
            aside[name] = keep(column, ~mask)
        return aside

    def put_back(self, aside: dict[str, Array]) -> None:
        """Add rows that were set aside. ``aside`` is consumed."""
        rows = np.searchsorted(aside["position"], self.columns["position"])
        before, here = len(aside["position"]), len(self)
        for name in [name for name in COLUMNS if name in aside or name in self.columns]:
            dtype, default = COLUMNS[name]
            column = aside.pop(name) if name in aside else filled(default, dtype, before)
            added = self.columns.pop(name) if name in self.columns else filled(default, dtype, here)
            self.columns[name] = insert(column, rows, added)

    def _or_positions(self, name: str) -> Array:
        """A column in which 0 stands for the message's own position."""
        kept = self.columns.get(name)
        positions = self.columns["position"]
        return positions if kept is None else np.where(kept, kept, positions)
