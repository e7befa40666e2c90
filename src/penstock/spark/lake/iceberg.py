"""Tables of Apache Iceberg, by ``pyiceberg``: a catalogue names the table's newest metadata, which lists its files.

A batch is one commit. The snapshot carries the query and the number of the batch; the table's properties, which are
part of the same commit, describe the newest batch. The default catalogue is our own, in SQLite.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from typing_extensions import override

from penstock.spark.lake.batches import BatchMark
from penstock.spark.lake.disk import sync
from penstock.spark.lake.files import DataFile, Layout
from penstock.spark.lake.iceberg_catalogue import DIVIDED_BY, MARK_QUERY, METADATA, IcebergCatalogue, url_of
from penstock.spark.lake.rewriting import rewrite
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

#: Hours for which old snapshots are kept.
HISTORY_HOURS = 24


class IcebergFormat(Transactional):
    """An Iceberg table."""

    log_folder = "metadata"

    @override
    def _prepare(self, catalogue: CatalogueOptions, read_only: bool) -> None:
        self._catalogue = IcebergCatalogue(self.store, catalogue, read_only=read_only)
        self.conflicts = self._catalogue.conflicts
        self.failures = self._catalogue.failures
        self._table: Any = None

    @override
    @classmethod
    def recognises(cls, store: Store, name: str, catalogue: CatalogueOptions) -> bool:
        if catalogue.ours:
            return store.has_files(f"{name}/{cls.log_folder}", METADATA)
        return cls(store, name, catalogue, read_only=True).exists()

    @override
    def exists(self) -> bool:
        return self._opened() is not None

    def _opened(self) -> Any:
        if self._table is None:
            self._table = self._catalogue.table(self.name)
        return self._table

    @override
    def refresh(self) -> None:
        if self._table is not None:
            self._table.refresh()

    @override
    def has(self, query: str, batch: int) -> bool:
        table = self._opened()
        if table is None or table.properties.get(MARK_QUERY) != query:
            return False
        return int(table.properties["penstock.batch"]) >= batch

    @override
    def last(self) -> BatchMark | None:
        table = self._opened()
        text = table.properties.get(MARK) if table is not None else None
        return None if text is None else msgspec.json.decode(text, type=BatchMark)

    @override
    def position(self, identity: str) -> int | None:
        last = self.last()
        return None if last is None or last.state.get("identity") != identity else last.position

    @override
    def layout(self, columns: pa.Schema, prefix: str, attempt: str) -> Layout:
        # Iceberg requires all columns in the files, partition columns included.
        return Layout(f"{self.name}/data", columns.serialize().to_pybytes(), DIVIDED_BY, inside=True, prefix=prefix)

    @override
    def append(self, files: Sequence[DataFile], columns: pa.Schema, mark: BatchMark) -> None:
        began = time.time()
        table = self._opened()
        marks = {MARK_QUERY: mark.query, "penstock.batch": str(mark.batch)}
        with self._catalogue.creation(self.name, columns) if table is None else _once(table) as transaction:
            if table is not None:
                with transaction.update_schema() as update:
                    update.union_by_name(columns)
            transaction.set_properties({**marks, MARK: msgspec.json.encode(mark).decode()})
            urls = [url_of(self.store, file.path) for file in files]
            transaction.add_files(urls, snapshot_properties=marks, check_duplicate_files=False)
        self._settle(began)

    def _settle(self, since: float) -> None:
        """Sync the metadata to disk, which the library does not do."""
        location = self._opened().metadata_location
        if not self.store.remote and location.startswith(("file:", "/")):
            folder = Path(location.removeprefix("file://")).parent
            for file in folder.iterdir():
                if file.stat().st_mtime >= since - 1:
                    sync(file)
            sync(folder)

    @override
    def data_files(self) -> list[TableFile]:
        table = self._opened()
        files = [self._described(table, task.file) for task in table.scan().plan_files()] if table is not None else []
        return sorted(files, key=lambda file: file.first)

    def _described(self, table: Any, file: Any) -> TableFile:
        number = table.schema().find_field("position").field_id
        first, last = (int.from_bytes(ends[number], "little") for ends in (file.lower_bounds, file.upper_bounds))
        where = self.store.uri(self.store.relative(file.file_path))
        return TableFile(where, first, last, file.record_count, _partition(table, file))

    @override
    def compact(self, spark: Any) -> int:
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
                    update.append_data_file(described(table.io, table.metadata, url_of(self.store, each.new)))
        except self.failures:  # another program has changed these files: try again in an hour
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

    @override
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


def _partition(table: Any, file: Any) -> dict[str, str]:
    spec = table.specs()[file.spec_id]
    return {field.name: str(file.partition[at]) for at, field in enumerate(spec.fields)}


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
