"""Batch reads: a range of positions, cut into parts on the driver, read in parallel by executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock.flight.calls import Locate, Pick, Plan, Planned, Range, Read, Status
from penstock.spark import schemas
from penstock.spark.endpoint import FlightEndpoint, log
from penstock.spark.errors import ADVICE, BadOption, DataLoss, NoQueue
from penstock.spark.executor import ReadPart, fetch
from penstock.spark.filters import Narrowed
from penstock.spark.names import check_there, no_queue
from penstock.spark.options import SourceSettings

if TYPE_CHECKING:
    from penstock.spark.archived.history import ArchivedHistory
    from penstock.spark.lake.tables import TableFile


#: Approximate bytes of a task at most, like Spark's own limit for files.
PART_BYTES = 128 * 2**20


class BatchReader(DataSourceReader):
    """A read of a view. ``partitions`` runs once, on the driver; ``read`` in each task."""

    def __init__(
        self, settings: SourceSettings, columns: list[str], schema: StructType, part_bytes: int = PART_BYTES
    ) -> None:
        """``part_bytes``: approximate size of a part."""
        self._settings = settings
        self._columns = columns
        self._schema = schema
        self._part_bytes = part_bytes
        self._narrowed = Narrowed()

    def partitions(self) -> Sequence[InputPartition]:
        """The parts of the read."""
        with FlightEndpoint(self._settings) as endpoint:
            parts = list(self._parts(endpoint))
        # Spark turns an empty list into one part without a description.
        return parts or [NOTHING]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        if not isinstance(partition, ReadPart):
            return iter(())
        return fetch(self._settings, partition, schemas.arrow_schema(self._schema))

    def _parts(self, endpoint: FlightEndpoint) -> Iterator[ReadPart]:
        settings = self._settings
        status = endpoint.ask(Status(), Range)
        pick = self._narrowed.pick(Pick(queue=settings.queue, pattern=settings.pattern))
        if pick is None:
            return
        if settings.view == "live":
            yield self._live(pick, status)
            return
        history = archived(settings, pick)
        start, stop = self._range(endpoint, status, history)
        if history is not None and start < min(stop, status.earliest):
            until = history.reach(status, start, stop)
            files = history.files(status, start, until)
            for span in pairwise([start, *history.cuts(status, start, until, self._part_bytes), until]):
                yield part(settings, pick, span, status.identity, self._columns, files, until)
            start = until
        if start >= stop:
            check_queue(endpoint, settings)
            return
        try:
            planned = plan(endpoint, settings, pick, (start, stop), status.identity, self._part_bytes)
        except NoQueue:
            if pick.queue != settings.queue:
                raise  # a filter named it
            raise no_queue(endpoint, settings) from None
        for low, high in planned.ranges:
            yield part(settings, pick, (low, high), planned.identity, self._columns)

    def _live(self, pick: Pick, status: Range) -> ReadPart:
        return ReadPart(
            Read(queue=pick.queue, pattern=pick.pattern, view="live", columns=self._columns, identity=status.identity)
        )

    def _range(self, endpoint: FlightEndpoint, status: Range, history: ArchivedHistory | None) -> tuple[int, int]:
        settings, narrowed = self._settings, self._narrowed
        start = max(beginning(endpoint, settings, status, history), narrowed.start)
        end = place(endpoint, settings.ending_position, settings.ending_timestamp, status, history)
        stop = min(end, status.latest)
        if narrowed.since is not None:
            start = max(start, located(endpoint, narrowed.since, status, history))
        return start, stop if narrowed.stop is None else min(stop, narrowed.stop)


class FilteringReader(BatchReader):
    """A batch reader for a session that passes on the filters of a query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use filters to narrow the read down. Returns those that Spark must still apply."""
        return [one for one in filters if not self._narrowed.take(self._settings.view, one)]


#: A part without rows.
NOTHING = InputPartition(None)


def archived(settings: SourceSettings, pick: Pick) -> ArchivedHistory | None:
    """The history from before the journal's beginning, if the options name an archive."""
    if not settings.archive:
        return None
    from penstock.spark.archived.history import ArchivedHistory  # noqa: PLC0415 - only what is needed

    return ArchivedHistory(settings, pick)


def place(
    endpoint: FlightEndpoint,
    position: int | str,
    timestamp: int | None,
    status: Range,
    history: ArchivedHistory | None = None,
) -> int:
    """The position that the options stand for."""
    if timestamp is not None:
        return located(endpoint, timestamp, status, history)
    if isinstance(position, int):
        return position
    if position == "latest":
        return status.latest
    return status.earliest if history is None else history.earliest(status)


def located(endpoint: FlightEndpoint, at: int, status: Range, history: ArchivedHistory | None) -> int:
    """The first position at or after a time."""
    position = max(endpoint.ask(Locate(at=at), int), status.earliest)
    return history.locate(status, at) if history is not None and position == status.earliest else position


def beginning(
    endpoint: FlightEndpoint, settings: SourceSettings, status: Range, history: ArchivedHistory | None = None
) -> int:
    """The position at which the options say to begin. Raises BadOption if it is after the journal's end."""
    position = place(endpoint, settings.starting_position, settings.starting_timestamp, status, history)
    if position > status.latest:
        raise BadOption(
            f"option startingPosition: {position} is after the end of the journal, which is at {status.latest} "
            f"(penstock at {settings.endpoint})"
        )
    return position


def plan(
    endpoint: FlightEndpoint,
    settings: SourceSettings,
    pick: Pick,
    span: tuple[int, int],
    identity: str,
    part_bytes: int = PART_BYTES,
) -> Planned:
    """Cut a range into parts. Lost positions are an error or a warning, as the options say."""
    request = Plan(
        queue=pick.queue,
        pattern=pick.pattern,
        view=settings.view,  # type: ignore[arg-type]
        start=span[0],
        stop=span[1],
        partitions=settings.min_partitions,
        part_bytes=part_bytes,
        identity=identity,
        accept_loss=not settings.fail_on_data_loss,
    )
    try:
        planned = endpoint.ask(request, Planned)
    except (DataLoss, NoQueue) as error:
        raise type(error)(f"{error}. {ADVICE}") from None
    for lost in planned.losses:
        log.warning("positions %d to %d are lost: %s", lost.first, lost.stop - 1, lost.text)
    return planned


def part(
    settings: SourceSettings,
    pick: Pick,
    span: tuple[int, int],
    identity: str,
    columns: list[str],
    files: tuple[TableFile, ...] = (),
    until: int = 0,
) -> ReadPart:
    """One part: its ticket, and the archive's files with positions before ``until``."""
    return ReadPart(
        Read(
            queue=pick.queue,
            pattern=pick.pattern,
            view=settings.view,  # type: ignore[arg-type]
            start=span[0],
            stop=span[1],
            columns=columns,
            identity=identity,
            accept_loss=not settings.fail_on_data_loss,
        ),
        tuple(file for file in files if file.first < span[1] and span[0] <= file.last),
        until,
    )


def check_queue(endpoint: FlightEndpoint, settings: SourceSettings) -> None:
    """Raise NoQueue for a queue that is named but does not exist, even if there is nothing to read."""
    if settings.fail_on_data_loss:
        check_there(endpoint, settings)
