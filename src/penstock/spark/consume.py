"""Spark as a consumer of queues: what it reads is leased to it, and acknowledged once a batch is done.

Offsets are positions of the journal's lease events, ends excluded:

    latestOffset(S)      leases made before S are settled, as their batch is done; what was leased from S on is leased
                         still, and is the next batch; only if there is nothing, more is leased
    partitions(S, E)     the leased rows in S..E, split over tasks as E says

So a driver that comes back with the same start gets the same rows, however often, until the lease's time is up; and
each task gets the same of them, whatever the options are then.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from penstock.flight.calls import Lag, Progress, Range, Read, Status, TakeLease
from penstock.flight.requests import Leased
from penstock.spark.endpoint import log
from penstock.spark.errors import Replaced
from penstock.spark.executor import ReadPart
from penstock.spark.names import check_there
from penstock.spark.offsets import Offset, offset, shares, subject
from penstock.spark.options import SourceSettings
from penstock.spark.progress import NO_LAG
from penstock.spark.reader import StreamReaderBase

#: Messages of a batch if the options have no limit. What is leased, nobody else can have.
DEFAULT_ROWS = 100_000
#: Rows that are worth a task of their own.
PART_ROWS = 20_000
#: Seconds between two questions for messages while there are none: each one is a journey to the broker.
IDLE_SECONDS = 0.1


class ConsumingReader(StreamReaderBase):
    """A stream of what is leased."""

    reported = "leased"

    def __init__(self, settings: SourceSettings, columns: list[str], schema: StructType) -> None:
        super().__init__(settings, columns, schema)
        #: Tells this run of the query from another one that is still alive somewhere.
        self._instance = str(uuid.uuid4())
        self._identity = ""
        self._of = subject(settings)
        #: The last answer; and when there was nothing to be taken, if that is what it said.
        self._leased: Leased | None = None
        self._empty_at = 0.0
        #: How many more messages may be taken, for a query that stops at what was there when it started.
        self._left: int | None = None

    # Asked by Spark, on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where this reader's outstanding leases begin, or the end of the journal."""
        check_there(self._endpoint, self._settings, "consume")
        return Offset(self._journal(), self._lease(0, take=False).first, "consume", self._of).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What a batch may have at most. Of two limits, Spark is told one; ``latestOffset`` knows the other."""
        if self._settings.max_bytes and not self._settings.max_messages:
            return ReadMaxBytes(self._settings.max_bytes)
        return ReadMaxRows(self._settings.max_messages or DEFAULT_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take no more messages than there are now."""
        self._left = self._ready()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch; the start itself if there is nothing to consume."""
        begin = self._same_journal(offset(start, self._settings))
        self._reporter.at(begin)
        if self._idle(begin):
            return start
        rows, size = self._limits(limit)
        if self._left is None:
            found = self._lease(begin.position, take=True, rows=rows, size=size)
        else:
            found = self._lease_counted(begin, rows, size)
        if found.stop > begin.position:
            return begin.at(found.stop, self._of, self._shares(found.rows), begin.position).to_dict()
        if self._left is not None:
            self._reporter.now()
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The leased rows, split over tasks: the same whenever it is asked for the same end."""
        begin, stop = offset(start, self._settings), offset(end, self._settings)
        self._same_journal(stop)
        if start == end or stop.parts is None:
            return []
        first = stop.start or begin.position
        rows = self._outstanding(first, stop)
        cuts = [min(cut, rows) for cut in accumulate(stop.parts, initial=0)]
        return [self._part(first, stop, (low, high), rows) for low, high in pairwise(cuts) if low < high]

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """How far the leases go, and what waits behind them: ``latestOffset`` in the query's progress."""
        if self._leased is None:
            return None
        end = Offset(self._journal(), self._leased.stop, "consume")
        return {**end.to_dict(), **(NO_LAG if self._empty_at else self._reporter.behind(end))}

    # How it is done

    def _journal(self) -> str:
        if not self._identity:
            self._identity = self._endpoint.ask(Status(), Range).identity
        return self._identity

    def _same_journal(self, begin: Offset) -> Offset:
        if self._journal() != begin.identity:
            raise Replaced(
                f"the broker's data was replaced: this is journal {self._journal()}, and the checkpoint is of "
                f"{begin.identity} (penstock at {self._settings.endpoint}). Consume it with a new checkpoint"
            )
        return begin

    def _lease(self, start: int, *, take: bool, rows: int = 0, size: int = 0) -> Leased:
        settings = self._settings
        asked = TakeLease(
            queue=settings.queue,
            pattern=settings.pattern,
            reader=settings.reader,
            instance=self._instance,
            start=start,
            max_rows=rows,
            max_bytes=size,
            timeout=settings.lease_timeout,
            take=take,
            identity=self._journal(),
        )
        found = self._endpoint.ask(asked, Leased)
        self._leased = found
        self._empty_at = time.monotonic() if take and not found.rows else 0.0
        return found

    def _lease_counted(self, begin: Offset, rows: int, size: int) -> Leased:
        """Take no more than are left to be taken. What is leased already was taken before, and does not count."""
        assert self._left is not None
        found = self._lease(begin.position, take=False)
        if not found.rows and rows:
            found = self._lease(begin.position, take=True, rows=rows, size=size)
            self._left -= found.rows
        return found

    def _idle(self, begin: Offset) -> bool:
        """Whether the same question had no answer a moment ago."""
        known = self._leased
        return known is not None and known.stop == begin.position and time.monotonic() - self._empty_at < IDLE_SECONDS

    def _shares(self, rows: int) -> list[int]:
        return shares(rows, max(self._settings.min_partitions, -(-rows // PART_ROWS)))

    def _outstanding(self, first: int, stop: Offset) -> int:
        """How many rows the leases of a batch have: as just told or, when it is run again, as the broker knows them.

        Those whose time was up have gone back, and will come again. Spark goes on with what is left.
        """
        known = self._leased
        if known is None or not known.rows or known.stop != stop.position:
            known = self._lease(first, take=False)
        rows = known.rows if known.stop <= stop.position else 0
        if not rows or rows < sum(stop.parts or ()):
            text = "of what reader %s had leased up to %d, %d messages are left: the others went back, as time was up"
            log.error(text, self._settings.reader, stop.position, rows)
        return rows

    def _part(self, first: int, stop: Offset, rows: tuple[int, int], total: int) -> ReadPart:
        return ReadPart(
            Read(
                view="leased",
                start=first,
                stop=stop.position,
                columns=self._columns,
                identity=stop.identity,
                reader=self._settings.reader,
                first_row=rows[0],
                rows=rows[1] - rows[0],
                total=total,
            )
        )

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Rows and bytes."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._settings.max_messages or DEFAULT_ROWS
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._settings.max_bytes
        return rows if self._left is None else min(rows, self._left), size

    def _ready(self) -> int:
        """How many messages could be taken now."""
        settings = self._settings
        asked = Progress(queue=settings.queue, pattern=settings.pattern, view="leased", position=0)
        return self._endpoint.ask(asked, Lag).rows
