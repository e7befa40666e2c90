"""What a reader has leased, row by row, in the order in which it was leased: the same at every re-read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flight.access import Caller, queue_name
from penstock.flight.calls import Read
from penstock.flight.history import History
from penstock.flight.problems import trouble
from penstock.flight.requests import LeasedRows, Rows
from penstock.flight.views import schema, split
from penstock.journal.errors import Gone
from penstock.journal.placed import Holding, Places

#: How often the broker is asked again where messages lie, when compaction has moved them in between.
TRIES = 5

Ask = Callable[[LeasedRows], Rows]


def read_leased(history: History, ask: Ask, call: Read, caller: Caller) -> Iterator[pa.RecordBatch]:
    """The rows of a part of the leases. Who reads them needs the right to consume their queues."""
    if not call.reader:
        raise trouble("bad-request", "whose leases? Give the name of the reader")
    if call.queue or call.pattern:
        raise trouble("bad-request", "leases are of a reader, not of a queue: leave queue and pattern out")
    if call.first_row < 0 or call.rows < 0 or not 0 <= call.start <= call.stop:
        raise trouble("bad-request", "the range of positions, or of rows, makes no sense")
    history.check_identity(call.identity)
    caller.demand_somewhere("consume")
    request = LeasedRows(reader=call.reader, start=call.start, stop=call.stop)
    places, holding = _held(history, ask, request, call)
    return _batches(holding, places, call, caller)


def _held(history: History, ask: Ask, request: LeasedRows, call: Read) -> tuple[Places, Holding]:
    for _ in range(TRIES):
        places = np.frombuffer(ask(request).places, "<u8")
        end = call.first_row + call.rows if call.rows else len(places)
        if end > len(places) or call.first_row > len(places):
            text = f"{call.reader} has {len(places)} rows leased there, not {max(end, call.first_row)}"
            raise trouble("data-loss", f"{text}: they were settled, or have gone back", (call.start, call.stop))
        places = places[call.first_row : end]
        try:
            return places, Holding(history.reader, places)
        except Gone:
            continue
    raise trouble("away", "messages are being moved faster than they can be found; try again")


def _batches(holding: Holding, places: Places, call: Read, caller: Caller) -> Iterator[pa.RecordBatch]:
    shape = schema(call.view, call.columns)
    stored = list(dict.fromkeys([*shape.names, "namespace", "queue"]))
    for part in split(holding.sizes(places), payloads="payload" in stored):
        batch = holding.read(places[part], stored)
        _check_rights(batch, caller)
        yield batch.select(shape.names)


def _check_rights(batch: pa.RecordBatch, caller: Caller) -> None:
    if caller.may_everywhere("consume"):
        return
    for name in pc.unique(pc.binary_join_element_wise(batch["namespace"], batch["queue"], "/")).to_pylist():
        caller.demand("consume", queue_name(name or ""))
