"""The tables of ``insight``: rows of an hour are one file, which is replaced as a whole.

    insight/queues/date=…/hour=…/minutes.parquet         and the same for dead_letters and talkers
    insight/by_second/date=…/hour=…/seconds.parquet      and by_10_seconds: only of the first minutes

So a reader sees each step once. Rows of open steps are included, and change until the step is closed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE, PERCENTILES, SECOND, Ledgers

_TIME = pa.timestamp("us", tz="UTC")
_NAMES = {"namespace": pa.string(), "queue": pa.string()}
_BY_MINUTE = {**_NAMES, "minute": _TIME}
_DURATIONS = [f"{name}_p{percent}" for name in ("in_queue", "to_acknowledge") for percent in PERCENTILES]
_DEPTHS = dict.fromkeys((*COUNTS, "depth", "dead_depth"), pa.int64())
_FINER = pa.schema({**_NAMES, "second": _TIME, **_DEPTHS, **dict.fromkeys(_DURATIONS, pa.float64())})
TABLES = {
    "queues": pa.schema({**_BY_MINUTE, **_DEPTHS, **dict.fromkeys(("oldest_seconds", *_DURATIONS), pa.float64())}),
    "dead_letters": pa.schema({**_BY_MINUTE, "reason": pa.string(), "messages": pa.int64()}),
    "talkers": pa.schema(
        {
            **_BY_MINUTE,
            "protocol": pa.string(),
            "host": pa.string(),
            **dict.fromkeys(("published", "bytes_in", "taken"), pa.int64()),
        }
    ),
    "by_second": _FINER,
    "by_10_seconds": _FINER,
}
#: The table of queues by the length of its steps, in microseconds.
BY_STEP = {SECOND: "by_second", 10 * SECOND: "by_10_seconds", MINUTE: "queues"}


def step_column(table: str) -> str:
    """The column with the start of a row's step."""
    return str(TABLES[table].names[2])


def file_name(table: str) -> str:
    """The name of an hour's file."""
    return f"{step_column(table)}s.parquet"


def rows_of(ledgers: Ledgers) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
    """The rows of open steps, by table. Their time is in the column ``start``."""
    yield "queues", ledgers.minutes.queue_rows()
    yield "dead_letters", ledgers.minutes.reason_rows()
    yield "talkers", ledgers.minutes.talker_rows()
    for unit, ledger in ledgers.finer.items():
        yield BY_STEP[unit], ledger.queue_rows()


def stage(ledgers: Ledgers, attempt: Path, folder: Path) -> list[tuple[Path, Path]]:
    """Write the files of changed hours. Returns moves of files into place."""
    moves = []
    for name, found in rows_of(ledgers):
        for hour, new in _by_hour(found).items():
            target, staged = (each / name / hour / file_name(name) for each in (folder, attempt))
            staged.parent.mkdir(parents=True)
            pq.write_table(_merged(target, new, name), staged, compression="zstd")
            moves.append((staged, target))
    return moves


def _by_hour(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["start"] // (60 * MINUTE)].append(row)
    return {
        datetime.fromtimestamp(hour * 3600, UTC).strftime("date=%Y-%m-%d/hour=%H"): rows for hour, rows in found.items()
    }


def _merged(old: Path, rows: list[dict[str, Any]], name: str) -> pa.Table:
    """The rows of an hour: the new ones, and the old ones of other steps. New rows replace whole steps."""
    schema, step = TABLES[name], step_column(name)
    renamed = pa.schema([field.with_name("start") if field.name == step else field for field in schema])
    new = pa.Table.from_pylist(rows, schema=renamed).rename_columns(schema.names)
    if old.exists():
        kept = pq.read_table(old, schema=schema, partitioning=None)
        replaced = pc.unique(new.column(step))
        new = pa.concat_tables([kept.filter(pc.invert(pc.is_in(kept.column(step), replaced))), new])
    return new.sort_by([(each, "ascending") for each in (step, "namespace", "queue")])


class Recent:
    """The rows of the last hours, a table for each hour. Each iteration reads the files again."""

    def __init__(self, folder: Path, name: str, hours: float) -> None:
        self._name = name
        files = sorted((folder / name).glob(f"date=*/hour=*/{file_name(name)}"))
        self._files = files[-max(1, round(hours)) - 1 :]
        self._since = max(map(self._newest, self._files[-1:]), default=0) - int(hours * 60 * MINUTE)

    def _newest(self, file: Path) -> int:
        steps = pq.read_table(file, columns=[step_column(self._name)], partitioning=None).column(0)
        return int(pc.max(steps.cast(pa.int64())).as_py() or 0)

    def __iter__(self) -> Iterator[pa.Table]:
        for file in self._files:
            rows = pq.read_table(file, schema=TABLES[self._name], partitioning=None)
            yield rows.filter(pc.greater(rows.column(2).cast(pa.int64()), self._since))


def with_numbers(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with times as microseconds."""
    found: list[dict[str, Any]] = table.set_column(
        2, table.schema.names[2], table.column(2).cast(pa.int64())
    ).to_pylist()
    return found
