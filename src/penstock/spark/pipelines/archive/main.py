"""Runs ``archive``: messages from a broker into a table, and those that do not fit its schema into a second one.

Executors write a batch, and the driver commits it once: first to the quarantine, then to the table. Date and hour are
those of the batch, not of the messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from pyspark.sql import DataFrame, SparkSession

from penstock.journal.views.arrow import MESSAGES
from penstock.spark.lake import files
from penstock.spark.lake.batches import Decided, Lake, LakeError
from penstock.spark.lake.coverage import covered, write_coverage
from penstock.spark.lake.files import UNCOMMITTED
from penstock.spark.lake.store import Store, reason_of, s3_options
from penstock.spark.lake.tables import (
    QUARANTINE,
    CatalogueOptions,
    Table,
    catalogue_options,
    kind_of,
    open_table,
)
from penstock.spark.pipelines.archive.payloads import INFER, Decoding, pack, unpack
from penstock.spark.pipelines.archive.rows import columns, ddl_type, divider, find_schema
from penstock.spark.pipelines.run import BrokerSource, PipelineProgress, RunControl, drive, start_of

#: The format of a new table by default.
DEFAULT_KIND = "delta"
#: Folders of a table that belong to the formats.
LOG_FOLDERS = ("_delta_log", "metadata")
#: Local state of pipelines whose tables are in an object store.
STATE_FOLDER = "penstock-state"


class ArchiveOptions(Struct, frozen=True):
    """The pipeline's options."""

    queue: str | None = None
    pattern: str | None = None
    table: str = "messages"
    #: delta, iceberg or parquet; None: the table's format.
    kind: str | None = None
    format: str = "raw"
    #: Columns as Spark DDL, ``infer``, or for Avro the schema itself.
    schema: str = ""
    compact: bool = True
    max_bytes: str = "256m"
    clock: Callable[[], float] = time.time
    #: Options of the object store.
    store: Mapping[str, str] = {}
    #: Properties of Iceberg's catalogue for pyiceberg, and ``name`` and ``namespace``.
    catalogue: Mapping[str, str] = {}
    #: The folder of the pipeline's state; None: in the lake, or for an object store in the current folder.
    state: str | None = None

    def __repr__(self) -> str:
        return f"ArchiveOptions(table={self.table!r}, kind={self.kind!r}, format={self.format!r})"


