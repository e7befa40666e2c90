"""A reader's leased messages as rows, in the order of the leases: the same at every re-read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.flight.access import Caller, queue_name
from penstock.flight.calls import Read
from penstock.flight.flight_requests import LeasedMessages, LeasedRows
from penstock.flight.history import History
from penstock.flight.problems import trouble
from penstock.flight.views import schema, split
from penstock.journal.errors import Gone
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views.placed import Holding, Places

#: How often to ask the broker again for the places of messages after compaction has moved them.
TRIES = 5

_OF_LEASE = ("namespace", "queue")

Ask = Callable[[LeasedRows], LeasedMessages]


def read_leased(history: History, ask: Ask, call: Read, caller: Caller) -> Iterator[pa.RecordBatch]:
    """The rows of a part of a reader's leases. The caller needs the right to consume their queues."""
    if not call.reader:
        raise trouble("bad-request", "the view leased needs a reader: give its name")
    if call.queue or call.pattern:
        raise trouble("bad-request", "leases belong to a reader, not to a queue: leave queue and pattern out")
    if call.first_row < 0 or call.rows < 0 or not 0 <= call.start <= call.stop:
        raise trouble(
            "bad-request",
            "the range of positions or rows is invalid: the start must not be after the stop, nor negative",
        )
    history.check_identity(call.identity)
    caller.demand_somewhere("consume")
    request = LeasedRows(reader=call.reader, start=call.start, stop=call.stop, owner=caller.identity)
    return _batches(_held(history, ask, request, call, caller), call)


class _Held(NamedTuple):
    """Where the selected rows lie, and each row's queue as an index into ``names``."""

    places: Places
    names: list[QueueName]
    queues: npt.NDArray[np.intp]
    holding: Holding


def _held(history: History, ask: Ask, request: LeasedRows, call: Read, caller: Caller) -> _Held:
    for _ in range(TRIES):
        rows = ask(request)
        names = [queue_name(name) for name in rows.queues]
        for name in set(names):
            caller.demand("consume", name)
        places = np.frombuffer(rows.places, "<u8")
        end = call.first_row + call.rows if call.rows else len(places)
        wanted = call.total or max(end, call.first_row)
        if wanted > len(places) or (call.total and wanted != len(places)):
            text = f"{call.reader} has {len(places)} rows leased there, not {wanted}"
            raise trouble("data-loss", f"{text}: they were settled or returned", (call.start, call.stop))
        part = slice(call.first_row, end)
        try:
            holding = Holding(history.reader, places[part])
        except Gone:
            continue
        return _Held(places[part], names, np.repeat(np.arange(len(names)), rows.counts)[part], holding)
    raise trouble("away", "messages are being moved faster than they can be found; try again")


def _batches(held: _Held, call: Read) -> Iterator[pa.RecordBatch]:
    shape = schema(call.view, call.columns)
    stored = [name for name in shape.names if name not in _OF_LEASE]
    for part in split(held.holding.sizes(held.places), payloads="payload" in stored):
        rows = held.holding.read(held.places[part], stored) if stored else None
        arrays = [
            rows.column(name) if rows is not None and name in stored else _of_lease(held, part, name)
            for name in shape.names
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=shape)


def _of_lease(held: _Held, part: slice, column: str) -> pa.Array:
    """A message's current queue; the stored row has the one that it was published to."""
    texts = pa.array([getattr(name, column) for name in held.names], pa.string())
    return texts.take(pa.array(held.queues[part]))
