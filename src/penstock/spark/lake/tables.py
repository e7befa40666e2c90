"""A table of the lake in any format: executors write files, the driver commits them once, others read them.

A commit records the query and the batch, so that a repetition adds nothing, and what a pipeline needs to continue:
where the next batch starts, and in which journal. So a table describes its own content.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from msgspec import Struct
from typing_extensions import override

from penstock.spark.lake.batches import BatchMark
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.files import DataFile, Layout
from penstock.spark.lake.store import Store, from_file, reason_of
from penstock.spark.lake.table_formats import FORMATS

QUARANTINE = "quarantine"
#: The property of commits for the pipeline's state.
MARK = "penstock"
#: The name of our own catalogue of Iceberg tables, and of one without a name.
CATALOGUE = "penstock"
#: Attempts of a commit that loses against concurrent ones.
TRIES = 5
#: Smaller files are merged until they have this size.
TARGET_BYTES = 128 * 2**20
#: Hours for which files stay that no longer belong to a table: running queries may still read them, and abandoned tasks
#: may still write them.
KEEP_HOURS = 168


class TableFile(Struct, frozen=True):
    """A data file of a table for readers: its path and its positions.

    ``partition`` are columns with one value for all of its rows, which the file itself may lack.
    """

    path: str
    first: int
    last: int
    rows: int
    partition: dict[str, str]


class CatalogueOptions(Struct, frozen=True):
    """The catalogue of Iceberg tables: a name and properties for pyiceberg. Without either, SQLite in ``folder``."""

    folder: str = ""
    name: str = ""
    namespace: str = "lake"
    properties: Mapping[str, str] = {}

    @property
    def ours(self) -> bool:
        """Whether it is the pipelines' own catalogue."""
        return not self.name and not self.properties

    @property
    def words(self) -> str:
        """Its description for errors, without secrets."""
        kind = self.properties.get("type", "")
        return f"the catalogue {self.name or CATALOGUE}" + (f" of type {kind}" if kind else "")

    def __repr__(self) -> str:
        return f"CatalogueOptions(name={self.name!r}, namespace={self.namespace!r})"


def catalogue_options(given: Iterable[tuple[str, str]], folder: str = "") -> CatalogueOptions:
    """Parse options, of which ``name`` and ``namespace`` are ours. ``@FILE`` as a value is replaced by its content."""
    more = {name: from_file(f"the catalogue's {name}", value) for name, value in given}
    named = {name: more.pop(name) for name in ("name", "namespace") if name in more}
    return CatalogueOptions(folder, **named, properties=more)


class Table(ABC):
    """A table. It has a name, but may not exist yet."""

    #: The folder of the format's own log in the table's folder; empty if it has none.
    log_folder: ClassVar[str] = ""
    #: All exceptions of the format's library and its store.
    failures: tuple[type[Exception], ...] = (OSError,)

    def __init__(
        self, store: Store, name: str, catalogue: CatalogueOptions | None = None, *, read_only: bool = False
    ) -> None:
        """``read_only``: change nothing, not even the leftovers of an earlier run."""
        self.store = store
        self.name = name
        self._prepare(catalogue or CatalogueOptions(), read_only)

    def _prepare(self, catalogue: CatalogueOptions, read_only: bool) -> None:  # noqa: B027 - plain files need none
        """Load the format's library."""

    @classmethod
    @abstractmethod
    def recognises(cls, store: Store, name: str, catalogue: CatalogueOptions) -> bool:
        """Whether the table with this name has this format."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the table exists."""

    @abstractmethod
    def layout(self, columns: pa.Schema, prefix: str, attempt: str) -> Layout:
        """How executors must lay out its files."""

    @abstractmethod
    def commit(self, files: Sequence[DataFile], columns: pa.Schema, mark: BatchMark) -> list[tuple[str, str]]:
        """Add files to the table, once. Returns files to move when the batch is decided, and where to."""

    @abstractmethod
    def data_files(self) -> list[TableFile]:
        """Its files, by position."""

    def begin(self, identity: str) -> None:  # noqa: B027 - plain files can't tell who else writes
        """From now on, detect other writers that add rows of this journal."""

    def has(self, query: str, batch: int) -> bool:
        """Whether it has this batch, as far as the table itself records it."""
        return False

    def last(self) -> BatchMark | None:
        """Its newest batch, as far as the table itself records it."""
        return None

    def position(self, identity: str) -> int | None:
        """Where the next batch from this journal starts, as far as the table itself records it."""
        return None

    def compact(self, spark: Any) -> int:
        """Merge small files. Returns how many there were."""
        return 0

    def clean(self) -> None:  # noqa: B027 - plain files are never left behind
        """Remove files that have belonged to no table for a while."""


