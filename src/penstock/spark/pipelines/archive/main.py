"""Runs ``archive``: messages from a broker into a lake.

    messages/namespace=…/queue=…/date=…/hour=…/batch-….parquet        and the same for quarantine

Date and hour are those of the batch, not of the messages: so an hour that is over gets no more files, and can be
compacted. They are decided with the batch; one that comes again keeps them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.pipelines.archive.payloads import INFER, Decoding, pack, unpack
from penstock.spark.pipelines.archive.rows import ddl_type, find_schema, transform
from penstock.spark.pipelines.lake.batches import Lake, LakeError
from penstock.spark.pipelines.lake.compaction import Compaction
from penstock.spark.pipelines.lake.tables import QUARANTINE, Put, TableBatch, store
from penstock.spark.pipelines.run import BrokerSource, PipelineProgress, RunControl, drive, start_of


class ArchiveOptions(Struct, frozen=True):
    """What can be chosen."""

    queue: str | None = None
    pattern: str | None = None
    table: str = "messages"
    #: parquet, delta or iceberg.
    kind: str = "parquet"
    format: str = "raw"
    #: Columns in Spark's words, ``infer``, or for Avro the schema itself.
    schema: str = ""
    compact: bool = True
    max_bytes: str = "256m"
    clock: Callable[[], float] = time.time


class Archive:
    """The pipeline on one lake."""

    def __init__(self, lake: Lake, options: ArchiveOptions, identity: str = "") -> None:
        """``identity`` is that of the broker's journal."""
        self._identity = identity
        self._lake = lake
        self._options = options
        self._store = store(options.kind, lake)
        self._compaction = Compaction(lake)
        self._infers = options.format == "json" and options.schema == INFER
        self._decoding = self._declared()
        self._check()

    def _declared(self) -> Decoding:
        """How payloads are read, as far as the options say."""
        text = self._options.schema
        if self._infers:
            return Decoding("json")
        if self._options.format == "avro" or not text:
            return Decoding(self._options.format, text.encode())
        return Decoding(self._options.format, pack(ddl_type(text)))

    def _check(self) -> None:
        """A configuration that makes no sense stops here; one that the table contradicts too."""
        options = self._options
        if options.format in ("raw", "text") and options.schema:
            raise ValueError(f"format {options.format} has no schema")
        if options.format == "json" and not options.schema:
            raise ValueError("format json needs a schema: columns (id long, name string), or infer")
        self._decoding.check()
        last = self._lake.last()
        if options.kind == "parquet" or not self._lake.query():
            # Tables with transactions may be a commit ahead of what is known, so there the checkpoint counts too.
            self._lake.refuse_unknown(options.table, _tables(self._lake, options.table))
        before = last.state if last is not None else {}
        for name, now in (("kind", options.kind), ("format", options.format)):
            if before.get(name, now) != now:
                text = f"table {options.table} has been written with {name} {before[name]}, not {now}"
                raise LakeError(f"{text}: choose another --table, or another lake")
        if not self._infers and self._decoding.type is not None and before.get("schema"):
            self._check_growth(bytes.fromhex(before["schema"]))

    def _check_growth(self, before: bytes) -> None:
        old, new = unpack(before), self._decoding.type
        if new is None or old == new:
            return
        names = {old.field(at).name: old.field(at).type for at in range(old.num_fields)}
        for name, kind in names.items():
            at = new.get_field_index(name)
            if at < 0 or new.field(at).type != kind:
                raise LakeError(f"column value.{name} of the table is {kind}: a schema may grow, but not change")

    def batch(self, messages: DataFrame, number: int) -> int:
        """Put one batch away: once, however often it comes."""
        attempt = self._lake.begin(number)
        if attempt is None:
            return 0
        if self._infers:
            self._grow(messages)
        last = self._lake.last()
        hour = max(self._now(), last.state["hour"] if last else "")
        done = self._put(messages, TableBatch(self._lake.query(), number, hour, attempt))
        position = max(done.position + 1, last.position if last else 0)
        counted = _counted(last.state if last is not None else {"rows": 0, "quarantined": 0}, done)
        self._lake.decide(number, done.moves, position, {**self._state(hour), **counted})
        if last is not None and last.state["hour"] < hour:
            self.compact()
        return done.rows

    def _put(self, messages: DataFrame, batch: TableBatch) -> Put:
        """Stage what fits and what doesn't, each where it belongs."""
        if self._decoding.type is None and not self._infers:
            return self._store.put(self._options.table, messages, batch)
        rows = transform(messages, self._decoding).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            good = self._store.put(self._options.table, rows.where("reason is null").drop("reason"), batch)
            bad = self._store.put(
                f"{self._options.table}_{QUARANTINE}", rows.where("reason is not null").drop("value"), batch
            )
        finally:
            rows.unpersist()
        return Put(good.moves + bad.moves, good.rows + bad.rows, max(good.position, bad.position), bad.rows)

    def _grow(self, messages: DataFrame) -> None:
        last = self._lake.last()
        packed = last.state.get("schema") if last is not None else None
        known = unpack(bytes.fromhex(packed)) if packed else None
        found = find_schema(messages, known)
        self._decoding = Decoding("json", b"" if found is None else pack(found))

    def _state(self, hour: str) -> dict[str, Any]:
        schema = (
            pack(kind).hex() if (kind := self._decoding.type) is not None and self._options.format != "text" else ""
        )
        options = {"kind": self._options.kind, "format": self._options.format}
        return {"hour": hour, "identity": self._identity, "schema": schema, **options}

    def _now(self) -> str:
        return time.strftime("%Y-%m-%d/%H", time.gmtime(self._options.clock()))

    def recover(self) -> None:
        """Finish a compaction that was interrupted."""
        self._compaction.recover()

    def compact(self) -> int:
        """Compact the hours that get no more files. Returns how many there were."""
        last = self._lake.last()
        if last is None or not self._options.compact or self._options.kind != "parquet":
            return 0
        closed = min(last.state["hour"], self._now())
        return self._compaction.run(_tables(self._lake, self._options.table), closed)


def _counted(before: dict[str, Any], done: Put) -> dict[str, int]:
    """Rows of all batches, for operators. A lake that was begun without these counts goes on without them."""
    if "rows" not in before:
        return {}
    return {"rows": before["rows"] + done.rows, "quarantined": before["quarantined"] + done.quarantined}


def _tables(lake: Lake, name: str) -> list[Path]:
    return [lake.root / name, lake.root / f"{name}_{QUARANTINE}"]


def lake_of(folder: str, options: ArchiveOptions) -> Lake:
    """The lake as this table's pipeline sees it. Tables are archived independently of each other."""
    if not options.table.replace("_", "").isalnum() or options.table.startswith("_"):
        raise ValueError(f"{options.table!r} is no name for a table: letters, digits and _ are")
    return Lake(folder, f"archive-{options.table}")


def run(
    spark: SparkSession, broker: BrokerSource, folder: str, options: ArchiveOptions, how: RunControl
) -> PipelineProgress:
    """Run the pipeline."""
    lake = lake_of(folder, options)
    with lake.locked():
        lake.prepare()
        identity = broker.reach().identity
        pipeline = Archive(lake, options, identity)
        how.doing = "putting small files together"
        pipeline.recover()
        pipeline.compact()
        picked = {"queue": options.queue, "queuePattern": options.pattern, "maxBytesPerTrigger": options.max_bytes}
        messages = broker.stream(spark, view="messages", startingPosition=start_of(lake, identity), **picked)
        progress = drive(messages, lake, pipeline.batch, how)
        how.doing = "putting small files together"
        pipeline.compact()
    return progress
