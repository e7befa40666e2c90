"""The tables that are read from the journal while a query runs, limited by the query's filters.

DuckDB reads an Arrow dataset through a scanner that it requests with the query's columns and filters, so each table is
a dataset whose scanner reads the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from typing_extensions import override

from penstock.flight.calls import Read
from penstock.flight.history import Chooser, History
from penstock.flight.live import STATES, Live
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views import arrow
from penstock.patterns import fits_queue
from penstock.sql import pushdown
from penstock.sql.tables import SCHEMAS


class ScanPlan(NamedTuple):
    """What a scan has to read."""

    #: In the order of the schema.
    columns: list[str]
    #: The first position and the exclusive end.
    positions: tuple[int, int]
    queues: Chooser
    #: For ``live``.
    states: list[str]


class Sources:
    """The journal as one query sees it: up to one position, with the messages that were out at one moment."""

    def __init__(self, history: History, live: Live, allowed: Sequence[str] | None) -> None:
        """``allowed`` are patterns of the visible queues; None for all."""
        self._history = history
        self._live = live
        self._allowed = allowed
        self._range = history.check(Read(accept_loss=True))
        #: The planned scans, for inspection.
        self.plans: list[tuple[str, ScanPlan]] = []
        #: Errors while rows were read: DuckDB reports only that one occurred.
        self.error: Exception | None = None

    def plan(self, view: str, columns: Sequence[str] | None, wanted: ds.Expression | None) -> ScanPlan:
        """What to read for these columns (None: all) and this filter (None: no filter)."""
        schema = SCHEMAS[view]
        checked = self._range
        if wanted is None:
            return ScanPlan(_ordered(schema, columns), (checked.start, checked.stop), self._chooser(None), list(STATES))
        filtered = None if columns is None else [*columns, *pushdown.columns_of(schema, wanted)]
        states = pushdown.words_of(schema, wanted, "state", STATES) if view == "live" else []
        span = pushdown.positions(schema, wanted, checked.start, checked.stop)
        narrow = not pushdown.wants_no_queue(schema, wanted)
        chooser = self._chooser(_fitting(schema, wanted)) if narrow else self._chooser(None)
        return ScanPlan(_ordered(schema, filtered), span, chooser, states)

    def read(self, view: str, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        """The rows of a plan, and perhaps some more."""
        self.plans.append((view, plan))
        try:
            if view == "live":
                yield from self._live.read(plan.columns, plan.queues, plan.positions, plan.states)
            else:
                yield from self._past(view, plan)
        except Exception as error:
            self.error = error
            raise

    def _past(self, view: str, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        start, stop = plan.positions
        for low, high in self._range._replace(start=start, stop=stop).kept():
            yield from arrow.read(
                self._history.reader, view, low, high, queues=plan.queues, columns=plan.columns, accept_loss=True
            )

    def _chooser(self, fitting: Callable[[QueueName], bool] | None) -> Chooser:
        patterns = self._allowed
        if patterns is None:
            return fitting
        return lambda name: (
            any(fits_queue(pattern, name.namespace, name.queue) for pattern in patterns)
            and (fitting is None or fitting(name))
        )


class View(ds.InMemoryDataset):  # type: ignore[misc]
    """A table for DuckDB whose rows are read on request."""

    def __init__(self, view: str, sources: Sources) -> None:
        super().__init__(SCHEMAS[view].empty_table())
        self._view = view
        self._sources = sources

    @override
    def scanner(self, columns: list[str] | None = None, filter: ds.Expression | None = None, **more: Any) -> ds.Scanner:
        plan = self._sources.plan(self._view, columns, filter)
        schema = pa.schema([SCHEMAS[self._view].field(name) for name in plan.columns])
        batches = self._sources.read(self._view, plan)
        return ds.Scanner.from_batches(batches, schema=schema, columns=columns, filter=filter)


def _ordered(schema: pa.Schema, columns: Sequence[str] | None) -> list[str]:
    """Without repetitions, in the order of the schema, and at least one: rows without columns can't be counted."""
    if columns is None:
        return list(schema.names)
    return [name for name in schema.names if name in columns] or ["position"]


def _fitting(schema: pa.Schema, wanted: ds.Expression) -> Callable[[QueueName], bool]:
    return lambda name: pushdown.wants_queue(schema, wanted, name.namespace, name.queue)
