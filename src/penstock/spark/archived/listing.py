"""The files of an archive: from its table, and from the coverage that the pipeline records."""

from __future__ import annotations

from penstock.flight.calls import Pick
from penstock.spark.archived.contents import ArchiveContents
from penstock.spark.errors import BadOption, StoreFailed
from penstock.spark.lake.coverage import read_coverage
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import S3Options, Store, reason_of
from penstock.spark.lake.tables import QUARANTINE, CatalogueOptions, TableFile, catalogue_options, existing_table
from penstock.spark.options import SourceSettings


def store_of(settings: SourceSettings) -> Store:
    """The store of the archive."""
    return Store(settings.archive, S3Options(**dict(settings.archive_store)))


def list_archive(settings: SourceSettings) -> ArchiveContents:
    """The archive's current contents. Raises BadOption if there is none, and StoreFailed if it can't be read."""
    store, name = store_of(settings), settings.archive_table
    place = f"{settings.archive} (table {name})"
    try:
        # In this order: the files listed afterwards contain everything covered.
        covered = read_coverage(store, name)
        if covered is None:
            raise LakeError(f"table {name} has no recorded coverage: run `penstock pipeline archive` first")
        catalogue = catalogue_options(settings.archive_catalogue)
        tables = {name: covered.rows - covered.quarantined, f"{name}_{QUARANTINE}": covered.quarantined}
        files = [file for table, rows in tables.items() for file in _files(store, table, catalogue, rows)]
    except LakeError as error:
        raise BadOption(f"option archive: {place}: {error}") from None
    except OSError as error:
        raise StoreFailed(f"option archive: {place} can't be read: {reason_of(error)}") from None
    of = Pick(queue=covered.of.get("queue", ""), pattern=covered.of.get("queuePattern", ""))
    start = covered.start or min((file.first for file in files), default=covered.stop)
    return ArchiveContents(place, covered.identity, of, start, covered.stop, tuple(files))


def _files(store: Store, name: str, catalogue: CatalogueOptions, rows: int) -> list[TableFile]:
    table = existing_table(store, name, catalogue)
    if table is None:
        if rows:
            raise LakeError(f"table {name} is gone, with its {rows:,} rows: restore it")
        return []
    try:
        return table.data_files()
    except table.failures as error:
        raise OSError(reason_of(error)) from None
