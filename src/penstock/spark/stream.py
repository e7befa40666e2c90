"""Streaming reads. Offsets are positions, so a batch that failed is read again with exactly the same rows.

Spark keeps a reader in a process of its own beside the driver, calls ``latestOffset`` about 50 times a second while the
stream is idle, and then ``partitions`` once for each batch. ``commit`` comes late and ``stop`` may never come, so
nothing depends on them: the start passed to ``latestOffset`` says what has been processed.

``latestOffset`` cuts a batch when it decides where it ends, and puts the cuts into the offset, which Spark keeps.
``partitions`` only reads the offset: options, the journal and the cluster may have changed when a batch is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from penstock.flight.calls import Advance, Advanced, Pick, Range, Status
from penstock.spark.batch import PART_BYTES, archived, beginning, check_queue, part, plan
from penstock.spark.endpoint import log
from penstock.spark.errors import ADVICE, DataLoss, NoQueue, Replaced, SourceError
from penstock.spark.offsets import Offset, lengths, offset, subject
from penstock.spark.options import SourceSettings
from penstock.spark.progress import NO_LAG
from penstock.spark.reader import StreamReaderBase

if TYPE_CHECKING:
    from penstock.spark.lake.tables import TableFile

#: Seconds for which the known end of the journal counts as current.
FRESH = 0.04
#: Positions that the stream of a quiet queue in a busy journal may pass over, or seconds, before it records its
#: position with an empty batch. It must not stand still, since retention moves on.
QUIET_POSITIONS = 5_000_000
QUIET_SECONDS = 60.0


class StreamReader(StreamReaderBase):
    """A stream of a view."""

    def __init__(self, settings: SourceSettings, columns: list[str], schema: StructType) -> None:
        super().__init__(settings, columns, schema)
        self.reported = settings.view  # type: ignore[assignment]
        self._pick = Pick(queue=settings.queue, pattern=settings.pattern)
        self._of = subject(settings)
        self._history = archived(settings, self._pick)
        #: The last returned end, and whether nothing was behind it.
        self._returned: Offset | None = None
        self._caught_up = False
        #: The end, for a query that stops at what was there when it started.
        self._last: Offset | None = None
        self._status: tuple[float, Range] | None = None
        self._quiet: _Quiet | None = None

    # Called by Spark, on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The start of a query without a checkpoint."""
        status = self._now()
        check_queue(self._endpoint, self._settings)
        begin = beginning(self._endpoint, self._settings, status, self._history)
        return Offset(status.identity, begin, of=self._of).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of a batch. Spark gets one of two limits; ``latestOffset`` also applies the other."""
        if self._settings.max_messages:
            return ReadMaxRows(self._settings.max_messages)
        if self._settings.max_bytes:
            return ReadMaxBytes(self._settings.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at the current end."""
        status = self._now()
        self._last = Offset(status.identity, status.latest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch; the start itself if there is nothing to read."""
        begin = self._same_journal(offset(start, self._settings))
        end = self._last if self._last is not None and self._last.identity == begin.identity else self._latest(begin)
        self._reporter.at(begin)
        self._returned, self._caught_up = begin, True
        if end.position <= begin.position:
            self._caught_up = self._now().latest <= begin.position
            self._check_end(begin)
            if self._last is not None:
                self._reporter.now()
            return start if begin.identity == start["identity"] else begin.to_dict()
        end_of_batch = self._next(begin, end.position, *self._limits(limit))
        if end_of_batch is None:
            return start
        self._returned, self._caught_up = end_of_batch, end_of_batch.position == self._now().latest
        return self._returned.to_dict()

    def _next(self, begin: Offset, stop: int, rows: int, size: int) -> Offset | None:
        """The end of the next batch with its cuts; None if there is none yet."""
        until = self._archived_until(begin.position, stop)
        if until > begin.position:
            return self._plan_archived(begin, until, rows, size)
        try:
            advanced = self._advance(begin, stop, rows, size)
            return None if advanced.stop == begin.position else self._plan(begin, advanced)
        except DataLoss:
            # The journal's beginning may have moved on since the last status.
            self._status = None
            until = self._archived_until(begin.position, stop)
            if until == begin.position:
                raise
            return self._plan_archived(begin, until, rows, size)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of a batch; always the same for the same end, whatever has changed since."""
        if start == end:
            return []
        stop = offset(end, self._settings)
        spans = stop.spans()
        until = self._archived_until(spans[0][0], stop.position) if spans else 0
        if spans and stop != self._returned and until < stop.position:
            # It is repeated: report rows lost since then once, here, instead of in each task.
            rest = (max(spans[0][0], until), stop.position)
            plan(self._endpoint, self._settings, self._pick, rest, stop.identity)
        files = self._files(spans[0][0], until) if spans else ()
        return [part(self._settings, self._pick, span, stop.identity, self._columns, files, until) for span in spans]

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The journal's end and the lag behind the batch, for ``latestOffset`` in the query's progress."""
        status = self._now()
        report: dict[str, Any] = {"identity": status.identity, "position": status.latest}
        if self._returned is None:
            return report
        return report | (NO_LAG if self._caught_up else self._behind(self._returned, status))

    # Implementation

    def _now(self) -> Range:
        """The journal's status, possibly from a moment ago."""
        if self._status is None or time.monotonic() - self._status[0] > FRESH:
            status = self._endpoint.ask(Status(), Range)
            self._status = (time.monotonic(), status)
        return self._status[1]

    def _behind(self, end: Offset, status: Range) -> dict[str, Any]:
        """The lag behind a batch, in the journal and in the archive. Empty if one of them does not answer."""
        lag = self._reporter.behind(end)
        if not lag or self._history is None or end.position >= status.earliest:
            return lag
        try:
            before = self._history.behind(status, end.position)
        except (SourceError, OSError) as error:
            log.debug("no lag: %s", error)
            return {}
        age = before.seconds if before.rows else lag["lagSeconds"]
        return {"lagMessages": lag["lagMessages"] + before.rows, "lagSeconds": round(age, 3)}

    def _archived_until(self, start: int, stop: int) -> int:
        """The end of the part of a range that comes from the archive; the range's start if there is none."""
        if self._history is None or start >= self._now().earliest:
            return start
        return self._history.reach(self._now(), start, stop)

    def _plan_archived(self, begin: Offset, until: int, rows: int, size: int) -> Offset:
        """The end of a batch from the archive. A batch always ends at the archive's end, whatever the limits are."""
        assert self._history is not None
        start, status = begin.position, self._now()
        advanced = self._history.advance(status, start, until, rows, size)
        cuts = self._history.cuts(status, start, advanced.stop, PART_BYTES) if advanced.rows else []
        return begin.at(advanced.stop, self._of, lengths(start, cuts, advanced.stop) if advanced.rows else [])

    def _files(self, start: int, until: int) -> tuple[TableFile, ...]:
        return () if self._history is None or start >= until else self._history.files(self._now(), start, until)

    def _latest(self, begin: Offset) -> Offset:
        return begin.at(self._now().latest, self._of)

    def _plan(self, begin: Offset, advanced: Advanced) -> Offset:
        """The end of a batch, with its final parts. Without rows it has none."""
        if not advanced.rows:
            return begin.at(advanced.stop, self._of, [])
        span = (begin.position, advanced.stop)
        planned = plan(self._endpoint, self._settings, self._pick, span, begin.identity)
        # Lost positions belong to parts too; their readers skip them.
        cuts = [low for low, _ in planned.ranges[1:]]
        return begin.at(advanced.stop, self._of, lengths(begin.position, cuts, advanced.stop))

    def _same_journal(self, begin: Offset) -> Offset:
        """The start, or the beginning of the journal that has replaced the one it belongs to."""
        status = self._now()
        if status.identity == begin.identity:
            return begin
        text = f"the broker's data was replaced: it is journal {status.identity} now, and {begin.identity} was read"
        if self._settings.fail_on_data_loss:
            raise Replaced(f"{text} (penstock at {self._settings.endpoint}). {ADVICE}, from its beginning")
        log.warning("%s. Reading it from its beginning", text)
        return Offset(status.identity, status.earliest)

    def _check_end(self, begin: Offset) -> None:
        """A journal that ends before the start was restored, perhaps from a backup."""
        latest = self._now().latest
        if latest < begin.position and self._settings.fail_on_data_loss:
            raise DataLoss(
                f"positions {latest} to {begin.position - 1} are lost: the journal ends at position {latest}, and was "
                f"read up to {begin.position} before (penstock at {self._settings.endpoint}). {ADVICE}"
            )

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Limits of rows and bytes; 0 means no limit."""
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self._settings.max_bytes
        if isinstance(limit, ReadMaxBytes):
            return 0, limit.max_bytes
        return 0, 0

    def _advance(self, begin: Offset, stop: int, rows: int, size: int) -> Advanced:
        """How far the batch goes, and whether it has rows. Stays at the start while there are none."""
        quiet = self._quiet
        if quiet is None or quiet.begin != begin:
            quiet = self._quiet = _Quiet(begin)
        if quiet.seen >= stop:
            return Advanced(stop=begin.position, rows=0, bytes=0)
        limited = bool(rows or size)
        request = Advance(
            queue=self._pick.queue,
            pattern=self._pick.pattern,
            view=self._settings.view,  # type: ignore[arg-type]
            start=quiet.seen,
            stop=stop,
            # Without limits, one row is enough to know: then the batch goes to the end.
            max_rows=rows if limited else 1,
            max_bytes=size,
            identity=begin.identity,
            accept_loss=not self._settings.fail_on_data_loss,
        )
        try:
            advanced = self._endpoint.ask(request, Advanced)
        except (DataLoss, NoQueue) as error:
            raise type(error)(f"{error}. {ADVICE}") from None
        if advanced.rows:
            return advanced if limited else replace(advanced, stop=stop)
        return replace(advanced, stop=stop if self._last is not None else quiet.passed(stop))


class _Quiet:
    """A range of the journal without rows for this stream, which need not be searched again."""

    def __init__(self, begin: Offset) -> None:
        self.begin = begin
        self.seen = begin.position
        self._since = time.monotonic()

    def passed(self, stop: int) -> int:
        """Note an empty range up to here. Returns the end of the batch: its start, unless an empty batch is due."""
        self.seen = stop
        waited = time.monotonic() - self._since
        return stop if waited > QUIET_SECONDS or stop - self.begin.position > QUIET_POSITIONS else self.begin.position
