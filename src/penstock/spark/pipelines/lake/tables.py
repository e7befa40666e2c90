"""Where ``archive`` puts the rows of a batch: plain Parquet, or a Delta or Iceberg table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.pipelines.archive.rows import COLUMNS, PARTITIONS, folder_name
from penstock.spark.pipelines.lake.batches import Lake, LakeError

KINDS = ("parquet", "delta", "iceberg")
QUARANTINE = "quarantine"


class TableBatch(NamedTuple):
    """A batch to be put away: which, of which query, when (as in ``2026-01-31/23``), and the folder to stage it in."""

    query: str
    number: int
    hour: str
    attempt: Path


class Put(NamedTuple):
    """What was staged: files and where they belong, how many rows, and the last position (0 without rows).

    ``quarantined`` are those of the rows that did not fit.
    """

    moves: list[tuple[Path, Path]]
    rows: int
    position: int
    quarantined: int = 0


def _dated(rows: DataFrame, batch: TableBatch) -> DataFrame:
    date, _, hour = batch.hour.partition("/")
    value = ["value"] if "value" in rows.columns else []
    reason = ["reason"] if "reason" in rows.columns else []
    names = {name: folder_name(name) for name in ("namespace", "queue")}
    dated = rows.withColumns({**names, "date": F.lit(date), "hour": F.lit(hour)})
    return dated.select(*COLUMNS, *value, *reason, *PARTITIONS)


class TableFormat(ABC):
    """One kind of table."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    @abstractmethod
    def put(self, table: str, rows: DataFrame, batch: TableBatch) -> Put:
        """Stage the rows of a batch; or, where a table has transactions of its own, append them once."""


class Parquet(TableFormat):
    """Files in folders by namespace, queue, date and hour, named for their batch."""

    def put(self, table: str, rows: DataFrame, batch: TableBatch) -> Put:
        """Stage files. They are moved into place when the batch is decided."""
        staged = batch.attempt / table
        _dated(rows, batch).write.partitionBy(*PARTITIONS).option("compression", "zstd").parquet(str(staged))
        moves: list[tuple[Path, Path]] = []
        count = position = 0
        for file in sorted(staged.rglob("*.parquet")):
            found = pq.read_metadata(file)
            count += found.num_rows
            position = max(position, _last_position(found))
            name = f"batch-{batch.query[:8]}-{batch.number:012}-{len(moves):04}.parquet"
            moves.append((file, self.lake.root / table / file.relative_to(staged).parent / name))
        return Put(moves, count, position)


def _last_position(found: pq.FileMetaData) -> int:
    column = found.schema.names.index("position")
    groups = (found.row_group(at).column(column).statistics for at in range(found.num_row_groups))
    return max((int(each.max) for each in groups if each is not None and each.has_min_max), default=0)


class _Whole(TableFormat):
    """Tables whose commits are transactions: a batch goes through the driver, and is committed with its number."""

    def put(self, table: str, rows: DataFrame, batch: TableBatch) -> Put:
        """Append, unless the batch is there already."""
        found = _dated(rows, batch).toArrow()
        if found.num_rows and not self.has(table, batch):
            self.append(table, found, batch)
        position = pa.compute.max(found.column("position")).as_py() if found.num_rows else 0
        return Put([], found.num_rows, position)

    @abstractmethod
    def has(self, table: str, batch: TableBatch) -> bool:
        """Whether the table has this batch."""

    @abstractmethod
    def append(self, table: str, rows: pa.Table, batch: TableBatch) -> None:
        """Append a batch, with its number, in one commit."""


class Delta(_Whole):
    """A Delta table, by ``deltalake``. The batch number is the version of an application transaction."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self._delta: Any = _import("deltalake", "delta")

    def has(self, table: str, batch: TableBatch) -> bool:
        """By the last version of our transactions."""
        path = str(self.lake.root / table)
        if not self._delta.DeltaTable.is_deltatable(path):
            return False
        last = self._delta.DeltaTable(path).transaction_version(batch.query)
        return last is not None and last >= batch.number

    def append(self, table: str, rows: pa.Table, batch: TableBatch) -> None:
        """One commit."""
        mark = self._delta.Transaction(batch.query, batch.number)
        self._delta.write_deltalake(
            str(self.lake.root / table),
            rows,
            mode="append",
            partition_by=list(PARTITIONS),
            schema_mode="merge",
            commit_properties=self._delta.CommitProperties(app_transactions=[mark]),
        )


class Iceberg(_Whole):
    """An Iceberg table, by ``pyiceberg``, in a catalogue (SQLite) in the lake: ``lake.TABLE``."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        module: Any = _import("pyiceberg.catalog.sql", "iceberg")
        self._catalogue = module.SqlCatalog(
            "penstock", uri=f"sqlite:///{lake.root / 'iceberg.db'}", warehouse=f"file://{lake.root}"
        )
        self._catalogue.create_namespace_if_not_exists("lake")

    def has(self, table: str, batch: TableBatch) -> bool:
        """By what the newest of our commits says of itself."""
        if not self._catalogue.table_exists(f"lake.{table}"):
            return False
        for snapshot in reversed(self._catalogue.load_table(f"lake.{table}").snapshots()):
            found = snapshot.summary.additional_properties if snapshot.summary else {}
            if found.get("penstock.query") == batch.query:
                return int(found["penstock.batch"]) >= batch.number
        return False

    def append(self, table: str, rows: pa.Table, batch: TableBatch) -> None:
        """One commit; the schema grows with it."""
        name = f"lake.{table}"
        location = f"file://{self.lake.root / table}"
        found = self._catalogue.create_table_if_not_exists(name, schema=rows.schema, location=location)
        with found.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(rows.schema)
            transaction.append(rows, {"penstock.query": batch.query, "penstock.batch": str(batch.number)})


def _import(module: str, extra: str) -> Any:
    import importlib  # noqa: PLC0415

    try:
        return importlib.import_module(module)
    except ImportError:
        raise LakeError(f"{extra} tables need another package: pip install 'penstock[{extra}]'") from None


def store(kind: str, lake: Lake) -> TableFormat:
    """The kind of this name."""
    kinds: dict[str, type[TableFormat]] = {"parquet": Parquet, "delta": Delta, "iceberg": Iceberg}
    return kinds[kind](lake)
