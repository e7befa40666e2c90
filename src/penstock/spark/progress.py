"""Reports a stream's position to the broker, about once a second, so that operators see it.

In a thread of its own: Spark does not call the reader while a batch is processed, and that is when a stream falls
behind. For the query's own progress it requests the lag behind the end of a batch.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from penstock.flight.calls import Lag, Progress, View
from penstock.spark.endpoint import FlightEndpoint, log
from penstock.spark.errors import SourceError
from penstock.spark.offsets import Offset
from penstock.spark.options import SourceSettings

#: Seconds between two reports.
EVERY = 1.0
#: The progress of a query that has nothing to read.
NO_LAG = {"lagMessages": 0, "lagSeconds": 0.0}
#: Seconds of retries for a report. The next one follows anyway.
PATIENCE = 0.5


class ProgressReporter:
    """Reports of one stream. Without a reader's name the broker only answers with the lag and keeps nothing."""

    def __init__(self, settings: SourceSettings, view: View) -> None:
        self._settings = settings
        self._view = view
        self._offset: Offset | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def at(self, offset: Offset) -> None:
        """Everything before this offset has been processed."""
        self._offset = offset
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-progress", daemon=True)
            self._thread.start()

    def behind(self, end: Offset) -> dict[str, Any]:
        """The lag behind the end of a batch, or of a consumer's queues. Empty if the broker does not answer."""
        try:
            with FlightEndpoint(self._settings, patience=PATIENCE) as endpoint:
                lag = endpoint.ask(self._call(end), Lag)
        except (SourceError, pa.ArrowException) as error:
            log.debug("no lag: %s", error)
            return {}
        return {"lagMessages": lag.rows, "lagSeconds": round(lag.seconds, 3)}

    def now(self) -> None:
        """Report at once: the query is about to end, and its last report stays visible."""
        with FlightEndpoint(self._settings, patience=PATIENCE) as endpoint:
            self._try(endpoint)

    def stop(self) -> None:
        """Stop reporting."""
        self._ended.set()

    def _run(self) -> None:
        with FlightEndpoint(self._settings, patience=PATIENCE) as endpoint:
            while not self._ended.is_set():
                self._try(endpoint)
                self._ended.wait(EVERY)

    def _try(self, endpoint: FlightEndpoint) -> None:
        assert self._offset is not None
        report = replace(self._call(self._offset), reader=self._settings.reader, pin=self._settings.pin)
        try:
            endpoint.ask(report, Lag)
        except (SourceError, pa.ArrowException) as error:
            log.debug("no report: %s", error)

    def _call(self, offset: Offset) -> Progress:
        return Progress(
            queue=self._settings.queue,
            pattern=self._settings.pattern,
            view=self._view,
            position=offset.position,
            identity=offset.identity,
        )
