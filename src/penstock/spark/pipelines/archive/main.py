"""Runs ``archive``: messages from a broker into a sink, and apart from them those that do not fit its schema.

Executors write a batch, and the driver commits it once: see ``sink.py``. Date and hour are those of the batch, not of
the messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from msgspec import structs
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.lake.batches import BatchMark, Lake
from penstock.spark.lake.coverage import covered
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import reason_of
from penstock.spark.pipelines.archive.options import ArchiveOptions, choose_kind, lake_of, open_sink
from penstock.spark.pipelines.archive.payload_formats import check_schema
from penstock.spark.pipelines.archive.payloads import INFER, Decoding, pack, unpack
from penstock.spark.pipelines.archive.rows import ddl_type, find_schema
from penstock.spark.pipelines.archive.sink import Batch, Staged
from penstock.spark.pipelines.run import BrokerSource, PipelineProgress, RunControl, drive, start_of


class Archive:
    """The pipeline with one sink. The lake has its ledger."""

    def __init__(self, lake: Lake, options: ArchiveOptions, identity: str = "") -> None:
        """``identity`` is that of the broker's journal."""
        self._identity = identity
        self._lake = lake
        self._options = options
        self._infers = options.format == "json" and options.schema == INFER
        check_schema(options.format, options.schema)
        self._decoding = self._declared()
        self._decoding.reader()  # raises for a schema that can't be read
        self._failures: tuple[type[Exception], ...] = (OSError,)
        with self._explained():
            self.kind = choose_kind(lake, options)
            self.sink = open_sink(lake, options, self.kind)
        self._failures = self.sink.failures
        with ExitStack() as opened, self._explained():
            opened.callback(self.sink.close)
            last = self.sink.open(lake.last(), lake.query(), identity)
            if last is not None:
                self._check_schema(last)
                if last != lake.last():
                    lake.record(_committed(last))
                self.sink.recorded(last)
            opened.pop_all()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of a sink into LakeError."""
        try:
            yield
        except self._failures as error:
            raise LakeError(f"the lake {self._lake.store.uri()} can't be used: {reason_of(error)}") from None

    def close(self) -> None:
        """Release the sink's connections."""
        self.sink.close()

    def _declared(self) -> Decoding:
        """How to read payloads, as far as the options say."""
        text = self._options.schema
        if self._infers:
            return Decoding("json")
        if self._options.format == "avro" or not text:
            return Decoding(self._options.format, text.encode())
        return Decoding(self._options.format, pack(ddl_type(text)))

    def _check_schema(self, last: BatchMark) -> None:
        """Raise if payloads would be decoded to columns that contradict the existing ones."""
        options, before = self._options, last.state
        if before["format"] != options.format:
            text = f"table {options.table} has been written with format {before['format']}, not {options.format}"
            raise LakeError(f"{text}: choose another --table, or another lake")
        new = self._decoding.type
        if self._infers or new is None or not before["schema"]:
            return
        old = unpack(bytes.fromhex(before["schema"]))
        for at in range(old.num_fields if old != new else 0):
            name, kind = old.field(at).name, old.field(at).type
            found = new.get_field_index(name)
            if found < 0 or new.field(found).type != kind:
                raise LakeError(f"column value.{name} of the table is {kind}: a schema may grow, but not change")

    def batch(self, messages: DataFrame, number: int) -> int:
        """Archive a batch: once, however often it comes."""
        with self._explained():
            return self._batch(messages, number)

    def _batch(self, messages: DataFrame, number: int) -> int:
        attempt = self._lake.begin(number)
        if attempt is None:
            return 0
        last = self._lake.last()
        hour = self._prepare(messages, number)
        batch = Batch(self._lake.query(), number, attempt.name, self._decoding, hour)
        staged: Staged = self.sink.stage(messages, batch)
        mark = self._mark(batch, staged, last)
        moves = list(self.sink.commit(staged, _committed(mark)))
        self._lake.record(structs.replace(mark, moves=moves))
        self.sink.recorded(mark)
        if last is not None and last.state["hour"] != hour:  # or the clock was set back
            self.sink.maintain(messages.sparkSession, new_day=last.state["hour"][:10] != hour[:10])
        return staged.good + staged.bad

    def _prepare(self, messages: DataFrame, number: int) -> str:
        """Settle the decoding of a batch, and return its hour: as before, for the rest of a batch that was begun."""
        begun = self.sink.begun(self._lake.query(), number)
        if begun is not None:
            self._decoding = Decoding(begun.state["format"], bytes.fromhex(begun.state["decoding"]))
            return str(begun.state["hour"])
        if self._infers:
            last = self._lake.last()
            packed = last.state["schema"] if last is not None else ""
            schema = find_schema(messages, unpack(bytes.fromhex(packed)) if packed else None)
            self._decoding = Decoding("json", b"" if schema is None else pack(schema))
        return time.strftime("%Y-%m-%d/%H", time.gmtime(self._options.clock()))

    def _mark(self, batch: Batch, staged: Staged, last: BatchMark | None) -> BatchMark:
        """A batch as the sink and the ledger record it."""
        before: dict[str, Any] = {"rows": 0, "quarantined": 0} if last is None else last.state
        kind = self._decoding.type if self._options.format != "text" else None
        state = {
            "hour": batch.hour,
            "identity": self._identity,
            "kind": self.kind,
            "format": self._options.format,
            "decoding": self._decoding.schema.hex(),
            "schema": "" if kind is None else pack(kind).hex(),
            "rows": before["rows"] + staged.good + staged.bad,
            "quarantined": before["quarantined"] + staged.bad,
            "good": staged.good,
            **covered(self._lake.checkpoint, batch.number, None if last is None else last.state),
        }
        position = max(staged.position, last.position if last is not None else 0)
        return BatchMark(batch.query, batch.number, [], position, False, state)


def _committed(mark: BatchMark) -> BatchMark:
    """A batch as sinks record it, without files to move."""
    return structs.replace(mark, moves=[], done=True)


def run(
    spark: SparkSession, broker: BrokerSource, folder: str, options: ArchiveOptions, how: RunControl
) -> PipelineProgress:
    """Run the pipeline."""
    lake = lake_of(folder, options)
    lake.store.check()
    with lake.locked():
        lake.prepare()
        identity = broker.reach().identity
        with closing(Archive(lake, options, identity)) as pipeline:
            picked = {"queue": options.queue, "queuePattern": options.pattern, "maxBytesPerTrigger": options.max_bytes}
            messages = broker.stream(spark, view="messages", startingPosition=start_of(lake, identity), **picked)
            return drive(messages, lake, pipeline.batch, how)
