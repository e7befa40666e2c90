"""Writes. Each task publishes its rows in chunks, and every chunk has a name: (writer, epoch, partition, chunk).

The broker takes a chunk of one name once. A task that Spark runs again, a batch that a restarted query runs again, add
nothing twice, as long as they make the same rows. Whether they do is checked: each chunk has a digest of what its task
has sent so far, and when all tasks are done the driver has the broker compare what it has with what they have sent. So
no batch counts as done whose rows, or whose cut, was another one when it was first tried.

* stream: the writer is the query's own ID, which its checkpoint keeps, and the epoch is the batch's number;
* batch: the writer is made up for each write, begun before the first task and forgotten at the end; or the options name
  both, for a write that may be repeated as a whole, such as one in ``foreachBatch``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
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
#: The columns that a message can be made of, and the types that Spark may have them in. Numbers of times are seconds;
#: intervals are those of days to seconds.
COLUMNS = {
    "payload": _TEXT,
    "queue": ("string",),
    "ttl": _TIME,
    "priority": (*_WHOLE, "decimal(20,0)"),
    "delay": _TIME,
    "correlation_id": _TEXT,
}
#: Where Spark tells a task which query and which of its batches it works for.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
#: Told when a repetition is refused.
DIFFER = (
    "A write that is repeated must have the rows, and the partitions, that it had when it was first tried: undo what "
    "has changed since, such as the number of partitions, the size of the cluster, or the code. With option "
    "checkRepeats=false it goes on as it is, and rows may be missing or come twice"
)
#: A partition that no task works on.
NO_TASK = 2**31 - 1


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task has written."""

    writer: str
    partition: int
    rows: int = 0
    chunks: int = 0
    #: How many of the chunks the broker had already.
    repeated: int = 0
    #: Of all rows; 0 if nothing is to be checked.
    digest: int = 0


def check(settings: SourceSettings, schema: StructType, overwrite: bool) -> None:
    """Raise BadOption for a table that can't be written."""
    if overwrite:
        raise BadOption(
            'messages are added, and nothing is overwritten: use mode("append"), or outputMode("append") of a stream'
        )
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
    """Publish the rows of a task. If it is the ``first`` of all, nobody knows yet whether the broker is there."""
    endpoint = FlightEndpoint(settings) if first else FlightEndpoint(settings).trusted()
    done = TaskWritten(name.writer, name.partition)
    try:
        for chunk in chunks(batches):
            if settings.check_repeats:
                done.digest = (done.digest + digest(chunk)) % DIGESTS or 1
            numbered = replace(name, chunk=done.chunks, digest=done.digest)
            done.repeated += endpoint.put(numbered, chunk).duplicate
            done.rows += chunk.num_rows
            done.chunks += 1
    except RowsDiffer as error:
        raise RowsDiffer(f"{error}. {DIFFER}") from None
    finally:
        endpoint.close()
    return done


def check_written(settings: SourceSettings, epoch: int, done: list[TaskWritten], more: Sequence[int] = ()) -> None:
    """On the driver: the broker must have what the tasks have sent, and nothing else. ``more`` has one chunk each.

    A write without rows may be one whose source has lost them since the first attempt, and has added nothing.
    """
    parts = [(each.partition, each.chunks, each.digest) for each in done if each.chunks]
    if not parts or not settings.check_repeats:
        return
    endpoint = FlightEndpoint(settings).trusted()
    try:
        parts += [(partition, 1, 0) for partition in more]
        endpoint.ask(CheckWritten(writer=done[0].writer, epoch=epoch, parts=parts), bool)
    except RowsDiffer as error:
        raise RowsDiffer(f"{error}. {DIFFER}") from None
    finally:
        endpoint.close()


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
        raise SourceError("a writer runs in a task of Spark, and this is none")
    return task


def _reach(settings: SourceSettings) -> None:
    """Find out on the driver, before any task runs, whether the broker is there and has the queue."""
    endpoint = FlightEndpoint(settings)
    try:
        found = endpoint.ask(Queues(queue=settings.queue, right="publish"), list[str])
        if settings.queue and not found and not settings.create_queues:
            raise no_queue(endpoint, settings, "publish", "With option createQueues=true it is made")
    finally:
        endpoint.close()


def _tell_repeated(settings: SourceSettings, done: list[TaskWritten]) -> None:
    """Somebody who uses a name and a number again by mistake should be able to find out why nothing comes."""
    if all(each.repeated == each.chunks for each in done):
        rows = sum(each.rows for each in done)
        text = "all %d rows of writer %s, epoch %d, count as written: that epoch, or a later one, was there before"
        log.warning(text, rows, settings.writer, settings.epoch)


class BatchWriter(DataSourceArrowWriter):
    """``df.write``. Made on the driver, once for each write."""

    def __init__(self, settings: SourceSettings, schema: StructType, overwrite: bool) -> None:
        check(settings, schema, overwrite)
        _reach(settings)
        self._settings = settings
        self.name = settings.writer or f"batch-{uuid.uuid4()}"
        if not settings.writer:
            self._begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In each task."""
        name = _name(self._settings, self.name, self._settings.epoch or 0, begun=not self._settings.writer)
        return write(self._settings, name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, after the last task."""
        done = _finished(messages)
        if self._settings.writer and any(each.chunks for each in done):
            _tell_repeated(self._settings, done)
        begun = () if self._settings.writer else (NO_TASK,)
        try:
            check_written(self._settings, self._settings.epoch or 0, done, begun)
        finally:
            self._end()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, after a task has failed for good. What others have published stays published."""
        self._end()

    def _begin(self) -> None:
        """Make the writer known, with a chunk of nothing that no task has.

        Spark may leave tasks behind: one that was slower than its copy, one on a machine that was given up for lost.
        What they send after the end is refused, as the writer is not known any more.
        """
        nothing = pa.record_batch({"payload": pa.array([], pa.binary()), "queue": pa.array([], pa.string())})
        endpoint = FlightEndpoint(self._settings).trusted()
        try:
            endpoint.put(Write(writer=self.name, partition=NO_TASK, queue=self._settings.queue), nothing)
        finally:
            endpoint.close()

    def _end(self) -> None:
        if self._settings.writer:
            return  # it may be repeated, later
        endpoint = FlightEndpoint(self._settings)
        try:
            endpoint.ask(EndWriter(writer=self.name), bool)
        except SourceError as error:
            log.warning("the broker was not told that %s is done: %s", self.name, error)
        finally:
            endpoint.close()


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``."""

    def __init__(self, settings: SourceSettings, schema: StructType, overwrite: bool) -> None:
        check(settings, schema, overwrite)
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In each task."""
        query, batch = _task().getLocalProperty(QUERY_ID), _task().getLocalProperty(BATCH_ID)
        if not query or not batch:
            raise SourceError("Spark does not tell this task its query and batch, so a repetition could not be noticed")
        return write(self._settings, _name(self._settings, f"query-{query}", int(batch)), iterator, first=batch == "0")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Everything is published already; the batch must not count as done if it is not what it was before."""
        check_written(self._settings, batchId, _finished(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Spark will run the batch again."""
