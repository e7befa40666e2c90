"""Runs ``archive``: messages from a broker into a table, and what does not fit its schema into a second one.

A batch is written by executors and committed by the driver: first to the quarantine, then to the table, each once. Date
and hour are those of the batch, not of the messages.
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
from penstock.spark.pipelines.archive.coverage import covered, write_coverage
from penstock.spark.pipelines.archive.payloads import INFER, Decoding, pack, unpack
from penstock.spark.pipelines.archive.rows import columns, ddl_type, divider, find_schema
from penstock.spark.pipelines.lake import files
from penstock.spark.pipelines.lake.batches import Decided, Lake, LakeError
from penstock.spark.pipelines.lake.files import UNCOMMITTED
from penstock.spark.pipelines.lake.store import Store, reason_of, s3_options
from penstock.spark.pipelines.lake.tables import (
    QUARANTINE,
    CatalogueOptions,
    Table,
    catalogue_options,
    kind_of,
    open_table,
)
from penstock.spark.pipelines.run import BrokerSource, PipelineProgress, RunControl, drive, start_of

#: What a new table is, unless something else is asked for.
DEFAULT_KIND = "delta"
#: Folders of a table in which the formats keep their own.
LOG_FOLDERS = ("_delta_log", "metadata")
#: Where pipelines keep what is theirs, for tables in an object store.
STATE_FOLDER = "penstock-state"


class ArchiveOptions(Struct, frozen=True):
    """What can be chosen."""

    queue: str | None = None
    pattern: str | None = None
    table: str = "messages"
    #: delta, iceberg or parquet; None: what the table is already.
    kind: str | None = None
    format: str = "raw"
    #: Columns in Spark's words, ``infer``, or for Avro the schema itself.
    schema: str = ""
    compact: bool = True
    max_bytes: str = "256m"
    clock: Callable[[], float] = time.time
    #: How to reach an object store.
    store: Mapping[str, str] = {}
    #: Iceberg's catalogue, in pyiceberg's words; and ``name`` and ``namespace``.
    catalogue: Mapping[str, str] = {}
    #: The folder for what is ours; None: that of the lake, or for an object store one in the current folder.
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
            self._tell_coverage()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What a store or a format's library says, as what it is to whoever runs the pipeline."""
        try:
            yield
        except self._failures as error:
            raise LakeError(f"the lake {self._store.uri()} can't be used: {reason_of(error)}") from None

    def _tables(self) -> tuple[Table, Table]:
        return self._table, self._quarantine

    def _declared(self) -> Decoding:
        """How payloads are read, as far as the options say."""
        text = self._options.schema
        if self._infers:
            return Decoding("json")
        if self._options.format == "avro" or not text:
            return Decoding(self._options.format, text.encode())
        return Decoding(self._options.format, pack(ddl_type(text)))

    def _check_options(self) -> None:
        """A configuration that makes no sense stops here."""
        options = self._options
        if options.format in ("raw", "text") and options.schema:
            raise ValueError(f"format {options.format} has no schema")
        if options.format == "json" and not options.schema:
            raise ValueError("format json needs a schema: columns (id long, name string), or infer")
        self._decoding.check()

    def _kind(self) -> str:
        """What the table is, or is to be."""
        last, options = self._lake.last(), self._options
        known = last.state.get("kind") if last is not None else None
        found = known or kind_of(self._store, options.table, catalogue_of(self._lake, options))
        if found and options.kind not in (None, found):
            text = f"table {options.table} has been written with kind {found}, not {options.kind}"
            raise LakeError(f"{text}: choose another --table, or another lake")
        return found or options.kind or DEFAULT_KIND

    def _recover(self) -> None:
        """The ledger may be behind the tables, which were committed to first, or lost."""
        told, ledger = self._told(), self._lake.last()
        if told is not None and (ledger is None or told.position > ledger.position):
            self._lake.keep(_committed(told))

    def _told(self) -> Decided | None:
        """What the tables say of the newest batch that is complete."""
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
        """A configuration that the table contradicts stops here, and a table that is not ours."""
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
        """What is part of no table is removed after a while, so a new one must not come where others keep something."""
        for found in self._store.files(name):
            path = self._store.relative(found.path)
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
        """Put one batch away: once, however often it comes."""
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
        found = self._write(messages, number, hour, attempt.name)
        self._commit(found, number, hour, last)
        if last is not None and last.state["hour"] != hour:  # or the clock was set back
            self.maintain(messages.sparkSession, last.state["hour"], hour)
        return sum(file.rows for each in found.values() for file in each)

    def _begun(self, number: int) -> tuple[Decoding, str] | None:
        """How the batch was read, and its hour, if the quarantine has it: the rest must be read the same way."""
        query = self._lake.query()
        if not self._quarantine.has(query, number):
            return None
        told = self._quarantine.last()
        if told is None or (told.query, told.batch) != (query, number):
            return None
        return Decoding(told.state["format"], bytes.fromhex(told.state["decoding"])), told.state["hour"]

    def _write(self, messages: DataFrame, number: int, hour: str, attempt: str) -> dict[str, list[files.DataFile]]:
        """Executors write the files of both tables."""
        prefix = f"batch-{self._lake.query()[:8]}-{number:012}"
        layouts = {
            table.name: table.layout(schema, prefix, self._lake.staged(attempt))
            for table, schema in zip(self._tables(), columns(self._decoding), strict=True)
        }
        divide = divider(self._decoding, hour, self._table.name, self._quarantine.name)
        return files.write(messages.select(*MESSAGES.names), self._store, layouts, divide)

    def _commit(self, found: Mapping[str, list[files.DataFile]], number: int, hour: str, last: Decided | None) -> None:
        good, bad = (found[table.name] for table in self._tables())
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
        self._tell_coverage()

    def _tell_coverage(self) -> None:
        """For those who read the archive by position."""
        last = self._lake.last()
        if last is not None:
            write_coverage(self._store, self._options.table, last.state)

    def _grow(self, messages: DataFrame) -> None:
        last = self._lake.last()
        packed = last.state.get("schema") if last is not None else None
        known = unpack(bytes.fromhex(packed)) if packed else None
        found = find_schema(messages, known)
        self._decoding = Decoding("json", b"" if found is None else pack(found))

    def _state(self, hour: str) -> dict[str, Any]:
        schema = (
            pack(kind).hex() if (kind := self._decoding.type) is not None and self._options.format != "text" else ""
        )
        known = {"kind": self.kind, "format": self._options.format, "decoding": self._decoding.schema.hex()}
        return {"hour": hour, "identity": self._identity, "schema": schema, **known}

    def _now(self) -> str:
        return time.strftime("%Y-%m-%d/%H", time.gmtime(self._options.clock()))

    def maintain(self, spark: SparkSession, before: str, now: str) -> None:
        """After an hour, put small files together; after a day, remove what is part of no table any more."""
        for table in self._tables():
            if self._options.compact:
                table.compact(spark)
            if before[:10] != now[:10]:
                table.clean()


def _committed(mark: Decided) -> Decided:
    """As the tables have it: nothing is to be moved any more."""
    return structs.replace(mark, moves=[], done=True)


def _counted(last: Decided | None, rows: int, quarantined: int) -> dict[str, int]:
    """Rows of all batches, for operators. A lake that was begun without these counts goes on without them."""
    before = {"rows": 0, "quarantined": 0} if last is None else last.state
    if "rows" not in before:
        return {}
    return {"rows": before["rows"] + rows, "quarantined": before["quarantined"] + quarantined}


def _rows_of(state: Mapping[str, Any]) -> tuple[int, int]:
    """How many rows the table and the quarantine have got; 0 where that was not counted."""
    bad = state.get("quarantined", 0)
    return state.get("rows", 0) - bad, bad


def lake_of(folder: str, options: ArchiveOptions) -> Lake:
    """The lake as this table's pipeline sees it. Tables are archived independently of each other."""
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
    """Where Iceberg's tables are listed: SQLite beside what is ours, or what was chosen."""
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
