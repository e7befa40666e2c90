"""Which files an archive has, and of what: from the tables themselves, and what the pipeline says that they cover."""

from __future__ import annotations

from pathlib import Path

from penstock.flight.calls import Pick
from penstock.spark.archived.files import Archive
from penstock.spark.errors import BadOption, StoreFailed
from penstock.spark.options import SourceSettings
from penstock.spark.pipelines.archive.coverage import read_coverage
from penstock.spark.pipelines.archive.main import STATE_FOLDER
from penstock.spark.pipelines.lake.batches import LakeError
from penstock.spark.pipelines.lake.store import S3Options, Store, reason_of
from penstock.spark.pipelines.lake.tables import QUARANTINE, CatalogueOptions, TableFile, kind_of, open_table


def store_of(settings: SourceSettings) -> Store:
    """Where the archive is."""
    return Store(settings.archive, S3Options(**dict(settings.archive_store)))


def catalogue_of(store: Store, settings: SourceSettings) -> CatalogueOptions:
    """Where Iceberg's tables are listed: as the pipeline that has made them was told, or else SQLite beside them."""
    more = dict(settings.archive_catalogue)
    named = {name: more.pop(name) for name in ("folder", "name", "namespace") if name in more}
    folder = named.pop("folder", str(Path(STATE_FOLDER, store.base)) if store.remote else store.full())
    return CatalogueOptions(folder, **named, properties=more)


def list_archive(settings: SourceSettings) -> Archive:
    """What the archive has by now. Raises BadOption if there is none, and StoreFailed if it can't be read."""
    store, name = store_of(settings), settings.archive_table
    place = f"{settings.archive} (table {name})"
    try:
        # In this order: what is covered is in the files that are listed after it.
        covered = read_coverage(store, name)
        if covered is None:
            raise LakeError(f"there is no table {name} that says what it covers: run `penstock pipeline archive` first")
        catalogue = catalogue_of(store, settings)
        files = [file for table in (name, f"{name}_{QUARANTINE}") for file in _files(store, table, catalogue)]
    except LakeError as error:
        raise BadOption(f"option archive: {place}: {error}") from None
    except OSError as error:
        raise StoreFailed(f"option archive: {place} can't be read: {reason_of(error)}") from None
    of = Pick(queue=covered.of.get("queue", ""), pattern=covered.of.get("queuePattern", ""))
    start = covered.start or min((file.first for file in files), default=covered.stop)
    return Archive(place, covered.identity, of, start, covered.stop, tuple(files))


def _files(store: Store, name: str, catalogue: CatalogueOptions) -> list[TableFile]:
    kind = kind_of(store, name, catalogue)
    if kind is None:
        return []
    table = open_table(kind, store, name, catalogue)
    try:
        return table.data_files()
    except table.failures as error:
        raise OSError(reason_of(error)) from None
