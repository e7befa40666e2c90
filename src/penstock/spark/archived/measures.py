"""Limits, parts and times in an archive, computed on the driver.

The counterpart of ``flight.plans`` for archives. Only ``max_bytes`` makes it read payloads, since their sizes are
recorded nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.flight.calls import Advanced, Pick
from penstock.journal.views.arrow import MESSAGES
from penstock.spark.archived.row_groups import ArchiveRows, RowGroup
from penstock.spark.lake.tables import TableFile

#: Bytes of positions and sizes that are sorted at a time.
ENOUGH = 64 * 2**10


def cuts(groups: Sequence[RowGroup], start: int, stop: int, partitions: int, size: int) -> list[int]:
    """Positions at which to cut a range into parts of about the same size, at least ``partitions`` if possible.

    ``size`` is that of a part in uncompressed bytes.
    ``groups`` are those that may have rows of the range.
    """
    edges = np.unique([start, stop, *(each for group in groups for each in (group.low, group.stop))])
    edges = edges[(edges >= start) & (edges <= stop)]
    weight = np.zeros(len(edges))
    for group in groups:
        density = group.size / (group.stop - group.low)
        weight[np.searchsorted(edges, max(group.low, start))] += density
        weight[np.searchsorted(edges, min(group.stop, stop))] -= density
    before = np.concatenate(([0.0], np.cumsum(np.cumsum(weight)[:-1] * np.diff(edges))))
    wanted = max(partitions, math.ceil(float(before[-1]) / size))
    shares = np.arange(1, wanted) / wanted * float(before[-1])
    inner = np.unique(np.rint(np.interp(shares, before, edges)).astype(np.int64))
    return [cut for cut in inner.tolist() if start < cut < stop]


def advance(
    rows: ArchiveRows, groups: Sequence[RowGroup], span: tuple[int, int], pick: Pick, max_rows: int, max_bytes: int
) -> Advanced:
    """The end of the longest range within the limits (0: none), with at least one row if there is any."""
    most_rows, most_bytes = max_rows or 2**63, max_bytes or 2**63
    names = ["position", "payload"] if max_bytes else ["position"]
    schema = pa.schema([MESSAGES.field(name) for name in names])
    count = size = 0
    shrink = _measured if max_bytes else _as_it_is
    for table in rows.read(groups, span, pick, schema, shrink=shrink, enough=ENOUGH):
        positions = table.column("position").to_numpy()
        sizes = table.column("payload").to_numpy() if max_bytes else np.zeros(len(positions), np.int64)
        ends = size + np.cumsum(sizes)
        fitting = min(int(np.searchsorted(ends, most_bytes, "right")), most_rows - count)
        if count + fitting == 0:
            fitting = 1  # make progress, however large the message is
        if fitting < len(positions):
            last = int(ends[fitting - 1]) if fitting else size
            return Advanced(stop=int(positions[fitting]), rows=count + fitting, bytes=last)
        count, size = count + len(positions), int(ends[-1])
    return Advanced(stop=span[1], rows=count, bytes=size)


def _as_it_is(table: pa.Table) -> pa.Table:
    return table


def _measured(table: pa.Table) -> pa.Table:
    """Replace payloads by their sizes."""
    sizes = pc.fill_null(pc.binary_length(table.column("payload")), 0).cast(pa.int64())
    return table.set_column(table.schema.get_field_index("payload"), "payload", sizes)


def locate(rows: ArchiveRows, files: Iterable[TableFile], stop: int, pick: Pick, at: int) -> int | None:
    """The position of the first message at or after a time, in microseconds since 1970; None if there is none."""
    schema = pa.schema([MESSAGES.field(name) for name in ("position", "published_at")])
    moment = pa.scalar(at, MESSAGES.field("published_at").type)
    best: int | None = None
    for group in rows.groups(files, 0, stop):
        if best is not None and group.low >= best:
            break
        if group.newest is None or group.newest >= at:
            table = rows.load(group, (0, stop if best is None else best), pick, schema)
            first = pc.min(table.filter(pc.greater_equal(table.column("published_at"), moment)).column("position"))
            best = first.as_py() if first.is_valid else best
    return best


def behind(
    rows: ArchiveRows, groups: Sequence[RowGroup], span: tuple[int, int], pick: Pick, known: dict[tuple[str, int], int]
) -> int:
    """The number of rows of a range. ``known`` caches the counts of whole row groups."""
    schema = pa.schema([MESSAGES.field("position")])
    count = 0
    for group in groups:
        key = group.file.path, group.number
        whole = span[0] <= group.low and group.stop <= span[1]
        if whole and not (pick.queue or pick.pattern):
            count += group.rows
        elif whole and key in known:
            count += known[key]
        else:
            loaded = rows.load(group, span, pick, schema).num_rows
            count += loaded
            if whole:
                known[key] = loaded
    return count


def oldest(rows: ArchiveRows, groups: Sequence[RowGroup], span: tuple[int, int], pick: Pick) -> int | None:
    """When the first message of a range was published, in microseconds since 1970; None if there is none."""
    schema = pa.schema([MESSAGES.field(name) for name in ("position", "published_at")])
    first = next(rows.read(groups, span, pick, schema, enough=ENOUGH), None)
    return None if first is None else first.column("published_at").cast(pa.int64())[0].as_py()
