"""The archive as two tables of a lake, in any format: ``TABLE`` and ``TABLE_quarantine``.

The two share no commit. A batch is committed to the quarantine first, then to the table, and the quarantine's mark says
how many rows the table must get: a batch between the two commits is known, and finished as it was begun.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from penstock.journal.views.arrow import MESSAGES
from penstock.spark.lake import files
from penstock.spark.lake.batches import BatchMark, Lake
from penstock.spark.lake.coverage import write_coverage
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.files import UNCOMMITTED
from penstock.spark.lake.table_formats import FORMATS
from penstock.spark.lake.tables import QUARANTINE, open_table, table_class
from penstock.spark.pipelines.archive.options import ArchiveOptions, catalogue_of
from penstock.spark.pipelines.archive.payloads import Decoding
from penstock.spark.pipelines.archive.rows import columns, divider
from penstock.spark.pipelines.archive.sink import Batch, Sink, Staged


class StagedFiles(Staged, frozen=True):
    """The data files of a batch, by the names of their tables."""

    files: dict[str, list[files.DataFile]]
    decoding: Decoding


class TableSink(Sink[StagedFiles]):
    """Two tables."""

    def __init__(self, lake: Lake, options: ArchiveOptions) -> None:
        assert options.kind is not None
        self._lake = lake
        self._store = lake.store
        self._options = options
        catalogue = catalogue_of(lake, options)
        self.table = open_table(options.kind, self._store, options.table, catalogue)
        self.quarantine = open_table(options.kind, self._store, f"{options.table}_{QUARANTINE}", catalogue)
        self._tables = self.table, self.quarantine
        self.failures = self.table.failures

    @override
    def open(self, ledger: BatchMark | None, query: str, identity: str) -> BatchMark | None:
        newest = self._newest(query)
        last = newest if newest is not None and (ledger is None or newest.position > ledger.position) else ledger
        self._check(last, query)
        for table in self._tables:
            table.begin(identity)
        return last

    def _newest(self, query: str) -> BatchMark | None:
        """The newest complete batch according to the tables."""
        good, bad = self.table.last(), self.quarantine.last()
        if bad is None or (good is not None and good.position >= bad.position):
            return good
        if not bad.state["good"]:
            return bad
        if not query:
            text = f"batch {bad.batch} is in {self.quarantine.name} but not in {self.table.name}, and the checkpoint"
            raise LakeError(f"{text} that would repeat it ({self._lake.checkpoint}) is gone: restore that")
        return good

    def _check(self, last: BatchMark | None, query: str) -> None:
        """Raise if the tables do not belong to this pipeline, or one of them is gone."""
        there = [table.name for table in self._tables if table.exists()]
        marks = [mark for table in self._tables if (mark := table.last()) is not None]
        if last is None and there and not any(mark.query == query for mark in marks):
            text = f"exists, but the record of its batches is missing ({self._lake.hidden} is not complete)"
            raise LakeError(f"table {there[0]} {text}: restore that, remove the table, or choose another --table")
        for table, rows in zip(self._tables, _rows_of(last), strict=True):
            if table.name in there:
                continue
            if rows:
                text = f"is gone, but {self._lake.hidden} says that it had {rows:,} rows"
                raise LakeError(f"table {table.name} {text}: restore the table, or remove that as well to start over")
            self._check_folder(table.name)

    def _check_folder(self, name: str) -> None:
        """Raise for foreign files: maintenance removes files that belong to no table."""
        logs = tuple(f"{name}/{folder}/" for kind in FORMATS if (folder := table_class(kind).log_folder))
        for file in self._store.files(name):
            path = self._store.relative(file.path)
            if not UNCOMMITTED.search(path) and not path.startswith(logs):
                raise LakeError(
                    f"table {name} would share its folder with {path}, a foreign file: choose another --table"
                )

    @override
    def begun(self, query: str, number: int) -> BatchMark | None:
        if not self.quarantine.has(query, number):
            return None
        mark = self.quarantine.last()
        return mark if mark is not None and (mark.query, mark.batch) == (query, number) else None

    @override
    def stage(self, messages: DataFrame, batch: Batch) -> StagedFiles:
        prefix = f"batch-{batch.query[:8]}-{batch.number:012}"
        folder = self._lake.staged(batch.attempt)
        layouts = {
            table.name: table.layout(schema, prefix, folder)
            for table, schema in zip(self._tables, columns(batch.decoding), strict=True)
        }
        divide = divider(batch.decoding, batch.hour, self.table.name, self.quarantine.name)
        found = files.write(messages.select(*MESSAGES.names), self._store, layouts, divide)
        good, bad = (sum(file.rows for file in found[table.name]) for table in self._tables)
        position = max((file.last + 1 for each in found.values() for file in each), default=0)
        return StagedFiles(good, bad, position, found, batch.decoding)

    @override
    def commit(self, staged: StagedFiles, mark: BatchMark) -> list[tuple[str, str]]:
        moves: list[tuple[str, str]] = []
        good, bad = columns(staged.decoding)
        for table, schema in ((self.quarantine, bad), (self.table, good)):
            if staged.files[table.name]:
                moves += table.commit(staged.files[table.name], schema, mark)
        return moves

    @override
    def recorded(self, last: BatchMark) -> None:
        write_coverage(self._store, self._options.table, last.state)

    @override
    def maintain(self, spark: SparkSession, *, new_day: bool) -> None:
        for table in self._tables:
            if self._options.compact:
                table.compact(spark)
            if new_day:
                table.clean()


def _rows_of(last: BatchMark | None) -> tuple[int, int]:
    """Rows of the table and of the quarantine so far."""
    if last is None:
        return 0, 0
    return last.state["rows"] - last.state["quarantined"], last.state["quarantined"]
