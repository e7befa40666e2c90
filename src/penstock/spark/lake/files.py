"""Executors write the data files of a batch; the driver gets the metadata to commit them.

That is names, sizes, counts, and least and greatest values. No row comes to the driver.

Every file has a name that no other attempt uses, so that a task that is repeated, or that outlives its driver, does no
harm: files that are not committed belong to no table.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.errors import StoreFailed
from penstock.spark.lake.store import Store, reason_of

#: Bytes of rows that are held before they become a row group; for all files of a task together.
HELD_BYTES = 32 * 2**20
#: Bytes of a folder's name at most. Of a longer name, this many characters are kept, with a digest.
MOST_BYTES, KEPT, DIGEST = 255, 40, 32
#: The pattern of such names.
CUT = f"^(?s:.){{{KEPT}}}~[0-9a-f]{{{DIGEST}}}$"
#: Spark's and Hive's name for a missing or empty value.
NO_NAME = "__HIVE_DEFAULT_PARTITION__"
#: Characters that are escaped in names of folders, as Spark does.
_SPECIAL = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
#: Columns whose least and greatest values are recorded for each file.
MEASURED = ("position", "published_at", "namespace", "queue")
#: Names of our files. Plain files get another name when they are moved into place.
UNCOMMITTED = re.compile(r"-[0-9a-f]{32}\.parquet$")
#: What a task reports of its files.
_MANIFEST = pa.schema(
    {
        **dict.fromkeys(("name", "path"), pa.string()),
        **dict.fromkeys(("size", "rows"), pa.int64()),
        **dict.fromkeys(("partition", "least", "greatest"), pa.string()),
    }
)


class Layout(Struct, frozen=True):
    """The layout of a table's files: the folder in the store, the columns, and the partition columns.

    ``inside``: partition columns are in the files too, not only in the names of folders.
    """

    folder: str
    schema: bytes
    divided_by: tuple[str, ...] = ()
    inside: bool = False
    prefix: str = "part"

    @property
    def columns(self) -> pa.Schema:
        """All columns of the table."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    @property
    def stored(self) -> pa.Schema:
        """The columns in files."""
        columns = self.columns
        return columns if self.inside else pa.schema([each for each in columns if each.name not in self.divided_by])


class DataFile(Struct, frozen=True):
    """A written file. ``path`` is relative to the store; values are JSON values."""

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    least: dict[str, Any]
    greatest: dict[str, Any]

    @property
    def first(self) -> int:
        """Its first position."""
        return int(self.least["position"])

    @property
    def last(self) -> int:
        """Its last position."""
        return int(self.greatest["position"])


#: Splits rows by the tables' names.
Divide = Callable[[pa.RecordBatch], Iterable[tuple[str, pa.RecordBatch]]]


