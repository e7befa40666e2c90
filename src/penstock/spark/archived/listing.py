"""Which files an archive has, and of what: from the tables themselves, and what the pipeline says that they cover."""

from __future__ import annotations

from penstock.flight.calls import Pick
from penstock.spark.archived.files import Archive
from penstock.spark.errors import BadOption
from penstock.spark.options import SourceSettings
from penstock.spark.pipelines.archive.coverage import read_coverage
from penstock.spark.pipelines.lake.batches import LakeError
from penstock.spark.pipelines.lake.store import Store, s3_options
from penstock.spark.pipelines.lake.tables import QUARANTINE, CatalogueOptions, kind_of, open_table


def store_of(settings: SourceSettings) -> Store:
    """Where the archive is."""
    try:
        return Store(settings.archive, s3_options(dict(settings.archive_store)))
    except LakeError as error:
        raise BadOption(f"option archiveStore: {error}") from None


def catalogue_of(store: Store, settings: SourceSettings) -> CatalogueOptions:
    """Where Iceberg's tables are listed: as the pipeline that has made them was told, or else SQLite beside them."""
    more = dict(settings.archive_catalogue)
    named = {name: more.pop(name) for name in ("folder", "name", "namespace") if name in more}
    folder = named.pop("folder", "" if store.remote else store.full())
    return CatalogueOptions(folder, **named, properties=more)


def list_archive(settings: SourceSettings) -> Archive:
    """What the archive has by now. Raises BadOption if there is none, or none that could be read."""
    store, name = store_of(settings), settings.archive_table
    place = f"{settings.archive} (table {name})"
    try:
        # In this order: what is covered is in the files that are listed after it.
        covered = read_coverage(store, name)
        if covered is None:
            raise LakeError(f"there is no table {name} that says what it covers: run `penstock pipeline archive` first")
        tables = [name, f"{name}_{QUARANTINE}"]
        catalogue = catalogue_of(store, settings)
        kinds = {table: kind_of(store, table, catalogue) for table in tables}
        files = [
            file
            for table, kind in kinds.items()
            if kind is not None
            for file in open_table(kind, store, table, catalogue).data_files()
        ]
    except (LakeError, OSError) as error:
        raise BadOption(f"option archive: {place}: {error}") from None
    of = Pick(queue=covered.of.get("queue", ""), pattern=covered.of.get("queuePattern", ""))
    start = covered.start or min((file.first for file in files), default=covered.stop)
    return Archive(place, covered.identity, of, start, covered.stop, tuple(files))
