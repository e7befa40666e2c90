"""Metrics of the broker, in OpenMetrics or Prometheus' plain text. Base units, ``_total`` for what only grows."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from penstock.admin.admin_requests import BrokerFigures, Histogram, QueueRow
from penstock.admin.mirror import MessageCounts, QueueTotals, settled
from penstock.admin.processes import ProcessFigures
from penstock.admin.resources.operations import Disk
from penstock.admin.resources.peers import Pipeline
from penstock.endpoint.readers_and_writers import ReaderRow

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
#: Queues that have series of their own in one answer.
MOST_SERIES = 1_000

Labels = Mapping[str, str]


class Traced(NamedTuple):
    """What became of traces: see ``Tracer``."""

    sent: int
    refused: int
    skipped: int


class _Family(NamedTuple):
    """Metrics of one name. ``samples`` are written as they are, behind the name."""

    name: str
    kind: Literal["gauge", "counter", "histogram", "info"]
    about: str
    unit: str
    samples: list[str]


class MetricsText:
    """Families in the order in which they were added, written in either format."""

    def __init__(self) -> None:
        self._families: list[_Family] = []

    def gauge(self, name: str, about: str, values: Iterable[tuple[Labels, float]], unit: str = "") -> None:
        """What goes up and down."""
        samples = [f"{_labels(labels)} {_number(value)}" for labels, value in values]
        self._families.append(_Family(name, "gauge", about, unit, samples))

    def counter(self, name: str, about: str, values: Iterable[tuple[Labels, float]], unit: str = "") -> None:
        """What only grows. ``name`` is without ``_total``."""
        samples = [f"_total{_labels(labels)} {_number(value)}" for labels, value in values]
        self._families.append(_Family(name, "counter", about, unit, samples))

    def info(self, name: str, about: str, labels: Labels) -> None:
        """What does not change while a process runs. ``name`` is without ``_info``."""
        self._families.append(_Family(name, "info", about, "", [f"_info{_labels(labels)} 1"]))

    def histogram(self, name: str, about: str, values: Histogram, unit: str = "") -> None:
        """Counts of values up to each bound."""
        count, samples = 0, []
        for bound, number in zip([*values.bounds, float("inf")], values.counts, strict=True):
            count += number
            samples.append(f'_bucket{{le="{_bound(bound)}"}} {count}')
        samples += [f"_count {count}", f"_sum {_number(values.sum)}"]
        self._families.append(_Family(name, "histogram", about, unit, samples))

    def open_metrics(self) -> bytes:
        """As OpenMetrics has it: families are named without the endings of their samples."""
        lines: list[str] = []
        for name, kind, about, unit, samples in self._families:
            lines.append(f"# TYPE {name} {kind}")
            if unit:
                lines.append(f"# UNIT {name} {unit}")
            lines.append(f"# HELP {name} {_escaped(about)}")
            lines += [f"{name}{sample}" for sample in samples]
        return ("\n".join([*lines, "# EOF"]) + "\n").encode()

    def plain(self) -> bytes:
        """As Prometheus' older format has it: a counter's family has its samples' name, and there is no info."""
        lines: list[str] = []
        for name, kind, about, _, samples in self._families:
            ending = {"counter": "_total", "info": "_info"}.get(kind, "")
            help_text = about.replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"# HELP {name}{ending} {help_text}")
            lines.append(f"# TYPE {name}{ending} {'gauge' if kind == 'info' else kind}")
            lines += [f"{name}{sample}" for sample in samples]
        return ("\n".join(lines) + "\n").encode()


def wants_open_metrics(accept: str) -> bool:
    """Whether a client that accepts this prefers OpenMetrics to plain text. Who says nothing gets plain text."""
    weights: dict[str, float] = {}
    for each in accept.split(","):
        media, *parameters = (part.strip().lower() for part in each.split(";"))
        weight = next((part.partition("=")[2] for part in parameters if part.startswith("q=")), "1")
        with suppress(ValueError):
            weights[media] = max(weights.get(media, 0.0), float(weight))
    asked = weights.get("application/openmetrics-text", 0.0)
    return asked > 0 and asked >= weights.get("text/plain", 0.0)


