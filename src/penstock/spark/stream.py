"""Streaming reads. Offsets are positions, so a batch that failed is read again, row by row the same.

Spark keeps one of these in a process of its own beside the driver, asks ``latestOffset`` about 50 times a second while
nothing comes, and then ``partitions`` once for each batch. ``commit`` comes late and ``stop`` may never come, so
nothing rests on them: what ``latestOffset`` is given as start has been worked off.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)
from pyspark.sql.types import StructType

from penstock.flight.calls import Advance, Advanced, Pick, Range, Status
from penstock.spark.batch import ADVICE, beginning, check_queue, part, plan
from penstock.spark.endpoint import log
from penstock.spark.errors import DataLoss, NoQueue, Replaced
from penstock.spark.offsets import Offset, offset
from penstock.spark.options import Settings
from penstock.spark.reader import Reader

#: Seconds for which an answer about the end of the journal counts as new.
FRESH = 0.04
#: A stream of a quiet queue in a busy journal passes over this many positions, or waits this many seconds, before it
#: writes down how far it is with a batch that has no rows. It must not stand still: retention moves on.
QUIET_POSITIONS = 5_000_000
QUIET_SECONDS = 60.0


class StreamReader(Reader):
    """A stream of a view."""

    def __init__(self, settings: Settings, columns: list[str], schema: StructType) -> None:
        super().__init__(settings, columns, schema)
        self.reported = settings.view  # type: ignore[assignment]
        self._pick = Pick(queue=settings.queue, pattern=settings.pattern)
        #: The end, for a query that stops at what was there when it started.
        self._last: Offset | None = None
        self._status: tuple[float, Range] | None = None
        self._quiet: _Quiet | None = None

    # Asked by Spark, on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        status = self._now()
        check_queue(self._endpoint, self._settings)
        return Offset(status.identity, beginning(self._endpoint, self._settings, status)).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What a batch may have at most. Of two limits, Spark is told one; ``latestOffset`` knows the other."""
        if self._settings.max_messages:
            return ReadMaxRows(self._settings.max_messages)
        if self._settings.max_bytes:
            return ReadMaxBytes(self._settings.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at what is there now."""
        status = self._now()
        self._last = Offset(status.identity, status.latest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch; the start itself if there is nothing to read."""
        begin = self._same_journal(offset(start))
        end = self._last if self._last is not None and self._last.identity == begin.identity else self._latest(begin)
        self._reporter.at(begin)
        if end.position <= begin.position:
            self._check_end(begin)
            if self._last is not None:
                self._reporter.now()
            return start if begin.identity == start["identity"] else begin.to_dict()
        found = self._advance(begin, end.position, *self._limits(limit))
        return start if found == begin.position else begin.at(found).to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of a batch: the same rows whenever it is asked for the same range."""
        begin, stop = offset(start), offset(end)
        if begin.identity != stop.identity:
            # The journal was replaced in between, and that was accepted: the new one is read from its beginning.
            begin = Offset(stop.identity, self._now().earliest)
        if begin.position >= stop.position:
            return []
        planned = plan(self._endpoint, self._settings, self._pick, (begin.position, stop.position), stop.identity)
        return [part(self._settings, self._pick, span, planned.identity, self._columns) for span in planned.ranges]

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """How far the journal goes, and how far behind the query is: ``latestOffset`` in the query's progress."""
        status = self._now()
        found: dict[str, Any] = {"identity": status.identity, "position": status.latest}
        return found | self._reporter.lag()

    # How it is done

    def _now(self) -> Range:
        """The journal as it is, or was a moment ago."""
        if self._status is None or time.monotonic() - self._status[0] > FRESH:
            found = self._endpoint.ask(Status(), Range)
            self._status = (time.monotonic(), found)
        return self._status[1]

    def _latest(self, begin: Offset) -> Offset:
        return begin.at(self._now().latest)

    def _same_journal(self, begin: Offset) -> Offset:
        """The start, or the beginning of the journal that has taken the place of the one it belongs to."""
        status = self._now()
        if status.identity == begin.identity:
            return begin
        text = f"the broker's data was replaced: it is journal {status.identity} now, and {begin.identity} was read"
        if self._settings.fail_on_data_loss:
            raise Replaced(f"{text} (penstock at {self._settings.endpoint}). {ADVICE}, from its beginning")
        log.warning("%s. Reading it from its beginning", text)
        return Offset(status.identity, status.earliest)

    def _check_end(self, begin: Offset) -> None:
        """A journal that ends before what was read of it is one that was put back, from a backup perhaps."""
        latest = self._now().latest
        if latest < begin.position and self._settings.fail_on_data_loss:
            raise DataLoss(
                f"the journal ends at position {latest}, and was read up to {begin.position} before "
                f"(penstock at {self._settings.endpoint}). {ADVICE}, once it is as long again"
            )

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Rows and bytes; 0 is no limit."""
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self._settings.max_bytes
        if isinstance(limit, ReadMaxBytes):
            return 0, limit.max_bytes
        return 0, 0

    def _advance(self, begin: Offset, stop: int, rows: int, size: int) -> int:
        """How far the batch goes; not at all while there are no rows."""
        quiet = self._quiet
        if quiet is None or quiet.begin != begin:
            quiet = self._quiet = _Quiet(begin)
        limited = bool(rows or size)
        asked = Advance(
            queue=self._pick.queue,
            pattern=self._pick.pattern,
            view=self._settings.view,  # type: ignore[arg-type]
            start=quiet.seen,
            stop=stop,
            # Without limits it is enough to know that there is a row: then the batch goes to the end.
            max_rows=rows if limited else 1,
            max_bytes=size,
            identity=begin.identity,
            accept_loss=not self._settings.fail_on_data_loss,
        )
        if quiet.seen >= stop:
            return begin.position
        try:
            found = self._endpoint.ask(asked, Advanced)
        except (DataLoss, NoQueue) as error:
            raise type(error)(f"{error}. {ADVICE}") from None
        if found.rows:
            return found.stop if limited else stop
        return stop if self._last is not None else quiet.passed(stop)


class _Quiet:
    """A stretch of the journal that has nothing for us, and that need not be looked at again."""

    def __init__(self, begin: Offset) -> None:
        self.begin = begin
        self.seen = begin.position
        self._since = time.monotonic()

    def passed(self, stop: int) -> int:
        """Nothing was found up to here. Returns where the batch ends: at its start, unless it is time for a mark."""
        self.seen = stop
        waited = time.monotonic() - self._since
        return stop if waited > QUIET_SECONDS or stop - self.begin.position > QUIET_POSITIONS else self.begin.position
