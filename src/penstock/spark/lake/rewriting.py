"""Executors merge small files. Rows and their order stay the same; no row comes to the driver."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from penstock.spark.errors import StoreFailed
from penstock.spark.lake.store import Store, reason_of

#: Rows of a file in memory at a time.
ROWS = 65_536


class Rewritten(Struct, frozen=True):
    """Files, and the one that replaces them. Paths are relative to the store."""

    old: list[str]
    new: str


def rewrite(spark: Any, store: Store, groups: Sequence[Sequence[str]], folder: str) -> list[Rewritten]:
    """Merge the files of each group that have the same columns. One task for each group."""
    if not groups:
        return []

    schema = pa.schema({"old": pa.string(), "new": pa.string()})

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for files in batch.column(0).to_pylist():
                    done = [_write(store, group, folder) for group in _alike(store, json.loads(files))]
                    rows = [{"old": json.dumps(each.old), "new": each.new} for each in done]
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)
        except (OSError, pa.ArrowException) as error:
            raise StoreFailed(f"files in {store.uri()} can't be merged: {reason_of(error)}") from None

    listed = spark.createDataFrame([(json.dumps(list(group)),) for group in groups], "files string")
    merged = listed.repartition(len(groups)).mapInArrow(work, "old string, new string").collect()
    return [Rewritten(json.loads(row["old"]), row["new"]) for row in merged]


def _alike(store: Store, files: Sequence[str]) -> list[list[str]]:
    """Files grouped by their columns: those from before the schema grew stay apart."""
    groups: list[tuple[pa.Schema, list[str]]] = []
    for file in files:
        schema = pq.read_schema(store.full(file), filesystem=store.filesystem)
        known = next((group for columns, group in groups if columns.equals(schema)), None)
        if known is None:
            groups.append((schema, [file]))
        else:
            known.append(file)
    return [group for _, group in groups if len(group) > 1]


def _write(store: Store, files: Sequence[str], folder: str) -> Rewritten:
    first = store.full(files[0])
    target = f"{folder}/compact-{uuid.uuid4().hex}.parquet"
    schema = pq.read_schema(first, filesystem=store.filesystem)
    with store.create(target) as stream:
        with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
            for file in files:
                with pq.ParquetFile(store.full(file), filesystem=store.filesystem) as source:
                    for batch in source.iter_batches(batch_size=ROWS):
                        writer.write_batch(batch)
        store.sync(stream)
    return Rewritten(list(files), target)