def write(rows: DataFrame, store: Store, layouts: Mapping[str, Layout], divide: Divide) -> dict[str, list[DataFile]]:
    """Have executors write rows to files of these tables. Raises Spark's errors."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with TaskWriter(store, layouts) as writer:
            for batch in batches:
                for name, part in divide(batch):
                    writer.add(name, part)
            yield _manifest(writer.close())

    files_of: dict[str, list[DataFile]] = {name: [] for name in layouts}
    for row in rows.mapInArrow(work, from_arrow_schema(_MANIFEST)).collect():
        values = (json.loads(row[name]) for name in ("partition", "least", "greatest"))
        files_of[row["name"]].append(DataFile(row["path"], row["size"], row["rows"], *values))
    for files in files_of.values():
        files.sort(key=lambda file: (file.first, file.path))
    return files_of


def _manifest(files: Sequence[tuple[str, DataFile]]) -> pa.RecordBatch:
    rows = [
        {"name": name, "path": file.path, "size": file.size, "rows": file.rows}
        | {each: json.dumps(getattr(file, each)) for each in ("partition", "least", "greatest")}
        for name, file in files
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_MANIFEST)


class TaskWriter:
    """The files of one task: one for each partition of each table."""

    def __init__(self, store: Store, layouts: Mapping[str, Layout]) -> None:
        self._store = store
        self._layouts = layouts
        self._open: dict[tuple[str, tuple[str, ...]], FileWriter] = {}
        self._held = 0

    def __enter__(self) -> TaskWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, (OSError, pa.ArrowException)):
            text = f"the store {self._store.uri()} can't be written to: {reason_of(error)}"
            raise StoreFailed(text) from None

    def add(self, name: str, rows: pa.RecordBatch) -> None:
        """Add rows of a table."""
        layout = self._layouts[name]
        for values, part in divided(fitted(rows, layout.columns), layout.divided_by):
            key = name, values
            if key not in self._open:
                self._open[key] = FileWriter(self._store, layout, dict(zip(layout.divided_by, values, strict=True)))
            self._open[key].add(part)
        self._held += rows.nbytes
        if self._held >= HELD_BYTES:
            for writer in self._open.values():
                writer.flush()
            self._held = 0

    def close(self) -> list[tuple[str, DataFile]]:
        """Finish all files."""
        return [(name, writer.close()) for (name, _), writer in self._open.items()]


class FileWriter:
    """One file."""

    def __init__(self, store: Store, layout: Layout, partition: dict[str, str]) -> None:
        values = {} if layout.inside else partition
        folders = [f"{name}={folder_name(name, value)}" for name, value in values.items()]
        name = f"{layout.prefix}-{uuid.uuid4().hex}.parquet"
        self._path = "/".join([layout.folder, *folders, name])
        self._partition = partition
        self._store = store
        self._schema = layout.stored
        self._file: BinaryIO = store.create(self._path)
        self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows. They are written when there are enough of them."""
        self._held.append(rows.select(self._schema.names))

    def flush(self) -> None:
        """Write the held rows as a row group."""
        if not self._held:
            return
        table = pa.Table.from_batches(self._held, self._schema)
        self._held = []
        self._rows += table.num_rows
        for name in MEASURED:
            if name in table.column_names:
                self._measure(name, pc.min_max(table.column(name)).as_py())
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def _measure(self, name: str, ends: dict[str, Any]) -> None:
        least, greatest = _as_json(ends["min"]), _as_json(ends["max"])
        if least is not None:
            self._least[name] = min(least, self._least.get(name, least))
            self._greatest[name] = max(greatest, self._greatest.get(name, greatest))

    def close(self) -> DataFile:
        """Finish the file."""
        self.flush()
        self._writer.close()
        size = self._file.tell()
        self._store.sync(self._file)
        self._file.close()
        return DataFile(self._path, size, self._rows, self._partition, self._least, self._greatest)


def _as_json(value: Any) -> Any:
    """The JSON form of a value."""
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(value, datetime) else value


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The table's columns in their types: Spark's times are in the session's zone."""
    columns = [rows.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def divided(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
    """The rows of each combination of values in these columns, in their order."""
    if not names or not rows.num_rows:
        if rows.num_rows:
            yield (), rows
        return
    keys = pa.Table.from_batches([rows]).select(list(names)).append_column("row", pa.array(range(rows.num_rows)))
    groups = keys.group_by(list(names), use_threads=False).aggregate([("row", "list")]).to_pylist()
    for group in groups:
        values = tuple(group[name] for name in names)
        yield values, rows if len(groups) == 1 else rows.take(pa.array(group["row_list"], pa.int64()))


def folder_name(column: str, value: str) -> str:
    """A value as a folder's name, with special characters escaped and long names cut."""
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", short(column, value)) or NO_NAME


def short(column: str, value: str) -> str:
    """A value cut so that the folder's name is not too long."""
    size = len(value.encode()) + 2 * len(_SPECIAL.findall(value))
    if size <= MOST_BYTES - len(f"{column}="):
        return value
    return f"{value[:KEPT]}~{hashlib.sha256(value.encode()).hexdigest()[:DIGEST]}"
