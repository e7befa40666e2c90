"""Plain Parquet: files in folders by namespace, queue, date and hour, and nothing else.

Nothing lists which files belong together. So executors write outside of the table, and when the batch is decided
(``batches.py``) its files are moved into place, one by one, and never change again. A file's name contains its batch
and its positions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa
from typing_extensions import override

from penstock.spark.lake.batches import BatchMark
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.files import NO_NAME, UNCOMMITTED, DataFile, Layout
from penstock.spark.lake.store import Store
from penstock.spark.lake.tables import CatalogueOptions, Table, TableFile

DIVIDED_BY = ("namespace", "queue", "date", "hour")
#: Query, batch, number, first and last position, rows.
_NAME = re.compile(r"batch-.{1,8}-\d+-\d+-(\d+)-(\d+)-(\d+)\.parquet")
_EXAMPLE = "batch-0f3a9c21-000000000007-0000-4711-5710-1000.parquet"


class ParquetFormat(Table):
    """A folder of Parquet files."""

    @override
    @classmethod
    def recognises(cls, store: Store, name: str, catalogue: CatalogueOptions) -> bool:
        paths = (each.path for each in store.files(name, ".parquet"))
        return any(not UNCOMMITTED.search(path) for path in paths)

    @override
    def exists(self) -> bool:
        return self.store.has_files(self.name, ".parquet")

    @override
    def layout(self, columns: pa.Schema, prefix: str, attempt: str) -> Layout:
        schema = columns.serialize().to_pybytes()
        return Layout(f"{attempt}/{self.name}", schema, DIVIDED_BY, inside=False, prefix=prefix)

    @override
    def commit(self, files: Sequence[DataFile], columns: pa.Schema, mark: BatchMark) -> list[tuple[str, str]]:
        moves = []
        for number, file in enumerate(files):
            folders = file.path.rpartition("/")[0].partition(f"/{self.name}/")[2]
            name = f"batch-{mark.query[:8]}-{mark.batch:012}-{number:04}-{file.first}-{file.last}-{file.rows}.parquet"
            moves.append((file.path, f"{self.name}/{folders}/{name}"))
        return moves

    @override
    def data_files(self) -> list[TableFile]:
        """Positions and rows from the files' names, without opening them. Raises LakeError for a foreign file."""
        paths = [self.store.relative(file.path) for file in self.store.files(self.name, ".parquet")]
        return sorted(map(self._described, paths), key=lambda file: file.first)

    def _described(self, path: str) -> TableFile:
        folders = path.removeprefix(f"{self.name}/").rpartition("/")[0]
        partition = {}
        for folder in folders.split("/"):
            column, _, value = folder.partition("=")
            partition[column] = "" if value == NO_NAME else unquote(value)
        first, last, rows = _positions(path)
        return TableFile(self.store.uri(path), first, last, rows, partition)


def first_position(path: str) -> int:
    """The position of the first row of one of our files."""
    return _positions(path)[0]


def _positions(path: str) -> tuple[int, int, int]:
    """First and last position, and the number of rows."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None:
        raise LakeError(f"{path} is not a file of this archive: expected a name like {_EXAMPLE}. Move it elsewhere")
    first, last, rows = map(int, match.groups())
    return first, last, rows
