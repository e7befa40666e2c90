"""Metrics of the broker and its queues. Units are base units; counters end in ``_total``."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from penstock.admin.admin_requests import BrokerFigures, QueueRow
from penstock.admin.exposition import MetricsText
from penstock.admin.mirror import MessageCounts, QueueTotals, counts_of
from penstock.admin.processes import ProcessFigures
from penstock.admin.resources.operations import Disk
from penstock.admin.resources.peers import Pipeline
from penstock.companions.readers_and_writers import ReaderRow

#: Queues and readers with series of their own in one scrape.
MOST_SERIES = 1_000


class TraceCounts(Protocol):
    """The counters of ``Tracer``."""

    sent: int
    refused: int
    skipped: int


def add_processes(write: MetricsText, version: str, code: str, processes: Mapping[str, ProcessFigures]) -> None:
    """Add the build, and the resources used by the broker's processes."""
    labels = {"version": version, "code": code, "python": platform.python_version()}
    write.info("penstock_build", "Version and build of Penstock.", labels)
    named = [({"process": name}, figures) for name, figures in processes.items()]
    cpu = [(name, figures.cpu_seconds) for name, figures in named]
    write.counter("process_cpu_seconds", "CPU time in user and system mode.", cpu, "seconds")
    resident = [(name, figures.resident_bytes) for name, figures in named]
    write.gauge("process_resident_memory_bytes", "Resident memory.", resident, "bytes")
    virtual = [(name, figures.virtual_bytes) for name, figures in named]
    write.gauge("process_virtual_memory_bytes", "Virtual memory.", virtual, "bytes")
    write.gauge("process_open_fds", "Open file descriptors.", [(name, each.open_files) for name, each in named])
    write.gauge("process_max_fds", "Limit of open file descriptors.", [(name, f.most_files) for name, f in named])
    started = [(name, figures.started_at) for name, figures in named]
    write.gauge("process_start_time_seconds", "When the process started.", started, "seconds")


def broker_metrics(
    figures: BrokerFigures,
    totals: QueueTotals,
    counted: MessageCounts,
    dead: Mapping[str, int],
    oldest_at: int,
    readers: Iterable[ReaderRow],
    disk: Disk | None,
    journal: Mapping[str, int],
    reasons: Iterable[str],
    pipelines: Sequence[Pipeline] = (),
    traces: TraceCounts | None = None,
) -> MetricsText:
    """Metrics of the broker and of all queues together."""
    write = MetricsText()
    _queue_totals(write, figures, totals, dead, oldest_at)
    _counted(write, counted)
    _connections(write, figures)
    write.histogram("penstock_commit_events", "Events per commit.", figures.commit_events)
    write.histogram("penstock_commit_seconds", "Duration of a commit.", figures.commit_seconds, "seconds")
    write.histogram("penstock_sync_seconds", "Duration of a sync to disk.", figures.sync_seconds, "seconds")
    write.histogram("penstock_loop_lag_seconds", "Delay of the event loop.", figures.loop_lag, "seconds")
    write.gauge(
        "penstock_memory_bytes",
        "Memory by purpose.",
        [
            ({"for": "queues"}, figures.state_bytes),
            ({"for": "input"}, figures.held_input),
            ({"for": "output"}, figures.held_output),
            ({"for": "unwritten"}, figures.unwritten),
        ],
        "bytes",
    )
    _journal(write, journal, disk)
    _readers(write, list(readers))
    _pipelines(write, pipelines)
    if traces is not None:
        _traces(write, traces)
    _role(write, serving=True, ready=not list(reasons))
    _silence(write, 0.0)
    write.gauge("penstock_draining", "Whether an operator is draining the queues.", [({}, float(figures.draining))])
    write.gauge("penstock_start_time_seconds", "When the broker started.", [({}, figures.started_at / 1e6)], "seconds")
    return write


def standby_metrics() -> MetricsText:
    """Metrics of a broker on standby: all others belong to the broker that serves."""
    write = MetricsText()
    _role(write, serving=False, ready=False)
    return write


def silent_metrics(seconds: float) -> MetricsText:
    """Metrics of a broker that does not answer."""
    write = MetricsText()
    write.gauge("penstock_ready", "Whether messages are accepted.", [({}, 0.0)])
    _silence(write, seconds)
    return write


def _silence(write: MetricsText, seconds: float) -> None:
    about = "Time since the broker last answered the HTTP process."
    write.gauge("penstock_broker_silence_seconds", about, [({}, seconds)], "seconds")