class Transactional(Table):
    """A table whose format has commits: each batch is committed once, with no foreign rows in between."""

    #: The library's exceptions for a commit that lost against another one.
    conflicts: tuple[type[Exception], ...] = ()

    #: The journal that this table was opened for, and the next position at the last refresh.
    _seen: tuple[str, int | None] | None = None

    @abstractmethod
    def refresh(self) -> None:
        """Load the newest commits of other writers."""

    @abstractmethod
    def append(self, files: Sequence[DataFile], columns: pa.Schema, mark: BatchMark) -> None:
        """One commit, including new columns. Raises one of ``conflicts``."""

    @override
    def begin(self, identity: str) -> None:
        self.refresh()
        self._seen = identity, self.position(identity)

    @override
    def commit(self, files: Sequence[DataFile], columns: pa.Schema, mark: BatchMark) -> list[tuple[str, str]]:
        try:
            self._commit(files, columns, mark)
        except self.failures as error:
            raise LakeError(f"table {self.name} can't be written: {reason_of(error)}") from None
        return []

    def _commit(self, files: Sequence[DataFile], columns: pa.Schema, mark: BatchMark) -> None:
        identity = str(mark.state["identity"])
        for _ in range(TRIES):
            self.refresh()
            if self.has(mark.query, mark.batch):  # it was repeated, or the answer to its commit was lost
                self._seen = identity, self.position(identity)
                return
            if self._seen is not None and self.position(identity) != self._seen[1]:
                text = "has messages of this journal from another pipeline"
                raise LakeError(f"table {self.name} {text}: run `archive` for a table in one place only")
            try:
                self.append(files, columns, mark)
            except self.conflicts:
                continue
            self._seen = identity, mark.position
            return
        raise LakeError(
            f"table {self.name} is being written by another program, {TRIES} times in a row: try again later"
        )


def library(module: str, extra: str) -> Any:
    """Import a format's library."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise LakeError(f"this table format needs another package: pip install 'penstock[{extra}]'") from None


def open_table(
    kind: str, store: Store, name: str, catalogue: CatalogueOptions | None = None, *, read_only: bool = False
) -> Table:
    """The table with this name and format, which may not exist yet. ``read_only``: for readers."""
    return table_class(kind)(store, name, catalogue, read_only=read_only)


def table_class(kind: str) -> type[Table]:
    """The class of a format's tables."""
    module, _, name = FORMATS[kind].table.partition(":")
    found: type[Table] = getattr(importlib.import_module(module), name)
    return found


def kind_of(store: Store, name: str, catalogue: CatalogueOptions | None = None) -> str | None:
    """The format of the table with this name; None if there is none."""
    options = catalogue or CatalogueOptions()
    return next((kind for kind in FORMATS if table_class(kind).recognises(store, name, options)), None)


def existing_table(store: Store, name: str, catalogue: CatalogueOptions | None = None) -> Table | None:
    """A table of any format, for readers; None if there is none."""
    kind = kind_of(store, name, catalogue)
    return None if kind is None else open_table(kind, store, name, catalogue, read_only=True)


def data_files(store: Store, name: str, catalogue: CatalogueOptions | None = None) -> list[TableFile]:
    """The data files of a table of any format with their positions, by position."""
    table = existing_table(store, name, catalogue)
    if table is None:
        text = "run `penstock pipeline archive` first"
        raise LakeError(f"there is no table {name} in the lake {store.uri()}: {text}")
    return table.data_files()
