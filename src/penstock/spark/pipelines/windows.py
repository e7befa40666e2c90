"""The source of ``replay``, in windows: ranges of positions that are small enough for a driver to hold.

A window of a table consists of the rows of its row groups in a range; one of the journal, of the broker's rows. An
executor reads it as record batches, Spark filters them, and the driver receives record batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.flight.calls import Pick, Range, Status
from penstock.journal.views.arrow import MESSAGES
from penstock.spark import schemas
from penstock.spark.archived import measures
from penstock.spark.archived.contents import has
from penstock.spark.archived.history import ATTEMPTS
from penstock.spark.archived.row_groups import ArchiveRows
from penstock.spark.batch import BatchReader
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.executor import ReadPart, fetch
from penstock.spark.lake.store import Store
from penstock.spark.lake.tables import CatalogueOptions, TableFile, data_files
from penstock.spark.options import SourceSettings

#: Approximate uncompressed bytes of a window.
WINDOW_BYTES = 16 * 2**20


class LakeTable(Struct, frozen=True):
    """A table by its name, whatever its format."""

    store: Store
    name: str
    catalogue: CatalogueOptions

    def files(self) -> list[TableFile]:
        """Its current files."""
        return data_files(self.store, self.name, self.catalogue)


class Window(Protocol):
    """A range of positions, sent to an executor."""

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """These columns of its rows, by position."""


class MessageSource(Protocol):
    """Where to replay messages from."""

    def schema(self) -> pa.Schema:
        """The available columns."""

    def last(self) -> int:
        """The last position; -1 if there is none."""

    def windows(self, start: int | None, stop: int, columns: Sequence[str]) -> Sequence[Window]:
        """The windows of a range, in order. Without a start, from the first position."""


class TableWindow(Struct, frozen=True):
    """A range of a table, and the files that had it when it was planned."""

    table: LakeTable
    files: tuple[TableFile, ...]
    start: int
    stop: int

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """From its row groups. If compaction has replaced files meanwhile, from the new ones."""
        at, files = self.start, self.files
        for attempt in range(ATTEMPTS):
            rows, span = ArchiveRows(self.table.store, whole_names=False), (at, self.stop)
            try:
                for table in rows.read(rows.groups(files, *span), span, Pick(), schema):
                    at = table.column("position")[-1].as_py() + 1
                    yield from table.to_batches()
            except FileNotFoundError:
                if attempt + 1 == ATTEMPTS:
                    raise
                files = tuple(file for file in self.table.files() if has(file, at, self.stop))
            else:
                return


class TableMessages:
    """A table of the lake."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    def schema(self) -> pa.Schema:
        """The columns of messages, the decoded ``value``, and the table's partition columns.

        Columns and fields are added but never removed, and no type changes: the newest file has all of them.
        """
        newest = max(self._table.files(), key=lambda file: file.last)
        inside = ArchiveRows(self._table.store).schema(newest)
        more = [field for field in inside if field.name not in MESSAGES.names]
        named = {field.name for field in more}
        folders = [pa.field(name, pa.string()) for name in newest.partition if name not in {*MESSAGES.names, *named}]
        return pa.schema([*MESSAGES, *more, *folders])

    def last(self) -> int:
        """From the table's records of its files."""
        return max((file.last for file in self._table.files()), default=-1)

    def windows(self, start: int | None, stop: int, columns: Sequence[str]) -> list[TableWindow]:
        """Cut by the sizes of row groups."""
        start = start or 0
        files = [file for file in self._table.files() if has(file, start, stop)]
        if not files:
            return []
        groups = ArchiveRows(self._table.store).groups(files, start, stop)
        cuts = measures.cuts(groups, start, stop, 1, WINDOW_BYTES)
        return [
            TableWindow(self._table, tuple(file for file in files if has(file, *span)), *span)
            for span in pairwise([start, *cuts, stop])
        ]


class JournalWindow(Struct, frozen=True):
    """A range of the journal, or of the archive before it."""

    settings: SourceSettings
    part: ReadPart

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """From the broker."""
        return fetch(self.settings, self.part, schema)


class JournalMessages:
    """What the broker has, and the archive that the options name."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings

    def schema(self) -> pa.Schema:
        """Those of view ``messages``."""
        return MESSAGES

    def last(self) -> int:
        """By the end of the journal."""
        with FlightEndpoint(self._settings) as endpoint:
            return endpoint.ask(Status(), Range).latest - 1

    def windows(self, start: int | None, stop: int, columns: Sequence[str]) -> list[JournalWindow]:
        """Cut by the broker."""
        settings = replace(self._settings, starting_position=start or "earliest", ending_position=stop)
        reader = BatchReader(settings, list(columns), schemas.spark_schema("messages", columns), WINDOW_BYTES)
        return [JournalWindow(settings, part) for part in reader.partitions() if isinstance(part, ReadPart)]


def frame(spark: SparkSession, windows: Sequence[Window], schema: pa.Schema) -> DataFrame:
    """The rows of windows: a task for each, in the order of their positions."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from windows[number].read(schema)

    return spark.range(0, len(windows), 1, max(len(windows), 1)).mapInArrow(work, from_arrow_schema(schema))