def _role(write: MetricsText, *, serving: bool, ready: bool) -> None:
    about = "Whether it owns the journal; 0: it is on standby, and another broker serves."
    write.gauge("penstock_serving", about, [({}, float(serving))])
    write.gauge("penstock_ready", "Whether messages are accepted.", [({}, float(ready))])


def _traces(write: MetricsText, traces: TraceCounts) -> None:
    spans = [({"outcome": "sent"}, traces.sent), ({"outcome": "refused"}, traces.refused)]
    write.counter("penstock_trace_spans", "Spans by the collector's response.", spans)
    about = "Events skipped because the export lagged too far behind."
    write.counter("penstock_traces_dropped", about, [({}, traces.skipped)])


def _queue_totals(
    write: MetricsText, figures: BrokerFigures, totals: QueueTotals, dead: Mapping[str, int], oldest_at: int
) -> None:
    states = ("ready", "out", "delayed", "dead", "damaged")
    write.gauge(
        "penstock_messages",
        "Messages in all queues, by state.",
        [({"state": state}, getattr(totals, state)) for state in states],
    )
    write.gauge("penstock_queues", "Queues.", [({}, totals.queues)])
    write.gauge("penstock_namespaces", "Namespaces.", [({}, figures.namespaces)])
    write.gauge("penstock_waiting_bytes", "Payload bytes of waiting messages.", [({}, totals.bytes)], "bytes")
    write.gauge("penstock_consumers", "Consumers: see queues.md, A consumer.", [({}, totals.consumers)])
    age = max(0.0, (figures.now - oldest_at) / 1e6) if oldest_at else 0.0
    write.gauge("penstock_oldest_message_age_seconds", "Age of the oldest ready message.", [({}, age)], "seconds")
    write.gauge(
        "penstock_dead_letters",
        "Dead letters in all queues, by reason.",
        [({"reason": reason}, count) for reason, count in sorted(dead.items())],
    )
    write.gauge("penstock_leased_messages", "Messages leased by readers.", [({}, figures.leased)])
    write.gauge("penstock_locks", "Locked messages.", [({}, figures.locks)])


def _counted(write: MetricsText, counted: MessageCounts) -> None:
    """Counted since the start of this process, including deleted queues."""
    write.counter("penstock_published_messages", "Messages published.", [({}, counted.published)])
    write.counter("penstock_delivered_messages", "Deliveries.", [({}, counted.delivered)])
    write.counter("penstock_settled_messages", "Messages settled for good.", [({}, counted.settled)])
    write.counter("penstock_redelivered_messages", "Repeated deliveries.", [({}, counted.redelivered)])


#: The broker's counters of problems with connections.
_PROBLEMS = (
    "turned_away", "failed_handshakes", "accept_failures", "denied", "publish_refused", "truncated", "unfinished",
    "idle", "slow_peers", "session_errors", "bad_requests", "ignored_settlements",
)  # fmt: skip


def _connections(write: MetricsText, figures: BrokerFigures) -> None:
    write.gauge(
        "penstock_connections",
        "Connections, by protocol.",
        [({"protocol": protocol}, count) for protocol, count in sorted(figures.connections.items())],
    )
    write.counter(
        "penstock_accepted_connections", "Accepted connections.", [({}, figures.counters.get("connections", 0))]
    )
    write.counter(
        "penstock_connection_problems",
        "Problems with connections, by reason.",
        [({"reason": name}, figures.counters.get(name, 0)) for name in _PROBLEMS],
    )
    errors = [(key.partition(" "), count) for key, count in sorted(figures.protocol_errors.items())]
    write.counter(
        "penstock_protocol_errors",
        "Protocol errors, by protocol and code.",
        [({"protocol": protocol, "code": code}, count) for (protocol, _, code), count in errors],
    )
    write.gauge(
        "penstock_throttled",
        "Whether clients are throttled, by reason.",
        [
            ({"reason": "disk_slow"}, float(figures.congested)),
            ({"reason": "disk_full"}, float(figures.disk_full)),
            ({"reason": "memory_full"}, float(figures.memory_full)),
        ],
    )
    write.gauge("penstock_stalled_connections", "Connections whose publish is refused.", [({}, figures.stalled)])
    write.counter(
        "penstock_congestions",
        "Pauses of reading because of a slow disk.",
        [({}, figures.counters.get("congestions", 0))],
    )


