"""``replay``: messages of an archive, or of the journal, go back into a queue, each once. See docs/pipelines.md.

Rows come by position, window by window (``windows.py``), and are cut into chunks, which depend only on the rows. A
chunk is published atomically, under the replay's name and its number, and the broker accepts each once. So a replay
that was killed is run again, resumes after the last known chunk, and repeats nothing. For that its rows must stay the
same: it ends at the last position at its first start.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from operator import ge, lt
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.flight.calls import EndWriter, Write
from penstock.spark.chunks import ROWS, chunks
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.lake.batches import Lake
from penstock.spark.lake.disk import LakeError, write_whole
from penstock.spark.lake.files import CUT
from penstock.spark.lake.parquet import first_position
from penstock.spark.lake.tables import QUARANTINE
from penstock.spark.options import Use, parse
from penstock.spark.pipelines.archive.options import ArchiveOptions, catalogue_of, lake_of
from penstock.spark.pipelines.run import (
    LOOK_EVERY,
    SPARK_ERRORS,
    BrokerSource,
    PipelineProgress,
    RunControl,
    explained,
    lines_of,
    watched,
)
from penstock.spark.pipelines.windows import JournalMessages, LakeTable, MessageSource, TableMessages, Window, frame

#: Windows that are fetched ahead while chunks are published.
AHEAD = 2
#: Columns that a count reads only if a filter uses them.
LARGE = ("payload", "value")
#: With a rate, a chunk is what may be sent in this time. Seconds.
BEAT = 0.5

ROW = pa.schema(
    {
        "position": pa.int64(),
        "payload": pa.binary(),
        "queue": pa.string(),
        "priority": pa.decimal128(20, 0),
        "correlation_id": pa.binary(),
    }
)


class ReplayChoice(Struct, frozen=True):
    """The messages to replay, and their target. It must not change until the replay is done."""

    #: A table of the lake; empty for the journal.
    table: str = "messages"
    queue: str | None = None
    where: str | None = None
    #: Times of publishing in ISO 8601; ``from_time`` is included, ``to_time`` is not.
    from_time: str | None = None
    to_time: str | None = None
    from_position: int | None = None
    to_position: int | None = None
    #: namespace/queue; None is the queue that a message was in.
    to: str | None = None
    create: bool = False
    chunk_rows: int = ROWS


class State(Struct):
    """A replay's progress."""

    choice: ReplayChoice
    #: Rows after this position are not part of it.
    end: int
    #: The writer of its chunks at the broker: another lake may have a replay of the same name.
    writer: str
    chunk: int = 0
    position: int = -1
    rows: int = 0
    #: Its total number of rows.
    total: int = 0
    done: bool = False


def transform(messages: DataFrame, choice: ReplayChoice) -> DataFrame:
    """The selected messages, in order, as they will be published."""
    return _chosen(messages, choice).orderBy("position")


def _chosen(messages: DataFrame, choice: ReplayChoice) -> DataFrame:
    found = _filtered(messages, choice)
    found = found.withColumn("queue", _own_queue() if choice.to is None else F.lit(choice.to))
    return found.select(*ROW.names)


def _filtered(messages: DataFrame, choice: ReplayChoice) -> DataFrame:
    found = messages
    for column, compare, bound in (
        (F.col("position"), ge, choice.from_position),
        (F.col("position"), lt, choice.to_position),
        (F.col("published_at"), ge, _time(choice.from_time)),
        (F.col("published_at"), lt, _time(choice.to_time)),
    ):
        if bound is not None:
            found = found.where(compare(column, bound))
    if choice.queue is not None:
        found = found.where(F.concat_ws("/", "namespace", "queue") == choice.queue)
    if choice.where is not None:
        found = found.where(choice.where)
    return found


def _time(text: str | None) -> Column | None:
    return None if text is None else F.lit(text).cast("timestamp")


def _own_queue() -> Column:
    """A message's original queue. An archive cuts the longest names."""
    known = F.concat_ws("/", "namespace", "queue")
    text = F.concat(F.lit("the archive has only a part of the name "), known, F.lit(": name the target with --to"))
    return F.when(F.col("namespace").rlike(CUT) | F.col("queue").rlike(CUT), F.raise_error(text)).otherwise(known)