class Archive:
    """The pipeline on one lake."""

    def __init__(self, lake: Lake, options: ArchiveOptions, identity: str = "") -> None:
        """``identity`` is that of the broker's journal."""
        assert lake.store is not None
        self._identity = identity
        self._lake = lake
        self._store = lake.store
        self._options = options
        self._infers = options.format == "json" and options.schema == INFER
        self._decoding = self._declared()
        self._check_options()
        self._failures: tuple[type[Exception], ...] = (OSError,)
        with self._explained():
            self.kind = self._kind()
            catalogue = catalogue_of(lake, options)
            self._table = open_table(self.kind, self._store, options.table, catalogue)
            self._quarantine = open_table(self.kind, self._store, f"{options.table}_{QUARANTINE}", catalogue)
        self._failures = self._table.failures
        with self._explained():
            self._recover()
            self._check_table()
            for table in self._tables():
                table.begin(identity)
            self._record_coverage()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of a store or a format's library into LakeError."""
        try:
            yield
        except self._failures as error:
            raise LakeError(f"the lake {self._store.uri()} can't be used: {reason_of(error)}") from None

    def _tables(self) -> tuple[Table, Table]:
        return self._table, self._quarantine

    def _declared(self) -> Decoding:
        """How to read payloads, as far as the options say."""
        text = self._options.schema
        if self._infers:
            return Decoding("json")
        if self._options.format == "avro" or not text:
            return Decoding(self._options.format, text.encode())
        return Decoding(self._options.format, pack(ddl_type(text)))

    def _check_options(self) -> None:
        """Raise for a contradictory configuration."""
        options = self._options
        if options.format in ("raw", "text") and options.schema:
            raise ValueError(f"format {options.format} has no schema")
        if options.format == "json" and not options.schema:
            raise ValueError("format json needs a schema: columns (id long, name string), or infer")
        self._decoding.check()

    def _kind(self) -> str:
        """The table's format, existing or new."""
        last, options = self._lake.last(), self._options
        known = last.state.get("kind") if last is not None else None
        existing = known or kind_of(self._store, options.table, catalogue_of(self._lake, options))
        if existing and options.kind not in (None, existing):
            text = f"table {options.table} has been written with kind {existing}, not {options.kind}"
            raise LakeError(f"{text}: choose another --table, or another lake")
        return existing or options.kind or DEFAULT_KIND

    def _recover(self) -> None:
        """Catch up with the tables, which are committed to before the ledger. The ledger may also be lost."""
        newest, ledger = self._newest_batch(), self._lake.last()
        if newest is not None and (ledger is None or newest.position > ledger.position):
            self._lake.keep(_committed(newest))

    def _newest_batch(self) -> Decided | None:
        """The newest complete batch according to the tables."""
        good, bad = self._table.last(), self._quarantine.last()
        if bad is None or (good is not None and good.position >= bad.position):
            return good
        if not bad.state["good"]:
            return bad
        if not self._lake.query():
            text = f"batch {bad.batch} is in {self._quarantine.name} but not in {self._table.name}, and the checkpoint"
            raise LakeError(f"{text} that would repeat it ({self._lake.checkpoint}) is gone: restore that")
        return good

    def _check_table(self) -> None:
        """Raise if the table contradicts the configuration, or does not belong to this pipeline."""
        options, last = self._options, self._lake.last()
        there = [table.name for table in self._tables() if table.exists()]
        marks = [mark for table in self._tables() if (mark := table.last()) is not None]
        if last is None and there and not any(mark.query == self._lake.query() for mark in marks):
            text = f"is there, but nothing says what was written to it ({self._lake.hidden} is not complete)"
            raise LakeError(f"table {there[0]} {text}: restore that, remove the table, or choose another --table")
        before = last.state if last is not None else {}
        for table, rows in zip(self._tables(), _rows_of(before), strict=True):
            if rows and table.name not in there:
                text = f"is gone, but {self._lake.hidden} says that it had {rows:,} rows"
                raise LakeError(f"table {table.name} {text}: restore the table, or remove that as well to begin anew")
            if table.name not in there:
                self._check_folder(table.name)
        if before.get("format", options.format) != options.format:
            text = f"table {options.table} has been written with format {before['format']}, not {options.format}"
            raise LakeError(f"{text}: choose another --table, or another lake")
        if not self._infers and self._decoding.type is not None and before.get("schema"):
            self._check_growth(bytes.fromhex(before["schema"]))

    def _check_folder(self, name: str) -> None:
        """Raise if others keep files there: files that belong to no table are removed after a while."""
        for file in self._store.files(name):
            path = self._store.relative(file.path)
            if not UNCOMMITTED.search(path) and not path.startswith(
                tuple(f"{name}/{folder}/" for folder in LOG_FOLDERS)
            ):
                raise LakeError(f"table {name} would be where somebody else has {path}: choose another --table")

    def _check_growth(self, before: bytes) -> None:
        old, new = unpack(before), self._decoding.type
        if new is None or old == new:
            return
        names = {old.field(at).name: old.field(at).type for at in range(old.num_fields)}
        for name, kind in names.items():
            at = new.get_field_index(name)
            if at < 0 or new.field(at).type != kind:
                raise LakeError(f"column value.{name} of the table is {kind}: a schema may grow, but not change")

    def batch(self, messages: DataFrame, number: int) -> int:
        """Archive a batch: once, however often it comes."""
        with self._explained():
            return self._batch(messages, number)

    def _batch(self, messages: DataFrame, number: int) -> int:
        attempt = self._lake.begin(number)
        if attempt is None:
            return 0
        last = self._lake.last()
        begun = self._begun(number)
        if begun is not None:
            self._decoding, hour = begun
        else:
            if self._infers:
                self._grow(messages)
            hour = self._now()
        written = self._write(messages, number, hour, attempt.name)
        self._commit(written, number, hour, last)
        if last is not None and last.state["hour"] != hour:  # or the clock was set back
            self.maintain(messages.sparkSession, last.state["hour"], hour)
        return sum(file.rows for each in written.values() for file in each)

    def _begun(self, number: int) -> tuple[Decoding, str] | None:
        """The decoding and the hour of a batch that the quarantine already has: the rest must be read the same way."""
        query = self._lake.query()
        if not self._quarantine.has(query, number):
            return None
        newest = self._quarantine.last()
        if newest is None or (newest.query, newest.batch) != (query, number):
            return None
        return Decoding(newest.state["format"], bytes.fromhex(newest.state["decoding"])), newest.state["hour"]

    def _write(self, messages: DataFrame, number: int, hour: str, attempt: str) -> dict[str, list[files.DataFile]]:
        """Have executors write the files of both tables."""
        prefix = f"batch-{self._lake.query()[:8]}-{number:012}"
        layouts = {
            table.name: table.layout(schema, prefix, self._lake.staged(attempt))
            for table, schema in zip(self._tables(), columns(self._decoding), strict=True)
        }
        divide = divider(self._decoding, hour, self._table.name, self._quarantine.name)
        return files.write(messages.select(*MESSAGES.names), self._store, layouts, divide)

    def _commit(self, new: Mapping[str, list[files.DataFile]], number: int, hour: str, last: Decided | None) -> None:
        good, bad = (new[table.name] for table in self._tables())
        rows = [sum(file.rows for file in each) for each in (good, bad)]
        position = max([last.position if last else 0, *(file.last + 1 for file in (*good, *bad))])
        state = {**self._state(hour), **_counted(last, sum(rows), rows[1]), "good": rows[0]}
        state |= covered(self._lake.checkpoint, number, last.state if last is not None else None)
        mark = Decided(self._lake.query(), number, [], position, False, state)
        moves: list[tuple[str, str]] = []
        good_columns, bad_columns = columns(self._decoding)
        for table, each, schema in ((self._quarantine, bad, bad_columns), (self._table, good, good_columns)):
            if each:
                moves += table.commit(each, schema, _committed(mark))
        self._lake.keep(structs.replace(mark, moves=moves))
        self._record_coverage()

    def _record_coverage(self) -> None:
        """Record the coverage, for readers by position."""
        last = self._lake.last()
        if last is not None:
            write_coverage(self._store, self._options.table, last.state)

    def _grow(self, messages: DataFrame) -> None:
        last = self._lake.last()
        packed = last.state.get("schema") if last is not None else None
        known = unpack(bytes.fromhex(packed)) if packed else None
        schema = find_schema(messages, known)
        self._decoding = Decoding("json", b"" if schema is None else pack(schema))

    def _state(self, hour: str) -> dict[str, Any]:
        schema = (
            pack(kind).hex() if (kind := self._decoding.type) is not None and self._options.format != "text" else ""
        )
        known = {"kind": self.kind, "format": self._options.format, "decoding": self._decoding.schema.hex()}
        return {"hour": hour, "identity": self._identity, "schema": schema, **known}

    def _now(self) -> str:
        return time.strftime("%Y-%m-%d/%H", time.gmtime(self._options.clock()))

    def maintain(self, spark: SparkSession, before: str, now: str) -> None:
        """After an hour, merge small files; after a day, remove files that belong to no table any more."""
        for table in self._tables():
            if self._options.compact:
                table.compact(spark)
            if before[:10] != now[:10]:
                table.clean()