def _journal(write: MetricsText, journal: Mapping[str, int], disk: Disk | None) -> None:
    if journal:
        write.gauge("penstock_journal_bytes", "Size of the journal.", [({}, journal["bytes"])], "bytes")
        write.gauge("penstock_journal_segments", "Files of the journal.", [({}, journal["segments"])])
        write.counter(
            "penstock_journal_events", "Events written: the position of the next one.", [({}, journal["latest"])]
        )
        write.gauge("penstock_journal_earliest", "The first retained position.", [({}, journal["earliest"])])
    if disk is not None:
        write.gauge("penstock_disk_free_bytes", "Free space of the journal's disk.", [({}, disk.free_bytes)], "bytes")
        write.gauge("penstock_disk_bytes", "Size of the journal's disk.", [({}, disk.total_bytes)], "bytes")
        write.gauge(
            "penstock_disk_min_free_bytes", "Publishing is refused below this.", [({}, disk.min_free_bytes)], "bytes"
        )


def _readers(write: MetricsText, readers: list[ReaderRow]) -> None:
    write.gauge("penstock_readers", "Known readers.", [({}, len(readers))])
    named = [({"reader": row.reader}, row) for row in readers[:MOST_SERIES]]
    write.gauge("penstock_reader_lag_rows", "Lag of a reader in rows.", [(name, row.lag_rows) for name, row in named])
    lags = [(name, row.lag_seconds) for name, row in named]
    write.gauge("penstock_reader_lag_seconds", "Lag of a reader in seconds.", lags, "seconds")
    write.gauge(
        "penstock_reader_heard_time_seconds",
        "When a reader last reported; pipelines report after each batch.",
        [(name, row.at / 1e6) for name, row in named],
        "seconds",
    )
    write.gauge(
        "penstock_reader_pinned", "Whether history is retained for a reader.", [(n, float(r.pin)) for n, r in named]
    )


def _pipelines(write: MetricsText, pipelines: Sequence[Pipeline]) -> None:
    if not pipelines:
        return
    named = [({"pipeline": each.name}, each) for each in pipelines]
    write.counter("penstock_pipeline_batches", "Batches of a pipeline.", [(n, p.batch + 1) for n, p in named])
    rows = [(name, each.rows) for name, each in named if each.rows is not None]
    write.counter("penstock_pipeline_rows", "Rows of all batches.", rows)
    bad = [(name, each.quarantined) for name, each in named if each.quarantined is not None]
    write.counter("penstock_pipeline_quarantined_rows", "Quarantined rows.", bad)
    ends = [(name, each.finished_at.timestamp()) for name, each in named if each.finished_at is not None]
    write.gauge("penstock_pipeline_batch_time_seconds", "When the last batch finished.", ends, "seconds")


def queue_metrics(rows: Iterable[QueueRow], times: Mapping[int, int], now: int, *, omitted: int) -> MetricsText:
    """Series of each of these queues. ``omitted`` counts matching queues that were left out."""
    write = MetricsText()
    about = f"Queues that match but are omitted: all but the first {MOST_SERIES} by name."
    write.gauge("penstock_queue_series_omitted", about, [({}, omitted)])
    named = [({"queue": f"{row.namespace}/{row.name}"}, row) for row in rows]
    states = ("ready", "out", "delayed", "dead", "damaged")
    write.gauge(
        "penstock_queue_messages",
        "Messages, by state.",
        [({**name, "state": state}, getattr(row, state)) for name, row in named for state in states],
    )
    write.gauge(
        "penstock_queue_waiting_bytes", "Payload bytes of waiting messages.", [(n, r.bytes) for n, r in named], "bytes"
    )
    write.gauge("penstock_queue_consumers", "Consumers of the queue.", [(n, r.consumers) for n, r in named])
    write.gauge("penstock_queue_paused", "Whether deliveries are paused.", [(n, float(r.paused)) for n, r in named])
    ages = [(name, max(0.0, (now - times[row.oldest]) / 1e6) if row.oldest in times else 0.0) for name, row in named]
    write.gauge("penstock_queue_oldest_message_age_seconds", "Age of the oldest ready message.", ages, "seconds")
    write.gauge(
        "penstock_queue_dead_letters",
        "Dead letters, by reason.",
        [({**name, "reason": reason}, count) for name, row in named for reason, count in sorted(row.reasons.items())],
    )
    counts = [(name, counts_of(row)) for name, row in named]
    write.counter("penstock_queue_published_messages", "Messages published.", [(n, c.published) for n, c in counts])
    about = "Messages that have left the queue for good."
    write.counter("penstock_queue_settled_messages", about, [(n, c.settled) for n, c in counts])
    write.counter("penstock_queue_delivered_messages", "Deliveries.", [(n, c.delivered) for n, c in counts])
    write.counter(
        "penstock_queue_redelivered_messages", "Repeated deliveries.", [(n, c.redelivered) for n, c in counts]
    )
    return write
