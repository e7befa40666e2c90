"""Tables of Apache Iceberg, by ``pyiceberg``: a catalogue names the table's newest metadata, which lists its files.

A batch is one commit. The snapshot carries the query and the number of the batch; the table's properties, which are
part of the same commit, describe the newest batch. The default catalogue is our own, in SQLite.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock.spark.lake.batches import Decided, LakeError, sync
from penstock.spark.lake.files import DataFile, Layout
from penstock.spark.lake.rewriting import rewrite
from penstock.spark.lake.store import Store, reason_of
from penstock.spark.lake.tables import (
    CATALOGUE,
    KEEP_HOURS,
    MARK,
    TARGET_BYTES,
    CatalogueOptions,
    TableFile,
    Transactional,
    library,
)

#: Partition column of a new table.
DIVIDED_BY = ("date",)
#: The file of our own catalogue.
DATABASE = "iceberg.db"
#: The property, in tables and snapshots, for the query of the batch.
MARK_QUERY = "penstock.query"
#: Properties of a new table: many small commits must not make its metadata grow.
SETTINGS = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
#: Hours for which old snapshots are kept.
HISTORY_HOURS = 24


class IcebergFormat(Transactional):
    """An Iceberg table."""

    kind = "iceberg"

    def __init__(self, store: Store, name: str, options: CatalogueOptions, *, only_read: bool = False) -> None:
        """``only_read``: change nothing, and do without our own catalogue, which may be on another machine."""
        super().__init__(store, name)
        errors = library("pyiceberg.exceptions", "iceberg")
        library("pyiceberg.catalog.sql", "iceberg")
        self._missing = (errors.NoSuchTableError, errors.NoSuchNamespaceError)
        self._unwanted = (errors.BadRequestError, errors.ForbiddenError)
        self._broken = (ValueError, FileNotFoundError, errors.ValidationError)
        self.conflicts = (errors.CommitFailedException,)
        database = library("sqlalchemy.exc", "iceberg").SQLAlchemyError
        self.failures = (*_families(errors), database, OSError)
        self._options = options
        self._only_read = only_read
        self._identifier = f"{options.namespace}.{name}"
        self._table: Any = None

    @property
    def _database(self) -> Path:
        return Path(self._options.folder or self.store.full(), DATABASE)

    @cached_property
    def _catalogue(self) -> Any:
        given = dict(self._options.properties)
        if self._options.ours:
            self._database.parent.mkdir(parents=True, exist_ok=True)
            given = {"type": "sql", "uri": f"sqlite:///{self._database}", "warehouse": _url(self.store, "")}
        try:
            return library("pyiceberg.catalog", "iceberg").load_catalog(
                self._options.name or CATALOGUE, **{**self.store.iceberg_options(), **given}
            )
        except Exception as error:  # each kind of catalogue has its own exceptions
            raise LakeError(f"{self._options.words} can't be used: {reason_of(error)}") from None

    def exists(self) -> bool:
        """Whether the catalogue has it, or had it."""
        return self._opened() is not None

    def _opened(self) -> Any:
        if self._table is None:
            self._table = self._newest() if self._only_read and self._options.ours else self._loaded()
        return self._table

    def _loaded(self) -> Any:
        if self._options.ours and not self._database.exists():
            return self._registered()
        try:
            return self._catalogue.load_table(self._identifier)
        except self._missing:
            return self._registered()

    def _registered(self) -> Any:
        """A table that is there but not in the catalogue, which was lost. Ours is repaired; others are the user's."""
        table = self._newest()
        if table is None:
            return None
        if not self._options.ours:
            text = f"register_table({self._identifier!r}, {table.metadata_location!r})"
            raise LakeError(f"the catalogue does not know table {self.name}, which is there: {text} tells it")
        if self._only_read or MARK_QUERY not in table.properties:
            return table
        self._catalogue.create_namespace_if_not_exists(self._options.namespace)
        return self._catalogue.register_table(self._identifier, table.metadata_location)

    def _newest(self) -> Any:
        """The table from its newest complete metadata: the last file may have been cut off by a crash."""
        listed = [file.path for file in self.store.files(f"{self.name}/metadata", ".metadata.json")]
        table = library("pyiceberg.table", "iceberg").StaticTable
        for path in sorted(listed, key=_version, reverse=True):
            with suppress(*self._broken):
                return table.from_metadata(_url(self.store, self.store.relative(path)), self.store.iceberg_options())
        return None

    def refresh(self) -> None:
        """Ask the catalogue."""
        if self._table is not None:
            self._table.refresh()

    def has(self, query: str, batch: int) -> bool:
        """Whether the table's newest batch is this one or a later one of the same query."""
        table = self._opened()
        if table is None or table.properties.get(MARK_QUERY) != query:
            return False
        return int(table.properties["penstock.batch"]) >= batch

    def last(self) -> Decided | None:
        """The table's newest batch."""
        table = self._opened()
        text = table.properties.get(MARK) if table is not None else None
        return None if text is None else msgspec.json.decode(text, type=Decided)

    def position(self, identity: str) -> int | None:
        """The next position after the newest batch, if it is of this journal."""
        last = self.last()
        return None if last is None or last.state.get("identity") != identity else last.position

    def layout(self, columns: pa.Schema, prefix: str, attempt: str) -> Layout:
        """By date. Iceberg requires all columns in the files."""
        return Layout(f"{self.name}/data", columns.serialize().to_pybytes(), DIVIDED_BY, inside=True, prefix=prefix)

    def append(self, files: Sequence[DataFile], columns: pa.Schema, mark: Decided) -> None:
        """One commit of columns, properties and files."""
        began = time.time()
        table = self._opened()
        marks = {MARK_QUERY: mark.query, "penstock.batch": str(mark.batch)}
        with self._creation(columns) if table is None else _once(table) as transaction:
            if table is not None:
                with transaction.update_schema() as update:
                    update.union_by_name(columns)
            transaction.set_properties({**marks, MARK: msgspec.json.encode(mark).decode()})
            urls = [_url(self.store, file.path) for file in files]
            transaction.add_files(urls, snapshot_properties=marks, check_duplicate_files=False)
        self._settle(began)

    def _creation(self, columns: pa.Schema) -> Any:
        """Create the table with its first batch: a table without one would have no owner."""
        self._catalogue.create_namespace_if_not_exists(self._options.namespace)
        begin = partial(self._catalogue.create_table_transaction, self._identifier, columns, properties=SETTINGS)
        try:
            creation = begin(location=_url(self.store, self.name))
        except self._unwanted:  # the catalogue chooses where metadata is: data files are in the lake
            creation = begin()
        with creation.update_spec() as update:
            for name in DIVIDED_BY:
                update.add_identity(name)
        return creation

    def _settle(self, since: float) -> None:
        """Sync the metadata to disk, which the library does not do."""
        location = self._opened().metadata_location
        if not self.store.remote and location.startswith(("file:", "/")):
            folder = Path(location.removeprefix("file://")).parent
            for file in folder.iterdir():
                if file.stat().st_mtime >= since - 1:
                    sync(file)
            sync(folder)

    def data_files(self) -> list[TableFile]:
        """From the manifests, which have the positions too."""
        table = self._opened()
        files = [self._described(table, task.file) for task in table.scan().plan_files()] if table is not None else []
        return sorted(files, key=lambda file: file.first)

    def _described(self, table: Any, file: Any) -> TableFile:
        number = table.schema().find_field("position").field_id
        first, last = (int.from_bytes(ends[number], "little") for ends in (file.lower_bounds, file.upper_bounds))
        where = self.store.uri(self.store.relative(file.file_path))
        return TableFile(where, first, last, file.record_count, _partition(table, file))

    def compact(self, spark: Any) -> int:
        """Executors write larger files, and one commit replaces the small ones by them."""
        table = self._opened()
        groups = self._small_files() if table is not None else []
        folder = f"{self.name}/data"
        done = rewrite(spark, self.store, [[_path(self.store, each) for each in group] for group in groups], folder)
        if not done:
            return 0
        known = {_path(self.store, file): file for group in groups for file in group}
        described = library("pyiceberg.io.pyarrow", "iceberg").parquet_file_to_data_file
        began = time.time()
        try:
            with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
                for each in done:
                    for old in each.old:
                        update.delete_data_file(known[old])
                    update.append_data_file(described(table.io, table.metadata, _url(self.store, each.new)))
        except self.failures:  # somebody else has changed these files: next time
            return 0
        self._settle(began)
        return sum(len(each.old) for each in done)

    def _small_files(self) -> list[list[Any]]:
        """Groups of files to merge, by partition and in the order of their positions."""
        self.refresh()
        parts: defaultdict[str, list[Any]] = defaultdict(list)
        for task in self._table.scan().plan_files():
            if task.file.file_size_in_bytes < TARGET_BYTES and not task.delete_files:
                parts[str(_partition(self._table, task.file))].append(task.file)
        groups: list[list[Any]] = []
        for files in parts.values():
            size = TARGET_BYTES
            for file in sorted(files, key=lambda each: self._described(self._table, each).first):
                size += file.file_size_in_bytes
                if size > TARGET_BYTES:
                    groups.append([])
                    size = file.file_size_in_bytes
                groups[-1].append(file)
        return [group for group in groups if len(group) > 1]

    def clean(self) -> None:
        """Expire old snapshots through the library, then remove unreferenced files, which it leaves behind."""
        table = self._opened()
        if table is None:
            return
        now = datetime.now(UTC)
        table.maintenance.expire_snapshots().older_than(now - timedelta(hours=HISTORY_HOURS)).commit()
        self.refresh()
        known = set(_referenced(self.store, table))
        for file in list(self.store.files(self.name)):
            path = self.store.relative(file.path)
            if path not in known and file.mtime < now - timedelta(hours=KEEP_HOURS):
                self.store.remove(path)


