"""Writes. Each task publishes its rows in chunks, and every chunk has a name: (writer, epoch, partition, chunk).

The broker accepts a chunk of one name once, so a task or batch that Spark runs again adds nothing twice, provided that
it produces the same rows. This is checked: each chunk has a digest of what its task has sent so far, and when all tasks
are done the broker compares what it has with what they have sent. So a batch never counts as done if its rows, or its
partitions, differed at the first attempt.

* stream: the writer is the query's own ID, which its checkpoint keeps, and the epoch is the batch's number;
* batch: the writer is generated for each write, begun before the first task and forgotten at the end; or the options
  name both, for a write that may be repeated as a whole, such as one in ``foreachBatch``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import DayTimeIntervalType, StructType

from penstock.flight.calls import CheckWritten, EndWriter, Queues, Write
from penstock.spark.chunks import DIGESTS, chunks, digest
from penstock.spark.endpoint import FlightEndpoint, log
from penstock.spark.errors import BadOption, RowsDiffer, SourceError
from penstock.spark.names import no_queue
from penstock.spark.options import SourceSettings

_TEXT = ("binary", "string")
_WHOLE = ("bigint", "int", "smallint", "tinyint")
_TIME = ("interval", "double", "float", *_WHOLE)
#: The columns of a message, and their types in Spark. Times as numbers are in seconds; intervals are those of days to
#: seconds.
COLUMNS = {
    "payload": _TEXT,
    "queue": ("string",),
    "ttl": _TIME,
    "priority": (*_WHOLE, "decimal(20,0)"),
    "delay": _TIME,
    "correlation_id": _TEXT,
}
#: Task properties in which Spark names the query and the batch.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
#: Appended to the error when a repetition is refused.
DIFFER = (
    "A write that is repeated must have the rows, and the partitions, that it had when it was first tried: undo what "
    "has changed since, such as the number of partitions, the size of the cluster, or the code. With option "
    "checkRepeats=false it continues anyway, and rows may be missing or duplicated"
)
#: A partition number that no task has.
NO_TASK = 2**31 - 1


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task has written."""

    writer: str
    partition: int
    rows: int = 0
    chunks: int = 0
    #: Chunks that the broker had already.
    repeated: int = 0
    #: Digest of all rows; 0 if nothing is checked.
    digest: int = 0


def check(settings: SourceSettings, schema: StructType, overwrite: bool) -> None:
    """Raise BadOption for a table that can't be written."""
    if overwrite:
        raise BadOption('a queue cannot be overwritten: use mode("append"), or outputMode("append") of a stream')
    whole = ", ".join(f"{name} ({' or '.join(types[:2])})" for name, types in COLUMNS.items())
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise BadOption(f"a message has no column {field.name}. Columns are {whole}: select these, or rename")
        kind = "interval" if isinstance(field.dataType, DayTimeIntervalType) else field.dataType.simpleString()
        if kind not in COLUMNS[field.name]:
            raise BadOption(f"column {field.name} is {kind}, and must be {' or '.join(COLUMNS[field.name])}: cast it")
    if "payload" not in schema.names:
        raise BadOption(f"there is no column payload. Columns are {whole}")
    if "queue" not in schema.names and not settings.queue:
        raise BadOption("no queue: give option queue, or a column queue with namespace/queue in it")


def write(
    settings: SourceSettings, name: Write, batches: Iterator[pa.RecordBatch], *, first: bool = False
) -> TaskWritten:
    """Publish the rows of a task. Only the ``first`` of all tasks does not know yet whether the broker is there."""
    done = TaskWritten(name.writer, name.partition)
    with _explained(), FlightEndpoint(settings) if first else FlightEndpoint(settings).trusted() as endpoint:
        for chunk in chunks(batches):
            if settings.check_repeats:
                done.digest = (done.digest + digest(chunk)) % DIGESTS or 1
            numbered = replace(name, chunk=done.chunks, digest=done.digest)
            done.repeated += endpoint.put(numbered, chunk).duplicate
            done.rows += chunk.num_rows
            done.chunks += 1
    return done


@contextmanager
def _explained() -> Iterator[None]:
    """Add advice to the error for a repetition that differs."""
    try:
        yield
    except RowsDiffer as error:
        raise RowsDiffer(f"{error}. {DIFFER}") from None