def add_processes(write: MetricsText, version: str, code: str, processes: Mapping[str, ProcessFigures]) -> None:
    """Which Penstock runs, and what its processes take of the machine."""
    labels = {"version": version, "code": code, "python": platform.python_version()}
    write.info("penstock_build", "Which Penstock runs, and how.", labels)
    named = [({"process": name}, figures) for name, figures in processes.items()]
    cpu = [(name, figures.cpu_seconds) for name, figures in named]
    write.counter("process_cpu_seconds", "Processor time, in user and system mode.", cpu, "seconds")
    resident = [(name, figures.resident_bytes) for name, figures in named]
    write.gauge("process_resident_memory_bytes", "Memory that is in use.", resident, "bytes")
    virtual = [(name, figures.virtual_bytes) for name, figures in named]
    write.gauge("process_virtual_memory_bytes", "Memory that is mapped.", virtual, "bytes")
    write.gauge("process_open_fds", "Open file descriptors.", [(name, each.open_files) for name, each in named])
    write.gauge("process_max_fds", "File descriptors that may be open.", [(name, f.most_files) for name, f in named])
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
    traced: Traced | None = None,
) -> MetricsText:
    """The broker and all queues together."""
    write = MetricsText()
    _queue_totals(write, figures, totals, dead, oldest_at)
    _counted(write, counted)
    _connections(write, figures)
    write.histogram("penstock_commit_events", "Events of a commit.", figures.commit_events)
    write.histogram("penstock_commit_seconds", "Time of a commit.", figures.commit_seconds, "seconds")
    write.histogram("penstock_sync_seconds", "Time of a sync to disk.", figures.sync_seconds, "seconds")
    write.histogram("penstock_loop_lag_seconds", "How late the loop is.", figures.loop_lag, "seconds")
    write.gauge(
        "penstock_memory_bytes",
        "What is held in memory, by what for.",
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
    if traced is not None:
        _traces(write, traced)
    _role(write, serving=True, ready=not list(reasons))
    _silence(write, 0.0)
    write.gauge("penstock_draining", "Whether an operator lets the queues get empty.", [({}, float(figures.draining))])
    write.gauge("penstock_start_time_seconds", "When the broker started.", [({}, figures.started_at / 1e6)], "seconds")
    return write


def standby_metrics() -> MetricsText:
    """Of a broker that stands by: another one has all the rest."""
    write = MetricsText()
    _role(write, serving=False, ready=False)
    return write


def silent_metrics(seconds: float) -> MetricsText:
    """Of a broker that does not answer: what it was before says nothing of now."""
    write = MetricsText()
    write.gauge("penstock_ready", "Whether messages are taken.", [({}, 0.0)])
    _silence(write, seconds)
    return write


def _silence(write: MetricsText, seconds: float) -> None:
    about = "Time since the broker has answered the HTTP process."
    write.gauge("penstock_broker_silence_seconds", about, [({}, seconds)], "seconds")


def _role(write: MetricsText, *, serving: bool, ready: bool) -> None:
    about = "Whether it owns the journal; 0: another broker does, and this one stands by."
    write.gauge("penstock_serving", about, [({}, float(serving))])
    write.gauge("penstock_ready", "Whether messages are taken.", [({}, float(ready))])


def _traces(write: MetricsText, traced: Traced) -> None:
    spans = [({"outcome": "sent"}, traced.sent), ({"outcome": "refused"}, traced.refused)]
    write.counter("penstock_trace_spans", "Spans that a collector took, and that it refused.", spans)
    about = "Events that no traces were made of, as too many waited."
    write.counter("penstock_traces_dropped", about, [({}, traced.skipped)])


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
    write.gauge("penstock_waiting_bytes", "Payloads of messages that wait.", [({}, totals.bytes)], "bytes")
    write.gauge("penstock_consumers", "Consumers: see queues.md, A consumer.", [({}, totals.consumers)])
    age = max(0.0, (figures.now - oldest_at) / 1e6) if oldest_at else 0.0
    write.gauge("penstock_oldest_message_age_seconds", "Age of the oldest ready message.", [({}, age)], "seconds")
    write.gauge(
        "penstock_dead_letters",
        "Dead letters in all queues, by reason.",
        [({"reason": reason}, count) for reason, count in sorted(dead.items())],
    )
    write.gauge("penstock_leased_messages", "Messages that readers have leased.", [({}, figures.leased)])
    write.gauge("penstock_locks", "Messages that are locked.", [({}, figures.locks)])


def _counted(write: MetricsText, counted: MessageCounts) -> None:
    """Since this process began to count: a queue that is deleted takes nothing away."""
    write.counter("penstock_published_messages", "Messages published.", [({}, counted.published)])
    write.counter("penstock_delivered_messages", "Deliveries.", [({}, counted.delivered)])
    write.counter("penstock_settled_messages", "Messages that have left for good.", [({}, counted.settled)])
    write.counter("penstock_redelivered_messages", "Deliveries that were not the first.", [({}, counted.redelivered)])


#: Events that the broker counts, and why each is a reason for trouble with a connection.
_REFUSALS = (
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
        "penstock_accepted_connections", "Connections so far.", [({}, figures.counters.get("connections", 0))]
    )
    write.counter(
        "penstock_connection_problems",
        "What went wrong with connections, by reason.",
        [({"reason": name}, figures.counters.get(name, 0)) for name in _REFUSALS],
    )
    errors = [(key.partition(" "), count) for key, count in sorted(figures.protocol_errors.items())]
    write.counter(
        "penstock_protocol_errors",
        "Bytes that made no sense, by protocol and code.",
        [({"protocol": protocol, "code": code}, count) for (protocol, _, code), count in errors],
    )
    write.gauge(
        "penstock_throttled",
        "Whether peers are held back, by reason.",
        [
            ({"reason": "disk_slow"}, float(figures.congested)),
            ({"reason": "disk_full"}, float(figures.disk_full)),
            ({"reason": "memory_full"}, float(figures.memory_full)),
        ],
    )
    write.gauge("penstock_stalled_connections", "Connections with a publish that is refused.", [({}, figures.stalled)])
    write.counter(
        "penstock_congestions", "How often reading was paused.", [({}, figures.counters.get("congestions", 0))]
    )


def _journal(write: MetricsText, journal: Mapping[str, int], disk: Disk | None) -> None:
    if journal:
        write.gauge("penstock_journal_bytes", "Size of the journal.", [({}, journal["bytes"])], "bytes")
        write.gauge("penstock_journal_segments", "Files of the journal.", [({}, journal["segments"])])
        write.counter("penstock_journal_events", "Events so far: the position of the next.", [({}, journal["latest"])])
        write.gauge("penstock_journal_earliest", "The first position of the history.", [({}, journal["earliest"])])
    if disk is not None:
        write.gauge("penstock_disk_free_bytes", "Free space of the journal's disk.", [({}, disk.free_bytes)], "bytes")
        write.gauge("penstock_disk_bytes", "Size of the journal's disk.", [({}, disk.total_bytes)], "bytes")
        write.gauge(
            "penstock_disk_min_free_bytes", "Below this publishing is refused.", [({}, disk.min_free_bytes)], "bytes"
        )


def _readers(write: MetricsText, readers: list[ReaderRow]) -> None:
    write.gauge("penstock_readers", "Readers that are remembered.", [({}, len(readers))])
    known = [({"reader": row.reader}, row) for row in readers[:MOST_SERIES]]
    write.gauge(
        "penstock_reader_lag_rows", "Rows that a reader is behind.", [(name, row.lag_rows) for name, row in known]
    )
    lags = [(name, row.lag_seconds) for name, row in known]
    write.gauge("penstock_reader_lag_seconds", "Seconds that a reader is behind.", lags, "seconds")
    write.gauge(
        "penstock_reader_heard_time_seconds",
        "When a reader was last heard of: a pipeline tells after each batch.",
        [(name, row.at / 1e6) for name, row in known],
        "seconds",
    )
    write.gauge(
        "penstock_reader_pinned", "Whether history is kept for a reader.", [(n, float(r.pin)) for n, r in known]
    )


def _pipelines(write: MetricsText, pipelines: Sequence[Pipeline]) -> None:
    """Where the folder of the lake is known."""
    if not pipelines:
        return
    named = [({"pipeline": each.name}, each) for each in pipelines]
    write.counter("penstock_pipeline_batches", "Batches, by pipeline.", [(n, p.batch + 1) for n, p in named])
    rows = [(name, each.rows) for name, each in named if each.rows is not None]
    write.counter("penstock_pipeline_rows", "Rows of all batches.", rows)
    bad = [(name, each.quarantined) for name, each in named if each.quarantined is not None]
    write.counter("penstock_pipeline_quarantined_rows", "Rows that did not fit.", bad)
    ends = [(name, each.finished_at.timestamp()) for name, each in named if each.finished_at is not None]
    write.gauge("penstock_pipeline_batch_time_seconds", "When the last batch was finished.", ends, "seconds")


def queue_metrics(rows: Iterable[QueueRow], times: Mapping[int, int], now: int, *, omitted: int) -> MetricsText:
    """Series for each of some queues. ``omitted``: how many more there should be."""
    write = MetricsText()
    about = f"Queues that fit the pattern and have no series: those behind the first {MOST_SERIES} by name."
    write.gauge("penstock_queue_series_omitted", about, [({}, omitted)])
    known = [({"queue": f"{row.namespace}/{row.name}"}, row) for row in rows]
    states = ("ready", "out", "delayed", "dead", "damaged")
    write.gauge(
        "penstock_queue_messages",
        "Messages, by state.",
        [({**name, "state": state}, getattr(row, state)) for name, row in known for state in states],
    )
    write.gauge("penstock_queue_waiting_bytes", "Payloads that wait.", [(n, r.bytes) for n, r in known], "bytes")
    write.gauge("penstock_queue_consumers", "Consumers of the queue.", [(n, r.consumers) for n, r in known])
    write.gauge("penstock_queue_paused", "Whether it gives none out.", [(n, float(r.paused)) for n, r in known])
    ages = [(name, max(0.0, (now - times[row.oldest]) / 1e6) if row.oldest in times else 0.0) for name, row in known]
    write.gauge("penstock_queue_oldest_message_age_seconds", "Age of the oldest ready message.", ages, "seconds")
    write.gauge(
        "penstock_queue_dead_letters",
        "Dead letters, by reason.",
        [({**name, "reason": why}, count) for name, row in known for why, count in sorted(row.reasons.items())],
    )
    write.counter("penstock_queue_published_messages", "Messages published.", [(n, r.counters[0]) for n, r in known])
    write.counter("penstock_queue_settled_messages", "Messages that left.", [(n, settled(r)) for n, r in known])
    write.counter("penstock_queue_delivered_messages", "Deliveries.", [(n, r.counters[7]) for n, r in known])
    write.counter("penstock_queue_redelivered_messages", "Repeated ones.", [(n, r.counters[8]) for n, r in known])
    return write


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _bound(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value))
