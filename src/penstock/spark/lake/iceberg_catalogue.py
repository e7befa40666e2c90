"""The catalogue of Iceberg tables: our own in SQLite, which is repaired if it is lost, or one of the user's."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import Store, reason_of
from penstock.spark.lake.tables import CATALOGUE, CatalogueOptions, library

#: The file of our own catalogue.
DATABASE = "iceberg.db"
#: How names of a table's metadata files end.
METADATA = ".metadata.json"
#: Partition column of a new table.
DIVIDED_BY = ("date",)
#: The property, in tables and snapshots, for the query of the batch.
MARK_QUERY = "penstock.query"
#: Properties of a new table: many small commits must not make its metadata grow.
SETTINGS = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergCatalogue:
    """Finds and creates tables."""

    def __init__(self, store: Store, options: CatalogueOptions, *, read_only: bool) -> None:
        errors = library("pyiceberg.exceptions", "iceberg")
        library("pyiceberg.catalog.sql", "iceberg")
        self._missing = (errors.NoSuchTableError, errors.NoSuchNamespaceError)
        self._unwanted = (errors.BadRequestError, errors.ForbiddenError)
        self._broken = (ValueError, FileNotFoundError, errors.ValidationError)
        #: The exceptions for a commit that lost against another one.
        self.conflicts: tuple[type[Exception], ...] = (errors.CommitFailedException,)
        database = library("sqlalchemy.exc", "iceberg").SQLAlchemyError
        #: All exceptions of the library and its store.
        self.failures = (*_exceptions_in(errors), database, OSError)
        self._store = store
        self._options = options
        self._read_only = read_only

    def table(self, name: str) -> Any:
        """The library's table; None if there is none."""
        if self._options.ours and (self._read_only or not self._database.exists()):
            return self._newest(name) if self._read_only else self._registered(name)
        try:
            return self._catalogue.load_table(self._identifier(name))
        except self._missing:
            return self._registered(name)

    def creation(self, name: str, columns: pa.Schema) -> Any:
        """A transaction that creates the table with its first batch: a table without one would have no owner."""
        self._catalogue.create_namespace_if_not_exists(self._options.namespace)
        begin = partial(self._catalogue.create_table_transaction, self._identifier(name), columns, properties=SETTINGS)
        try:
            creation = begin(location=url_of(self._store, name))
        except self._unwanted:  # the catalogue chooses where metadata is: data files are in the lake
            creation = begin()
        with creation.update_spec() as update:
            for column in DIVIDED_BY:
                update.add_identity(column)
        return creation

    def _identifier(self, name: str) -> str:
        return f"{self._options.namespace}.{name}"

    @property
    def _database(self) -> Path:
        return Path(self._options.folder or self._store.full(), DATABASE)

    @cached_property
    def _catalogue(self) -> Any:
        given = dict(self._options.properties)
        if self._options.ours:
            self._database.parent.mkdir(parents=True, exist_ok=True)
            given = {"type": "sql", "uri": f"sqlite:///{self._database}", "warehouse": url_of(self._store, "")}
        try:
            return library("pyiceberg.catalog", "iceberg").load_catalog(
                self._options.name or CATALOGUE, **{**self._store.iceberg_options(), **given}
            )
        except Exception as error:  # each kind of catalogue has its own exceptions
            raise LakeError(f"{self._options.words} can't be used: {reason_of(error)}") from None

    def _registered(self, name: str) -> Any:
        """A table that its catalogue may lack. Our own catalogue is repaired; others are up to the user."""
        table = self._newest(name)
        if table is None:
            return None
        if not self._options.ours:
            call = f"register_table({self._identifier(name)!r}, {table.metadata_location!r})"
            raise LakeError(f"table {name} exists, but its catalogue does not list it: register it with {call}")
        if MARK_QUERY not in table.properties:
            return table
        self._catalogue.create_namespace_if_not_exists(self._options.namespace)
        return self._catalogue.register_table(self._identifier(name), table.metadata_location)

    def _newest(self, name: str) -> Any:
        """The table from its newest complete metadata: the last file may have been cut off by a crash."""
        listed = [file.path for file in self._store.files(f"{name}/metadata", METADATA)]
        table = library("pyiceberg.table", "iceberg").StaticTable
        for path in sorted(listed, key=_version, reverse=True):
            with suppress(*self._broken):
                url = url_of(self._store, self._store.relative(path))
                return table.from_metadata(url, self._store.iceberg_options())
        return None


def url_of(store: Store, path: str) -> str:
    """The URL of a path of the store, as Iceberg's metadata has it."""
    return store.uri(path) if store.remote else f"file://{store.full(path)}"


def _version(path: str) -> tuple[int, str]:
    """The number at the start of a metadata file's name."""
    name = path.rpartition("/")[2]
    number = re.match(r"v?(\d+)", name)
    return (int(number[1]) if number else 0), name


def _exceptions_in(errors: Any) -> tuple[type[Exception], ...]:
    """All of the library's exceptions, which have no common base."""
    kinds = (each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception))
    return tuple(each for each in kinds if each.__module__ == errors.__name__)
