"""Narrow a read by a WHERE before anything is read: by queue, position, and earliest time.

Only with option ``pushFilters``: Spark (at least up to 4.3) keeps one plan for each ``load()``, so using the table
twice with different filters returns the rows of the last ones for both.

Spark skips a filter that the read applies exactly and applies all others itself, so narrowing too little is never
wrong. That is why there is only an earliest time: clocks are set back now and then, so the first event after a time may
be followed by some from before it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from penstock.flight.calls import Pick
from penstock.patterns import fits, has_wildcards
from penstock.spark.values import microseconds

#: The time column of each view.
TIMES = {"messages": "published_at", "events": "at"}


class Narrowed(msgspec.Struct):
    """The remaining range. ``stop`` None: not limited by filters. ``since`` in microseconds."""

    start: int = 1
    stop: int | None = None
    since: int | None = None
    namespace: str | None = None
    queue: str | None = None
    #: No row passes.
    empty: bool = False

    def take(self, view: str, one: Filter) -> bool:
        """Apply a filter. Returns whether Spark can skip it."""
        column = getattr(one, "attribute", ("",))
        value = getattr(one, "value", None)
        if column == ("position",) and view != "live":
            return self._position(one, value)
        if column in (("queue",), ("namespace",)) and isinstance(one, EqualTo) and isinstance(value, str):
            return self._name(column[0], value)
        if column == (TIMES.get(view),) and isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self._since(value)
        return False

    def _position(self, one: Filter, value: Any) -> bool:
        if isinstance(one, In) and value and all(_whole(each) for each in value):
            self._between(min(value), max(value) + 1)
            return len(set(value)) == 1
        bounds = _BOUNDS.get(type(one))
        if bounds is None or not _whole(value):
            return False
        self._between(*bounds(value))
        return True

    def _between(self, start: int | None, stop: int | None) -> None:
        self.start = max(self.start, start or 1)
        if stop is not None:
            self.stop = stop if self.stop is None else min(self.stop, stop)
        self.empty = self.empty or (self.stop is not None and self.stop <= self.start)

    def _name(self, column: str, value: str) -> bool:
        if has_wildcards(value):
            return False  # a pattern can't escape them
        had = getattr(self, column)
        self.empty = self.empty or had not in (None, value)
        setattr(self, column, value)
        return True

    def _since(self, value: Any) -> None:
        if isinstance(value, datetime):
            moment = microseconds(value)
            self.since = moment if self.since is None else max(self.since, moment)

    def pick(self, pick: Pick) -> Pick | None:
        """The remaining queues out of those that the options select; None if there are none."""
        if self.empty:
            return None
        if self.namespace is None and self.queue is None:
            return pick
        namespaces, _, queues = (pick.queue or pick.pattern or "*/*").partition("/")
        if pick.queue:
            fit = self.namespace in (None, namespaces) and self.queue in (None, queues)
            return pick if fit else None
        if not (fits(namespaces, self.namespace or "") or self.namespace is None):
            return None
        if not (fits(queues, self.queue or "") or self.queue is None):
            return None
        return Pick(pattern=f"{self.namespace or namespaces}/{self.queue or queues}")


_BOUNDS: dict[type[Filter], Callable[[int], tuple[int | None, int | None]]] = {
    EqualTo: lambda value: (value, value + 1),
    GreaterThan: lambda value: (value + 1, None),
    GreaterThanOrEqual: lambda value: (value, None),
    LessThan: lambda value: (None, value),
    LessThanOrEqual: lambda value: (None, value + 1),
}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
