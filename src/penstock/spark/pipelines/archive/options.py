"""The options of ``archive``, the lake that they name, and the sink that they select."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.spark.lake.batches import Lake
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import Store, s3_options
from penstock.spark.lake.tables import QUARANTINE, CatalogueOptions, catalogue_options, kind_of
from penstock.spark.pipelines.archive.sink import Sink
from penstock.spark.pipelines.archive.sinks import DEFAULT_KIND, SINKS

#: Local state of pipelines whose tables are in an object store.
STATE_FOLDER = "penstock-state"


class ArchiveOptions(Struct, frozen=True):
    """The pipeline's options."""

    queue: str | None = None
    pattern: str | None = None
    table: str = "messages"
    #: One of ``SINKS``; None: the existing table's.
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
    #: Values of the sink's own flags.
    sink: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"ArchiveOptions(table={self.table!r}, kind={self.kind!r}, format={self.format!r})"


def lake_of(folder: str, options: ArchiveOptions) -> Lake:
    """The lake for this table's pipeline. Tables are archived independently of each other."""
    if not options.table.replace("_", "").isalnum() or options.table.startswith("_"):
        raise ValueError(
            f"{options.table!r} is not a valid table name: use letters, digits and _, but no _ at the start"
        )
    if options.table == "insight" or options.table.endswith(f"_{QUARANTINE}"):
        raise ValueError(f"{options.table!r} is not a valid table name: pipelines use it for their own tables")
    store = Store(folder, s3_options(options.store))
    if options.store and not store.remote:
        raise LakeError(f"store options are for s3://…, and the lake {folder} is a local folder")
    ours = options.state or (str(Path(STATE_FOLDER, store.base)) if store.remote else store.full())
    return Lake(ours, f"archive-{options.table}", store)


def catalogue_of(lake: Lake, options: ArchiveOptions) -> CatalogueOptions:
    """The catalogue of Iceberg tables: SQLite beside the pipeline's state, or the configured one."""
    return catalogue_options(options.catalogue.items(), str(lake.root))


def choose_kind(lake: Lake, options: ArchiveOptions) -> str:
    """The kind of an archive, existing or new. Raises LakeError if it exists with another kind."""
    last = lake.last()
    existing = (
        last.state["kind"] if last is not None else kind_of(lake.store, options.table, catalogue_of(lake, options))
    )
    if existing and options.kind not in (None, existing):
        text = f"table {options.table} has been written with kind {existing}, not {options.kind}"
        raise LakeError(f"{text}: choose another --table, or another lake")
    return str(existing or options.kind or DEFAULT_KIND)


def open_sink(lake: Lake, options: ArchiveOptions, kind: str) -> Sink[Any]:
    """The sink of this kind. Raises ValueError for flags of another kind."""
    own = {flag.name for flag in SINKS[kind].flags}
    foreign = next((name for name in options.sink if name not in own), None)
    if foreign is not None:
        raise ValueError(f"--{foreign} is not a flag of kind {kind}: leave it out, or choose another --kind")
    module, _, name = SINKS[kind].sink.partition(":")
    sink: Sink[Any] = getattr(importlib.import_module(module), name)(lake, replace(options, kind=kind))
    return sink