def _committed(mark: Decided) -> Decided:
    """A batch as tables record it, without files to move."""
    return structs.replace(mark, moves=[], done=True)


def _counted(last: Decided | None, rows: int, quarantined: int) -> dict[str, int]:
    """Rows of all batches, for operators. A lake that began without these counts continues without them."""
    before = {"rows": 0, "quarantined": 0} if last is None else last.state
    if "rows" not in before:
        return {}
    return {"rows": before["rows"] + rows, "quarantined": before["quarantined"] + quarantined}


def _rows_of(state: Mapping[str, Any]) -> tuple[int, int]:
    """Rows of the table and of the quarantine so far; 0 if not counted."""
    bad = state.get("quarantined", 0)
    return state.get("rows", 0) - bad, bad


def lake_of(folder: str, options: ArchiveOptions) -> Lake:
    """The lake for this table's pipeline. Tables are archived independently of each other."""
    if not options.table.replace("_", "").isalnum() or options.table.startswith("_"):
        raise ValueError(f"{options.table!r} is no name for a table: letters, digits and _ are")
    if options.table == "insight" or options.table.endswith(f"_{QUARANTINE}"):
        raise ValueError(f"{options.table!r} is no name for a table: it is what pipelines make of their own")
    store = Store(folder, s3_options(options.store))
    if options.store and not store.remote:
        raise LakeError(f"store options are for s3://…, and the lake {folder} is a local folder")
    ours = options.state or (str(Path(STATE_FOLDER, store.base)) if store.remote else store.full())
    return Lake(ours, f"archive-{options.table}", store)


def catalogue_of(lake: Lake, options: ArchiveOptions) -> CatalogueOptions:
    """The catalogue of Iceberg tables: SQLite beside the pipeline's state, or the configured one."""
    return catalogue_options(options.catalogue.items(), str(lake.root))


def run(
    spark: SparkSession, broker: BrokerSource, folder: str, options: ArchiveOptions, how: RunControl
) -> PipelineProgress:
    """Run the pipeline."""
    lake = lake_of(folder, options)
    assert lake.store is not None
    lake.store.check()
    with lake.locked():
        lake.prepare()
        identity = broker.reach().identity
        pipeline = Archive(lake, options, identity)
        picked = {"queue": options.queue, "queuePattern": options.pattern, "maxBytesPerTrigger": options.max_bytes}
        messages = broker.stream(spark, view="messages", startingPosition=start_of(lake, identity), **picked)
        return drive(messages, lake, pipeline.batch, how)
