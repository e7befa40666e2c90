"""The work of executors: reading the rows of one part, as record batches that Spark takes without conversion.

They come from the journal's files if these are on this machine (``local``), else through Flight. If a connection breaks
in the middle of a part, reading resumes after the last row handed over, so that no row comes twice. This works because
positions never change.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from penstock.flight.calls import Read
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.local import NotLocal, read_locally
from penstock.spark.options import SourceSettings

if TYPE_CHECKING:
    from penstock.spark.lake.tables import TableFile

#: Rows and bytes of a batch at most. Each task of Spark holds a few batches.
MOST_ROWS = 16_384
MOST_BYTES = 16 * 2**20
#: Connections kept for later tasks: opening one takes longer than reading a small part.
KEPT = 4

_kept: dict[SourceSettings, FlightEndpoint] = {}


class ReadPart(InputPartition):
    """A part of a read: its ticket, and the archive's files with positions before ``until``.

    It is sent to the executor, and contains no secret.
    """

    def __init__(self, read: Read, files: tuple[TableFile, ...] = (), until: int = 0) -> None:
        super().__init__(read)
        self.read = read
        self.files = files
        self.until = until

    def __repr__(self) -> str:
        return f"Part({self.read.start}..{self.read.stop})"


def fetch(settings: SourceSettings, part: ReadPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in batches of exactly this schema."""
    if TaskContext.get() is not None:
        _freeze()
    with _connected(settings) as endpoint:
        for batch in _batches(settings, endpoint, part):
            yield from cut(pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema))


@cache
def _freeze() -> None:
    """Exclude the current heap from garbage collection, once: Spark's worker collects after each task.

    Each collection of our modules would take as long as reading 30,000 rows.
    """
    gc.freeze()


@contextmanager
def _connected(settings: SourceSettings) -> Iterator[FlightEndpoint]:
    """A connection of an earlier task, or a new one. It is kept unless the task fails."""
    endpoint = _kept.pop(settings, None) or FlightEndpoint(settings).trusted()
    try:
        yield endpoint
    except BaseException:
        endpoint.close()
        raise
    _kept[settings] = endpoint
    if len(_kept) > KEPT:
        _kept.pop(next(iter(_kept))).close()


def _batches(settings: SourceSettings, endpoint: FlightEndpoint, part: ReadPart) -> Iterator[pa.RecordBatch]:
    if not settings.archive:
        return _whole(settings, endpoint, part.read)
    from penstock.spark.archived.part import ArchivedPart  # noqa: PLC0415 - only what is needed

    archived = ArchivedPart(settings, part.read, part.files, part.until)
    return archived.batches(lambda read: _whole(settings, endpoint, read))


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Zero-copy slices of limited size."""
    rows = batch.num_rows
    if not rows:
        return
    fitting = max(1, min(MOST_ROWS, rows * MOST_BYTES // max(1, batch.nbytes)))
    for at in range(0, rows, fitting):
        yield batch.slice(at, fitting)


def _whole(settings: SourceSettings, endpoint: FlightEndpoint, read: Read) -> Iterator[pa.RecordBatch]:
    """All batches of a read: from files if possible, else through Flight, reconnecting as needed."""
    ticket = _resumable(read)
    if settings.short_circuit:
        try:
            for batch in read_locally(endpoint, ticket):
                ticket = _after(ticket, batch)
                yield batch
        except NotLocal:
            pass
        else:
            return
    yield from _through_flight(endpoint, ticket, read)


def _through_flight(endpoint: FlightEndpoint, ticket: Read, read: Read) -> Iterator[pa.RecordBatch]:
    """The rest of a read, reconnecting as needed."""
    waiting = endpoint.retry_budget()
    while not _done(ticket, read):
        began = ticket
        try:
            for batch in endpoint.get(ticket):
                if batch.num_rows:
                    ticket = _after(ticket, batch)
                    yield batch
        except pa.ArrowException as error:
            if ticket is not began:
                waiting = endpoint.retry_budget()
            if ticket.view == "live" and ticket is not began:
                # The queues have changed since. Spark runs the task again from the start.
                raise endpoint.explain(error) from None
            waiting.pause(error)
        else:
            return


def _done(ticket: Read, read: Read) -> bool:
    """Whether the connection broke when all rows had been read."""
    if read.view == "leased":
        return ticket.first_row >= read.first_row + read.rows
    return read.view != "live" and ticket.start >= read.stop


def _resumable(read: Read) -> Read:
    """The same read with the column of positions, which show where to resume."""
    if read.view == "leased" or not read.columns or "position" in read.columns:
        return read
    return replace(read, columns=[*read.columns, "position"])


def _after(ticket: Read, batch: pa.RecordBatch) -> Read:
    """The rest of a read after a batch."""
    if ticket.view == "leased":
        return replace(ticket, first_row=ticket.first_row + batch.num_rows, rows=ticket.rows - batch.num_rows)
    if ticket.view == "live":
        return replace(ticket)
    return replace(ticket, start=batch.column("position")[-1].as_py() + 1)
