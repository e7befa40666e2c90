"""Plain Parquet: files in folders by namespace, queue, date and hour, and nothing else.

There is nothing that could say which files belong together. So executors write outside of the table, and when the
batch is decided (``batches.py``) its files are moved into place, one by one, and are never touched again. The name of
a file tells its batch and its positions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.pipelines.lake.batches import Decided, Lake, remove
from penstock.spark.pipelines.lake.files import NO_NAME, DataFile, Layout
from penstock.spark.pipelines.lake.tables import Table, TableFile

DIVIDED_BY = ("namespace", "queue", "date", "hour")
#: Query, batch, number, first and last position, rows.
_NAME = re.compile(r"batch-\w+-\d+-\d+-(\d+)-(\d+)-(\d+)\.parquet")
#: Files at a time whose ends are read, where their names don't tell.
_AT_A_TIME = 16


class ParquetFormat(Table):
    """A folder of Parquet files."""

    kind = "parquet"

    def exists(self) -> bool:
        """Whether there is a file."""
        return self.store.has_files(self.name, ".parquet")

    def layout(self, columns: pa.Schema, prefix: str, attempt: str) -> Layout:
        """Outside of the table, in the folder of this attempt."""
        schema = columns.serialize().to_pybytes()
        return Layout(f"{attempt}/{self.name}", schema, DIVIDED_BY, inside=False, prefix=prefix)

    def commit(self, files: Sequence[DataFile], columns: pa.Schema, mark: Decided) -> list[tuple[str, str]]:
        """Where each file belongs."""
        moves = []
        for number, file in enumerate(files):
            folders = file.path.rpartition("/")[0].partition(f"/{self.name}/")[2]
            name = f"batch-{mark.query[:8]}-{mark.batch:012}-{number:04}-{file.first}-{file.last}-{file.rows}.parquet"
            moves.append((file.path, f"{self.name}/{folders}/{name}"))
        return moves

    def data_files(self) -> list[TableFile]:
        """From their names; of those that an older version has written, from what is in them."""
        paths = [self.store.relative(found.path) for found in self.store.files(self.name, ".parquet")]
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            return sorted(pool.map(self._described, paths), key=lambda file: file.first)

    def _described(self, path: str) -> TableFile:
        folders, _, name = path.removeprefix(f"{self.name}/").rpartition("/")
        partition = {}
        for folder in folders.split("/"):
            column, _, value = folder.partition("=")
            partition[column] = "" if value == NO_NAME else unquote(value)
        told = _NAME.fullmatch(name)
        first, last, rows = map(int, told.groups()) if told else self._measured(path)
        return TableFile(self.store.uri(path), first, last, rows, partition)

    def _measured(self, path: str) -> tuple[int, int, int]:
        found = pq.read_metadata(self.store.full(path), filesystem=self.store.filesystem)
        column = found.schema.names.index("position")
        groups = [found.row_group(at).column(column).statistics for at in range(found.num_row_groups)]
        told = [group for group in groups if group is not None and group.has_min_max]
        least, greatest = (group.min for group in told), (group.max for group in told)
        return min(least, default=0), max(greatest, default=0), found.num_rows


def first_position(path: str) -> int | None:
    """Of a file, by its name; None: an older version has named it."""
    told = _NAME.fullmatch(path.rpartition("/")[2])
    return None if told is None else int(told[1])


def finish_compaction(lake: Lake) -> None:
    """Finish what an older version, which put files together, was interrupted in. The old or the new files stay."""
    note = lake.hidden / "compaction.json"
    if not note.exists():
        return
    told = json.loads(note.read_bytes())
    hour, other = lake.root / told["hour"], lake.root / told["new"]
    if not hour.exists():
        os.rename(other, hour)
    remove(other)
    remove(other.with_name(f"{other.name}.old"))
    note.unlink()
