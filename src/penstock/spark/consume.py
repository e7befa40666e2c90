"""Spark as a consumer of queues: a batch's messages are leased, and acknowledged once the batch is done.

Offsets are positions of the journal's lease events, with exclusive ends:

    latestOffset(S)      settles leases made before S, since their batch is done; the leases from S on are the next
                         batch; only if there are none, more messages are leased
    partitions(S, E)     the leased rows in S..E, divided among tasks as E says

So a driver that repeats a start gets the same rows until the lease times out, and each task the same share of them,
whatever the options are by then.
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
from penstock.flight.flight_requests import Leased
from penstock.spark.endpoint import log
from penstock.spark.errors import Replaced
from penstock.spark.executor import ReadPart
from penstock.spark.names import check_there
from penstock.spark.offsets import Offset, offset, shares, subject
from penstock.spark.options import SourceSettings
from penstock.spark.progress import NO_LAG
from penstock.spark.reader import StreamReaderBase

#: Messages of a batch if the options have no limit: leased messages are withheld from other consumers.
DEFAULT_ROWS = 100_000
#: Rows that justify another task.
PART_ROWS = 20_000
#: Seconds between polls of empty queues: each is a round trip to the broker.
IDLE_SECONDS = 0.1


class ConsumingReader(StreamReaderBase):
    """A stream of leased messages."""

    reported = "leased"

    def __init__(self, settings: SourceSettings, columns: list[str], schema: StructType) -> None:
        super().__init__(settings, columns, schema)
        #: Distinguishes this run of the query from one that is still alive somewhere.
        self._instance = str(uuid.uuid4())
        self._identity = ""
        self._of = subject(settings)
        #: The last answer, and when it was empty (0: it was not).
        self._leased: Leased | None = None
        self._empty_at = 0.0
        #: How many more messages may be taken by a query that stops at what was there when it started.
        self._left: int | None = None

    # Called by Spark, on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The start of this reader's outstanding leases, or the end of the journal."""
        check_there(self._endpoint, self._settings, "consume")
        return Offset(self._journal(), self._lease(0, take=False).first, "consume", self._of).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of a batch. Spark gets one of two limits; ``latestOffset`` also applies the other."""
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
            leased = self._lease(begin.position, take=True, rows=rows, size=size)
        else:
            leased = self._lease_counted(begin, rows, size)
        if leased.stop > begin.position:
            return begin.at(leased.stop, self._of, self._shares(leased.rows), begin.position).to_dict()
        if self._left is not None:
            self._reporter.now()
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The leased rows, divided among tasks; always the same for the same end."""
        begin, stop = offset(start, self._settings), offset(end, self._settings)
        self._same_journal(stop)
        if start == end or stop.parts is None:
            return []
        first = stop.start or begin.position
        rows = self._outstanding(first, stop)
        cuts = [min(cut, rows) for cut in accumulate(stop.parts, initial=0)]
        return [self._part(first, stop, (low, high), rows) for low, high in pairwise(cuts) if low < high]

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The end of the leases and what waits behind them, for ``latestOffset`` in the query's progress."""
        if self._leased is None:
            return None
        end = Offset(self._journal(), self._leased.stop, "consume")
        return {**end.to_dict(), **(NO_LAG if self._empty_at else self._reporter.behind(end))}

    # Implementation

    def _journal(self) -> str:
        if not self._identity:
            self._identity = self._endpoint.ask(Status(), Range).identity
        return self._identity

    def _same_journal(self, begin: Offset) -> Offset:
        if self._journal() != begin.identity:
            raise Replaced(
                f"the broker's data was replaced: this is journal {self._journal()}, and the checkpoint belongs to "
                f"{begin.identity} (penstock at {self._settings.endpoint}). Consume it with a new checkpoint"
            )
        return begin

    def _lease(self, start: int, *, take: bool, rows: int = 0, size: int = 0) -> Leased:
        settings = self._settings
        request = TakeLease(
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
        leased = self._endpoint.ask(request, Leased)
        self._leased = leased
        self._empty_at = time.monotonic() if take and not leased.rows else 0.0
        return leased

    def _lease_counted(self, begin: Offset, rows: int, size: int) -> Leased:
        """Lease at most the remaining messages. Outstanding leases were counted when they were made."""
        assert self._left is not None
        leased = self._lease(begin.position, take=False)
        if not leased.rows and rows:
            leased = self._lease(begin.position, take=True, rows=rows, size=size)
            self._left -= leased.rows
        return leased

    def _idle(self, begin: Offset) -> bool:
        """Whether a lease with the same start found nothing a moment ago."""
        known = self._leased
        return known is not None and known.stop == begin.position and time.monotonic() - self._empty_at < IDLE_SECONDS

    def _shares(self, rows: int) -> list[int]:
        return shares(rows, max(self._settings.min_partitions, -(-rows // PART_ROWS)))

    def _outstanding(self, first: int, stop: Offset) -> int:
        """The number of leased rows of a batch: from the last answer or, for a repeated batch, from the broker.

        Leases that timed out have gone back to their queues and will be delivered again. Spark continues with the rest.
        """
        known = self._leased
        if known is None or not known.rows or known.stop != stop.position:
            known = self._lease(first, take=False)
        rows = known.rows if known.stop <= stop.position else 0
        if not rows or rows < sum(stop.parts or ()):
            text = "of what reader %s had leased up to %d, %d messages are left: the other leases timed out"
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
        """Limits of rows and bytes."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._settings.max_messages or DEFAULT_ROWS
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._settings.max_bytes
        return rows if self._left is None else min(rows, self._left), size

    def _ready(self) -> int:
        """How many messages could be leased now."""
        settings = self._settings
        request = Progress(queue=settings.queue, pattern=settings.pattern, view="leased", position=0)
        return self._endpoint.ask(request, Lag).rows
