"""Exports traces to an OpenTelemetry collector over OTLP/HTTP, from a thread that follows the journal.

Unsent spans are not buffered: their events are read from the journal again. So an unavailable collector costs no
memory; if it is away for too long, events are skipped and counted.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from penstock.admin.settings import AdminSettings
from penstock.admin.spans import TracedEvent, events_of, spans_of
from penstock.companions.process_reports import LogEvent
from penstock.companions.startup import Reporter
from penstock.journal import Follower, open_journal
from penstock.journal.errors import LogError
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views import arrow
from penstock.patterns import fits_queue

#: Seconds between two polls of the journal; doubled after each failure, up to ``LONGEST_WAIT``.
POLL = 0.5
LONGEST_WAIT = 30.0
#: Seconds for the collector's response, and for the thread to end.
PATIENCE = 10.0
GRACE = 2.0
#: Events per read, spans per request, and events that the export may lag behind.
READ, SENT, MOST_BEHIND = 4_096, 512, 100_000
#: Statuses after which a request may be retried, according to OTLP.
TRY_AGAIN = (429, 502, 503, 504)


class Unsent(Exception):
    """The collector refused a request that can be retried."""


class Tracer:
    """Exports traces of events from its creation on."""

    def __init__(self, settings: AdminSettings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        self._journal: Follower | None = None
        self._position = -1
        self._troubled = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        #: Whether this broker serves: one on standby exports nothing.
        self.serving: Callable[[], bool] = lambda: True
        #: Spans that the collector accepted and refused, and events that were skipped.
        self.sent = self.refused = self.skipped = 0
        with suppress(LogError, OSError):  # the thread will report it
            self._open()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Poll once more, unless the last poll failed, and end."""
        self._ended.set()
        self._thread.join(GRACE)

    def _run(self) -> None:
        wait = POLL
        while True:
            last = self._ended.is_set()
            wait = POLL if self._poll() else min(2 * wait, LONGEST_WAIT)
            if last or (self._ended.wait(wait) and self._troubled):
                return

    def _poll(self) -> bool:
        """Export new events. False if that failed."""
        try:
            self._follow()
        except (Unsent, LogError, OSError, HTTPException) as error:
            if isinstance(error, LogError):
                self._journal = None  # the journal may have been replaced
            self._log_change(True, "warning", "trace export failing", reason=str(error) or type(error).__name__)
            return False
        except Exception as error:  # the thread must survive
            self._reporter.fault(error)
            return False
        return True

    def _log_change(self, troubled: bool, level: str, event: str, **facts: str) -> None:
        """Log only the first failure and the first success after it."""
        if troubled != self._troubled:
            facts = {"endpoint": self._settings.traces_endpoint, **facts}
            self._reporter.report(LogEvent(level=level, event=event, facts=facts))
        self._troubled = troubled

    def _open(self) -> Follower:
        """Open the journal at its current end."""
        journal = open_journal(self._settings.journal).follow()
        if self._position >= 0:
            self.skipped += max(0, journal.latest - self._position)
        self._position, self._journal = journal.latest, journal
        return journal

    def _follow(self) -> None:
        journal = self._journal or self._open()
        latest = journal.latest
        if not self.serving():
            self._position = latest
        oldest = max(journal.earliest, latest - MOST_BEHIND)
        self.skipped += max(0, oldest - self._position)
        self._position = max(self._position, oldest)
        while self._position < latest:
            self._advance(journal, min(self._position + READ, latest))

    def _advance(self, journal: Follower, stop: int) -> None:
        """Export events up to a position. After an error the export continues after the last accepted spans."""
        spans: list[Span] = []
        read = arrow.read(
            journal, "events", self._position, stop, queues=self._wanted, columns=TracedEvent._fields, accept_loss=True
        )
        for batch in read:
            for event in events_of(batch):
                spans += spans_of(event, self._settings.traces_ratio)
                if len(spans) >= SENT:
                    self._send(spans)
                    spans, self._position = [], event.position + 1
        if spans:
            self._send(spans)
        self._position = stop

    def _wanted(self, name: QueueName) -> bool:
        return any(fits_queue(each, name.namespace, name.queue) for each in self._settings.traces_queues)

    def _send(self, spans: list[Span]) -> None:
        """Raises Unsent, OSError or HTTPException if it should be retried."""
        status, body = self._post(gzip.compress(self._request(spans).SerializeToString(), 1))
        if status in TRY_AGAIN:
            raise Unsent(f"the collector responded with status {status}")
        refused = _refused(body) if 200 <= status < 300 else len(spans)
        self.sent += len(spans) - refused
        self.refused += refused
        if 200 <= status < 300:
            self._log_change(False, "info", "trace export resumed")
        else:
            self._log_change(True, "warning", "traces refused by the collector", reason=f"status {status}")

    def _post(self, body: bytes) -> tuple[int, bytes]:
        where = urlsplit(self._settings.traces_endpoint)
        kind = HTTPSConnection if where.scheme == "https" else HTTPConnection
        headers = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
        with closing(kind(where.hostname or "", where.port, timeout=PATIENCE)) as connection:
            connection.request("POST", where._replace(scheme="", netloc="").geturl() or "/", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(65_536)

    def _request(self, spans: list[Span]) -> ExportTraceServiceRequest:
        version = self._settings.version
        service = {"service.name": "penstock", "service.version": version}
        resource = Resource(attributes=[KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in service.items()])
        scope = ScopeSpans(scope=InstrumentationScope(name="penstock", version=version), spans=spans)
        return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])


def _refused(body: bytes) -> int:
    """The number of rejected spans in a response of the collector."""
    try:
        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except DecodeError:
        return 0
