"""Rows of an archive in the order of their positions, as the journal would return them.

Files are of one queue and one batch, or merged by compaction, so their positions overlap and may be unordered within a
file. Row groups are read by their lowest position; everything below the lowest position of the next group is complete
and is handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.flight.calls import Pick
from penstock.spark.archived.contents import NAMES, full_name, wanted
from penstock.spark.lake.store import Store
from penstock.spark.lake.tables import TableFile
from penstock.spark.values import microseconds

#: Bytes to read before rows are sorted and handed over.
ENOUGH = 16 * 2**20


class RowGroup(NamedTuple):
    """A row group of a file: positions from ``low`` up to ``stop`` (exclusive), and its uncompressed bytes."""

    file: TableFile
    number: int
    low: int
    stop: int
    rows: int
    size: int
    #: When its newest message was published, in microseconds since 1970; None if the statistics do not tell.
    newest: int | None


#: Reduces the rows of a row group before they are kept.
Shrink = Callable[[pa.Table], pa.Table]


class ArchiveRows:
    """Reads the files of an archive."""

    def __init__(self, store: Store, *, whole_names: bool = True) -> None:
        """Without ``whole_names``, names are returned as in folders, even if they are cut."""
        self._store = store
        self._whole_names = whole_names
        self._known: dict[str, list[RowGroup]] = {}

    def groups(self, files: Iterable[TableFile], start: int, stop: int) -> list[RowGroup]:
        """The row groups that may have rows of a range, by their lowest position. Footers are cached."""
        groups = [group for file in files for group in self._groups(file) if group.low < stop and start < group.stop]
        return sorted(groups, key=lambda group: (group.low, group.stop))

    def schema(self, file: TableFile) -> pa.Schema:
        """The columns of a file."""
        with self._open(file) as source:
            return pq.ParquetFile(source, coerce_int96_timestamp_unit="us").schema_arrow.remove_metadata()

    def forget(self) -> None:
        """Drop the cached footers: the files have been replaced."""
        self._known.clear()

    def read(
        self,
        groups: Sequence[RowGroup],
        span: tuple[int, int],
        pick: Pick,
        schema: pa.Schema,
        *,
        shrink: Shrink = lambda table: table,
        enough: int = ENOUGH,
    ) -> Iterator[pa.Table]:
        """Rows of a range, by position. ``schema`` must have ``position``; columns that a file lacks are null.

        They come in tables of about ``enough`` bytes, once everything before them is known.
        """
        held: list[pa.Table] = []
        size, limit = 0, enough
        for at, group in enumerate(groups):
            rows = shrink(self.load(group, span, pick, schema))
            held.append(rows)
            size += rows.nbytes
            last = at + 1 == len(groups)
            if size < limit and not last:
                continue
            done, left = _split(_ordered(pa.concat_tables(held)), span[1] if last else groups[at + 1].low)
            held, size = [left], left.nbytes
            limit = enough + 2 * size
            if done.num_rows:
                yield done

    def _groups(self, file: TableFile) -> list[RowGroup]:
        known = self._known.get(file.path)
        if known is None:
            with self._open(file) as source:
                known = self._known[file.path] = list(_row_groups(file, pq.read_metadata(source)))
        return known

    def load(self, group: RowGroup, span: tuple[int, int], pick: Pick, schema: pa.Schema) -> pa.Table:
        """Rows of one row group, in stored order."""
        picked = bool(pick.queue or pick.pattern)
        whole = dict.fromkeys([*schema.names, *(NAMES if picked else ())])
        with self._open(group.file) as source:
            # Spark's own timestamps (INT96) would not fit into nanoseconds.
            file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            have = [name for name in whole if name in file.schema_arrow.names]
            table = file.read_row_group(group.number, columns=have)
        table = _filtered(table, span, picked and _needs_names(group.file, have), pick)
        named = pick if self._whole_names else None
        return pa.table([_column(table, field, group.file, named) for field in schema], schema=schema)

    def _open(self, file: TableFile) -> pa.NativeFile:
        return self._store.filesystem.open_input_file(self._store.full(self._store.relative(file.path)))


def _row_groups(file: TableFile, footer: pq.FileMetaData) -> Iterator[RowGroup]:
    names = (
        [footer.row_group(0).column(at).path_in_schema for at in range(footer.num_columns)]
        if footer.num_row_groups
        else []
    )
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        seen, times = (group.column(names.index(name)).statistics for name in ("position", "published_at"))
        low, stop = (seen.min, seen.max + 1) if seen is not None and seen.has_min_max else (file.first, file.last + 1)
        newest = times.max if times is not None and times.has_min_max else None
        micros = microseconds(newest) if isinstance(newest, datetime) else None
        yield RowGroup(file, number, low, stop, group.num_rows, group.total_byte_size, micros)


def _needs_names(file: TableFile, have: Sequence[str]) -> bool:
    """Whether each row's queue has to be checked."""
    return set(NAMES) <= set(have) and not set(NAMES) <= set(file.partition)


def _filtered(table: pa.Table, span: tuple[int, int], by_name: bool, pick: Pick) -> pa.Table:
    position = table.column("position")
    mask = pc.and_(pc.greater_equal(position, span[0]), pc.less(position, span[1]))
    if by_name:
        names = pc.binary_join_element_wise(*(table.column(name).cast(pa.string()) for name in NAMES), "/")
        fitting = [name for name in pc.unique(names).to_pylist() if wanted(pick, *name.split("/", 1))]
        mask = pc.and_(mask, pc.is_in(names, pa.array(fitting, pa.string())))
    return table if pc.all(mask).as_py() else table.filter(mask)


def _column(table: pa.Table, field: pa.Field, file: TableFile, pick: Pick | None) -> pa.ChunkedArray:
    if field.name in table.column_names:
        values = table.column(field.name)
        return values if values.type == field.type else values.cast(field.type)
    value = file.partition.get(field.name)
    if value is not None and pick is not None and field.name in NAMES:
        value = full_name(field.name, value, pick)
    return pa.chunked_array([pa.repeat(pa.scalar(value, field.type), table.num_rows)])


def _ordered(table: pa.Table) -> pa.Table:
    positions = table.column("position").to_numpy()
    if len(positions) < 2 or bool(np.all(positions[1:] > positions[:-1])):
        return table
    return table.take(pa.array(np.argsort(positions, kind="stable")))


def _split(table: pa.Table, mark: int) -> tuple[pa.Table, pa.Table]:
    at = int(np.searchsorted(table.column("position").to_numpy(), mark))
    return table.slice(0, at), table.slice(at)