def check_written(settings: SourceSettings, epoch: int, done: list[TaskWritten], more: Sequence[int] = ()) -> None:
    """On the driver: the broker must have exactly what the tasks have sent. ``more`` has one chunk each.

    A write without rows adds nothing, but its source may have lost them since the first attempt.
    """
    parts = [(each.partition, each.chunks, each.digest) for each in done if each.chunks]
    if not parts or not settings.check_repeats:
        return
    parts += [(partition, 1, 0) for partition in more]
    with _explained(), FlightEndpoint(settings).trusted() as endpoint:
        endpoint.ask(CheckWritten(writer=done[0].writer, epoch=epoch, parts=parts), bool)


def _finished(messages: list[WriterCommitMessage | None]) -> list[TaskWritten]:
    return [each for each in messages if isinstance(each, TaskWritten)]


def _name(settings: SourceSettings, writer: str, epoch: int, *, begun: bool = False) -> Write:
    return Write(
        queue=settings.queue,
        writer=writer,
        epoch=epoch,
        partition=_task().partitionId(),
        create_queues=settings.create_queues,
        begun=begun,
    )


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise SourceError("a writer runs in a task of Spark, and this is not one")
    return task


def _reach(settings: SourceSettings) -> None:
    """Check on the driver, before any task runs, that the broker is there and has the queue."""
    with FlightEndpoint(settings) as endpoint:
        existing = endpoint.ask(Queues(queue=settings.queue, right="publish"), list[str])
        if settings.queue and not existing and not settings.create_queues:
            raise no_queue(endpoint, settings, "publish", "With option createQueues=true it is created")


def _log_repeated(settings: SourceSettings, done: list[TaskWritten]) -> None:
    """Warn about a write that added nothing: the name and the epoch may have been reused by mistake."""
    if all(each.repeated == each.chunks for each in done):
        rows = sum(each.rows for each in done)
        text = "all %d rows of writer %s, epoch %d, count as written: that epoch, or a later one, was there before"
        log.warning(text, rows, settings.writer, settings.epoch)


class BatchWriter(DataSourceArrowWriter):
    """``df.write``. Created on the driver, once for each write."""

    def __init__(self, settings: SourceSettings, schema: StructType, overwrite: bool) -> None:
        check(settings, schema, overwrite)
        _reach(settings)
        self._settings = settings
        self.name = settings.writer or f"batch-{uuid.uuid4()}"
        if not settings.writer:
            self._begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in each task."""
        name = _name(self._settings, self.name, self._settings.epoch or 0, begun=not self._settings.writer)
        return write(self._settings, name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, after the last task."""
        done = _finished(messages)
        if self._settings.writer and any(each.chunks for each in done):
            _log_repeated(self._settings, done)
        begun = () if self._settings.writer else (NO_TASK,)
        try:
            check_written(self._settings, self._settings.epoch or 0, done, begun)
        finally:
            self._end()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, after a task has failed for good. What other tasks have published stays published."""
        self._end()

    def _begin(self) -> None:
        """Make the writer known, with an empty chunk of a partition that no task has.

        Spark may leave tasks behind: one slower than its copy, or one on a machine believed lost. What they send after
        the end is refused, since the writer is no longer known.
        """
        nothing = pa.record_batch({"payload": pa.array([], pa.binary()), "queue": pa.array([], pa.string())})
        with FlightEndpoint(self._settings).trusted() as endpoint:
            endpoint.put(Write(writer=self.name, partition=NO_TASK, queue=self._settings.queue), nothing)

    def _end(self) -> None:
        if self._settings.writer:
            return  # it may be repeated later
        try:
            with FlightEndpoint(self._settings) as endpoint:
                endpoint.ask(EndWriter(writer=self.name), bool)
        except SourceError as error:
            log.warning("writer %s was not ended at the broker: %s", self.name, error)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``."""

    def __init__(self, settings: SourceSettings, schema: StructType, overwrite: bool) -> None:
        check(settings, schema, overwrite)
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in each task."""
        query, batch = _task().getLocalProperty(QUERY_ID), _task().getLocalProperty(BATCH_ID)
        if not query or not batch:
            raise SourceError("this task has no query and batch from Spark, so a repetition would go unnoticed")
        return write(self._settings, _name(self._settings, f"query-{query}", int(batch)), iterator, first=batch == "0")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Everything is published already; check that a repeated batch is the same as before."""
        check_written(self._settings, batchId, _finished(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: Spark will run the batch again."""