def _once(table: Any) -> Any:
    """A transaction without the library's retries: before each retry we check whether the batch is already there."""
    table.metadata.properties["commit.retry.num-retries"] = "0"
    return table.transaction()


def _families(errors: Any) -> tuple[type[Exception], ...]:
    """All of the library's exceptions, which have no common base."""
    kinds = (each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception))
    return tuple(each for each in kinds if each.__module__ == errors.__name__)


def _partition(table: Any, file: Any) -> dict[str, str]:
    spec = table.specs()[file.spec_id]
    return {field.name: str(file.partition[at]) for at, field in enumerate(spec.fields)}


def _version(path: str) -> tuple[int, str]:
    """The number at the start of a metadata file's name."""
    name = path.rpartition("/")[2]
    number = re.match(r"v?(\d+)", name)
    return (int(number[1]) if number else 0), name


def _url(store: Store, path: str) -> str:
    return store.uri(path) if store.remote else f"file://{store.full(path)}"


def _path(store: Store, file: Any) -> str:
    return store.relative(file.file_path)


def _referenced(store: Store, table: Any) -> Iterator[str]:
    """Every file that any snapshot refers to."""
    yield store.relative(table.metadata_location)
    yield from (store.relative(entry.metadata_file) for entry in table.metadata.metadata_log)
    seen: set[str] = set()
    for snapshot in table.snapshots():
        yield store.relative(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield store.relative(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                yield store.relative(entry.data_file.file_path)