class Replay:
    """One replay by its name, on one lake."""

    def __init__(
        self, spark: SparkSession, broker: BrokerSource, folder: str, name: str, places: ArchiveOptions | None = None
    ) -> None:
        """``places`` are the store and the catalogue of the archive's tables."""
        self._spark = spark
        self._broker = broker
        places = places or ArchiveOptions()
        archived = lake_of(folder, places)
        self._store = archived.store
        self._catalogue = catalogue_of(archived, places)
        self.lake = Lake(archived.root, f"replay-{name}")
        self._file = self.lake.hidden / "state.json"
        self._name = name

    def run(self, choice: ReplayChoice, rate: float | None, how: RunControl) -> PipelineProgress:
        """Publish the selected messages that were not published yet."""
        with self.lake.locked():
            self.lake.prepare()
            progress = PipelineProgress()
            try:
                how.doing = "looking for messages"
                with watched(self._spark, how, progress):
                    state = self._state(choice)
                with FlightEndpoint(parse(self._broker.options, Use.READING)) as endpoint:
                    self._run(endpoint, state, rate, how, progress)
            except SPARK_ERRORS as error:
                if not how.stop.is_set():  # otherwise these are Spark's cancelled jobs
                    raise explained(error) from None
            return progress

    def _state(self, choice: ReplayChoice) -> State:
        try:
            known = msgspec.json.decode(self._file.read_bytes(), type=State)
        except FileNotFoundError:
            known = State(choice, self._end(choice), f"batch-replay-{self._name}-{uuid4()}")
            known.total = self._count(known)
            self._keep(known)
            return known
        except msgspec.DecodeError as error:
            raise LakeError(f"{self._file} can't be understood ({error}): choose another --name") from None
        if known.choice != choice:
            text = "was started with other messages, another queue or another rate"
            raise LakeError(f"the replay {self._name} {text}: choose another --name, or the same options as before")
        return known

    def _end(self, choice: ReplayChoice) -> int:
        """The last position. A batch of plain files that is being moved into place does not count."""
        found = self._source(choice).last()
        ledger = Lake(self.lake.root, f"archive-{choice.table.removesuffix(f'_{QUARANTINE}')}").last()
        moving = [] if ledger is None or ledger.done else [first_position(to) for _, to in ledger.moves]
        return min([found, *(first - 1 for first in moving)])

    def _keep(self, state: State) -> None:
        write_whole(self._file, msgspec.json.encode(state))

    def _source(self, choice: ReplayChoice) -> MessageSource:
        if not choice.table:
            picked = {} if choice.queue is None else {"queue": choice.queue}
            return JournalMessages(parse({**self._broker.options, **picked}, Use.BATCH))
        return TableMessages(LakeTable(self._store, choice.table, self._catalogue))

    def _run(
        self, endpoint: FlightEndpoint, state: State, rate: float | None, how: RunControl, progress: PipelineProgress
    ) -> None:
        progress.total_rows, progress.before_rows, progress.doing = state.total, state.rows, "publishing"
        began = time.monotonic()
        for chunk in [] if state.done else chunks(self._batches(state, how), rows=state.choice.chunk_rows):
            if how.stop.is_set():
                break
            last = chunk.column("position")[-1].as_py()
            endpoint.put(_name(state, last), chunk.drop_columns(["position"]))
            state.chunk += 1
            state.position = last
            state.rows += chunk.num_rows
            self._keep(state)
            progress.rows += chunk.num_rows
            progress.batches += 1
            _pace(began, progress.rows, rate, how)
            progress.seconds = time.monotonic() - began
            how.report(progress)
        progress.done, progress.doing = not how.stop.is_set(), ""
        if progress.done and not state.done:
            # In this order: all chunks are published, so none is sent again, whatever happens in between.
            endpoint.ask(EndWriter(writer=state.writer), bool)
            state.done = True
            self._keep(state)
        progress.seconds = time.monotonic() - began
        how.report(progress)

    def _batches(self, state: State, how: RunControl) -> Iterator[pa.RecordBatch]:
        """The unpublished rows. Some windows are fetched ahead, but none when it is stopped."""
        source = self._source(state.choice)
        schema = source.schema()
        ready: deque[Future[pa.Table]] = deque()
        with ThreadPoolExecutor(AHEAD, "replay") as pool:
            try:
                for window in self._windows(source, state, schema.names):
                    ready.append(pool.submit(self._fetch, window, schema, state))
                    if len(ready) > AHEAD:
                        yield from _fetched(ready.popleft(), how)
                while ready:
                    yield from _fetched(ready.popleft(), how)
            finally:
                running = [each for each in ready if not each.cancel()]
                if running:
                    self._spark.sparkContext.cancelAllJobs()

    def _windows(self, source: MessageSource, state: State, columns: list[str]) -> Sequence[Window]:
        """The windows of unpublished rows."""
        first = state.choice.from_position
        start = max(first or 1, state.position + 1) if first is not None or state.position >= 0 else None
        to = state.choice.to_position
        stop = state.end + 1 if to is None else min(state.end + 1, to)
        return source.windows(start, stop, columns) if (start or 0) < stop else []

    def _fetch(self, window: Window, schema: pa.Schema, state: State) -> pa.Table:
        with _understood():
            return _chosen(frame(self._spark, [window], schema), state.choice).toArrow().cast(ROW)

    def _count(self, state: State) -> int:
        """The number of rows to publish."""
        source, where = self._source(state.choice), state.choice.where or ""
        schema = pa.schema([each for each in source.schema() if each.name not in LARGE or each.name in where])
        with _understood():
            return _filtered(
                frame(self._spark, self._windows(source, state, schema.names), schema), state.choice
            ).count()


@contextmanager
def _understood() -> Iterator[None]:
    """Report a filter that Spark can't parse as the caller's error."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise ValueError(f"the filter can't be understood: {lines_of(error)[0]}") from None


def _fetched(job: Future[pa.Table], how: RunControl) -> Iterator[pa.RecordBatch]:
    """Wait for a window, unless the replay is stopped."""
    while not how.stop.is_set():
        try:
            yield from job.result(LOOK_EVERY).to_batches()
        except TimeoutError:
            continue
        return


def _name(state: State, last: int) -> Write:
    """The name of the next chunk. The last row's position shows whether a repeated chunk ends where it did."""
    return Write(
        queue=state.choice.to or "",
        writer=state.writer,
        chunk=state.chunk,
        digest=last,
        create_queues=state.choice.create,
    )


def _pace(began: float, rows: int, rate: float | None, how: RunControl) -> None:
    """Wait until this many rows may have been sent."""
    if rate is not None:
        how.stop.wait(max(0.0, began + rows / rate - time.monotonic()))


def chunk_rows(rate: float | None) -> int:
    """The rows of a chunk: with a rate, few enough for a smooth flow."""
    return ROWS if rate is None else max(1, min(ROWS, int(rate * BEAT)))
