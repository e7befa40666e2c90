"""Tables of Delta Lake, by ``deltalake``: the format's own log lists the files of the table.

A batch is one commit with two application transactions: the query with the number of the batch, which identifies
repetitions, and the journal with the position at which the next batch starts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from typing_extensions import override

from penstock.spark.lake.batches import BatchMark
from penstock.spark.lake.disk import sync
from penstock.spark.lake.files import DataFile, Layout
from penstock.spark.lake.store import Store
from penstock.spark.lake.tables import (
    KEEP_HOURS,
    MARK,
    TARGET_BYTES,
    CatalogueOptions,
    TableFile,
    Transactional,
    library,
)

#: Partition columns. Queues are not among them: with many queues, files would be small.
DIVIDED_BY = ("date",)
#: How long commits are kept as files of their own; older ones are in checkpoints.
SETTINGS = {"delta.logRetentionDuration": "interval 7 days"}
#: Commits that are searched for our last one.
COMMITS = 1000


class DeltaFormat(Transactional):
    """A Delta table."""

    log_folder = "_delta_log"

    @override
    def _prepare(self, catalogue: CatalogueOptions, read_only: bool) -> None:
        self._delta: Any = library("deltalake", "spark")
        self._actions: Any = library("deltalake.transaction", "spark")
        errors = library("deltalake.exceptions", "spark")
        self.conflicts = (errors.CommitFailedError,)
        self.failures = (errors.DeltaError, OSError)
        self._uri = self.store.uri(self.name)
        self._table: Any = None

    @override
    @classmethod
    def recognises(cls, store: Store, name: str, catalogue: CatalogueOptions) -> bool:
        return store.exists(f"{name}/{cls.log_folder}")

    @override
    def exists(self) -> bool:
        return self._opened() is not None

    def _opened(self) -> Any:
        if self._table is None:
            options = self.store.delta_options()
            if self._delta.DeltaTable.is_deltatable(self._uri, options):
                self._table = self._delta.DeltaTable(self._uri, storage_options=options)
        return self._table

    @override
    def refresh(self) -> None:
        if self._table is not None:
            self._table.update_incremental()

    @override
    def has(self, query: str, batch: int) -> bool:
        version = self._version(query)
        return version is not None and version >= batch

    @override
    def position(self, identity: str) -> int | None:
        return self._version(_journal(identity))

    def _version(self, application: str) -> int | None:
        table = self._opened()
        version: int | None = None if table is None else table.transaction_version(application)
        return version

    @override
    def last(self) -> BatchMark | None:
        table = self._opened()
        for commit in table.history(COMMITS) if table is not None else ():
            if MARK in commit:
                return msgspec.json.decode(commit[MARK], type=BatchMark)
        return None

    @override
    def layout(self, columns: pa.Schema, prefix: str, attempt: str) -> Layout:
        return Layout(self.name, columns.serialize().to_pybytes(), DIVIDED_BY, inside=False, prefix=prefix)

    @override
    def append(self, files: Sequence[DataFile], columns: pa.Schema, mark: BatchMark) -> None:
        schema = self._delta.Schema.from_arrow(columns)
        actions = [self._action(file) for file in files]
        table = self._opened()
        if table is None:
            self._actions.create_table_with_add_actions(
                self._uri,
                schema,
                actions,
                partition_by=list(DIVIDED_BY),
                configuration=SETTINGS,
                storage_options=self.store.delta_options() or None,
                commit_properties=self._properties(mark),
            )
        else:
            self._grow(table, schema)
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partition_by=list(DIVIDED_BY),
                commit_properties=self._properties(mark),
            )
        self._settle()

    def _properties(self, mark: BatchMark) -> Any:
        transactions = [
            self._delta.Transaction(mark.query, mark.batch),
            self._delta.Transaction(_journal(str(mark.state["identity"])), mark.position),
        ]
        return self._delta.CommitProperties(
            custom_metadata={MARK: msgspec.json.encode(mark).decode()},
            max_commit_retries=0,
            app_transactions=transactions,
        )

    def _grow(self, table: Any, schema: Any) -> None:
        known = {field.name: field for field in table.schema().fields}
        more = [field for field in schema.fields if known.get(field.name) != field]
        if more:
            table.alter.add_columns(more)
            self._settle()

    def _action(self, file: DataFile) -> Any:
        stats = {"numRecords": file.rows, "minValues": file.least, "maxValues": file.greatest}
        return self._actions.AddAction(
            path=file.path.removeprefix(f"{self.name}/"),
            size=file.size,
            partition_values=file.partition,
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=json.dumps({**stats, "nullCount": dict.fromkeys(file.least, 0)}),
        )

    def _settle(self) -> None:
        """Sync the last commit to disk, which the library does not do."""
        self._opened()
        self.refresh()
        if not self.store.remote:
            log = Path(self.store.full(self.name), self.log_folder)
            sync(log / f"{self._table.version():020}.json")
            sync(log)

    @override
    def data_files(self) -> list[TableFile]:
        table = self._opened()
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist() if table is not None else []
        files = [
            TableFile(
                self.store.uri(f"{self.name}/{unquote(row['path'])}"),
                row["min.position"],
                row["max.position"],
                row["num_records"],
                {key.removeprefix("partition."): value for key, value in row.items() if key.startswith("partition.")},
            )
            for row in actions
        ]
        return sorted(files, key=lambda file: file.first)

    @override
    def compact(self, spark: Any) -> int:
        table = self._opened()
        if table is None:
            return 0
        self.refresh()
        mark = self.last()
        metadata = {} if mark is None else {MARK: msgspec.json.encode(mark).decode()}
        try:
            done = table.optimize.compact(
                target_size=TARGET_BYTES, commit_properties=self._delta.CommitProperties(custom_metadata=metadata)
            )
        except self.conflicts:  # another program has changed these files: try again in an hour
            return 0
        self._settle()
        return int(done["numFilesRemoved"])

    @override
    def clean(self) -> None:
        table = self._opened()
        if table is not None:
            table.vacuum(retention_hours=KEEP_HOURS, dry_run=False, full=True)


def _journal(identity: str) -> str:
    return f"{MARK}-journal-{identity}"
