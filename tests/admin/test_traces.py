"""Traces: a real broker, and an OTLP receiver that decodes them."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from penstock.admin.settings import AdminSettings
from penstock.admin.spans import TracedEvent, spans_of
from penstock.admin.traces import Tracer
from penstock.client import connect
from penstock.companions.startup import Reporter
from support.brokers import BrokerProcess
from support.web import WebBroker, eventually


class Collector(ThreadingHTTPServer):
    """An OTLP receiver that accepts traces, or answers with another status."""

    daemon_threads = True

    def __init__(self, port: int = 0, status: int = 200) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.status = status
        self.requests: list[ExportTraceServiceRequest] = []
        self.attempts = 0
        self.thread = Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()

    def spans(self, queue: str) -> list[Span]:
        found = [s for r in list(self.requests) for each in r.resource_spans for s in each.scope_spans[0].spans]
        return [span for span in found if span.name.endswith(f" {queue}")]

    def wait(self, queue: str, count: int) -> list[Span]:
        eventually(lambda: len(self.spans(queue)) >= count)
        found = self.spans(queue)
        assert len(found) == count, found
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        request = (self.path, self.headers["content-type"], self.headers["content-encoding"])
        right = request == ("/v1/traces", "application/x-protobuf", "gzip")
        self.server.attempts += 1
        if self.server.status == 200 and right:
            self.server.requests.append(ExportTraceServiceRequest.FromString(gzip.decompress(body)))
        self.send_response(self.server.status if right else 400)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Silent."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.end()


def traced(folder: Path, url: str, **more: Any) -> WebBroker:
    return WebBroker(folder, traces={"endpoint": url, **more})


def attributes(span: Span) -> dict[str, Any]:
    return {
        each.key: each.value.int_value if each.value.HasField("int_value") else each.value.string_value
        for each in span.attributes
    }


def named(spans: list[Span]) -> dict[str, Span]:
    found = {span.name.partition(" ")[0]: span for span in spans}
    assert len(found) == len(spans)
    return found


def test_a_message_is_one_trace_from_publish_to_settle(tmp_path: Path, collector: Collector) -> None:
    with traced(tmp_path, collector.url) as broker:
        with connect(broker.url("kokaq", "/default/good")) as client:
            client.publish("hello")
            message = client.lock()
            assert message is not None
            message.ack()
        spans = named(collector.wait("default/good", 3))
    publish, process, settle = (spans[name] for name in ("publish", "process", "settle"))
    assert {span.trace_id for span in spans.values()} == {publish.trace_id}
    assert (len(publish.trace_id), len(publish.span_id), publish.parent_span_id) == (16, 8, b"")
    assert (process.parent_span_id, settle.parent_span_id) == (publish.span_id, process.span_id)
    kinds = [Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER, Span.SPAN_KIND_CLIENT]
    assert [publish.kind, process.kind, settle.kind] == kinds
    assert 0 < publish.start_time_unix_nano == publish.end_time_unix_nano <= process.start_time_unix_nano
    assert process.start_time_unix_nano < process.end_time_unix_nano == settle.start_time_unix_nano
    assert attributes(publish) == {
        "messaging.system": "penstock",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default/good",
        "messaging.message.id": attributes(settle)["messaging.message.id"],
        "messaging.message.body.size": 5,
        "network.protocol.name": "kokaq",
    }
    assert attributes(process)["penstock.outcome"] == attributes(settle)["penstock.outcome"] == "acknowledged"
    assert (attributes(process)["messaging.operation.type"], attributes(process)["penstock.deliveries"]) == (
        "process",
        1,
    )
    assert process.status.code == settle.status.code == Status.STATUS_CODE_UNSET
    resource = collector.requests[0].resource_spans[0].resource
    assert {each.key: each.value.string_value for each in resource.attributes}["service.name"] == "penstock"


def test_a_rejected_message_is_an_error_and_a_redriven_one_continues_its_trace(
    tmp_path: Path, collector: Collector
) -> None:
    with traced(tmp_path, collector.url) as broker:
        with connect(broker.url("phpmq", "/bad")) as client:
            client.publish("bad")
            message = client.receive(timeout=20)
            assert message is not None
            message.reject()
        spans = named(collector.wait("default/bad", 3))
        for name in ("process", "settle"):
            assert (attributes(spans[name])["penstock.outcome"], attributes(spans[name])["error.type"]) == (
                "dead",
                "rejected",
            )
            assert attributes(spans[name])["penstock.reason"] == spans[name].status.message == "rejected"
            assert spans[name].status.code == Status.STATUS_CODE_ERROR
        named_by = attributes(spans["publish"])["messaging.message.id"]
        broker.api.do("POST", "jobs", {"kind": "redrive", "queue": "default/bad", "ids": [named_by]})
        spans = named(collector.wait("default/bad", 4))
        assert spans["redrive"].parent_span_id == spans["publish"].span_id
        assert len({span.trace_id for span in spans.values()}) == 1


def test_only_the_configured_queues_are_traced(tmp_path: Path, collector: Collector) -> None:
    with traced(tmp_path, collector.url, queues=["default/a*"]) as broker:
        with connect(broker.url("kokaq")) as client:
            client.publish("no", queue="default/b")
            client.publish("yes", queue="default/a1")
        collector.wait("default/a1", 1)
        assert collector.spans("default/b") == []


def test_a_collector_that_was_away_gets_missed_spans_and_is_logged_once(tmp_path: Path) -> None:
    first = Collector(status=503)
    with traced(tmp_path, first.url) as broker:
        with connect(broker.url("phpmq", "/q")) as client:
            client.publish_many([f"m{number}" for number in range(700)])  # more than fit in one request
        eventually(lambda: first.attempts >= 2)
        first.end()
        second = Collector(first.server_port)
        try:
            spans = second.wait("default/q", 700)
            assert len({span.span_id for span in spans}) == len({span.trace_id for span in spans}) == 700
            assert max(len(r.resource_spans[0].scope_spans[0].spans) for r in second.requests) <= 512
            eventually(lambda: "trace export resumed" in broker.log.read_text())
            assert broker.log.read_text().count("trace export failing") == 1
            assert "the collector responded with status 503" in broker.log.read_text()
            line = 'penstock_trace_spans_total{outcome="sent"} 700\n'
            eventually(lambda: line in broker.api.ask("GET", "/metrics").body.decode())
            assert "penstock_traces_dropped_total 0\n" in broker.api.ask("GET", "/metrics").body.decode()
        finally:
            second.end()


def test_rejected_spans_are_counted_and_not_sent_again(tmp_path: Path, collector: Collector) -> None:
    collector.status = 400
    with traced(tmp_path, collector.url) as broker:
        with connect(broker.url("phpmq", "/q")) as client:
            client.publish("x")
        line = 'penstock_trace_spans_total{outcome="refused"} 1\n'
        eventually(lambda: line in broker.api.ask("GET", "/metrics").body.decode())
        collector.status = 200
        with connect(broker.url("phpmq", "/other")) as client:
            client.publish("y")
        collector.wait("default/other", 1)
        assert collector.spans("default/q") == []


def test_events_beyond_the_limit_are_skipped_and_counted(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.admin.traces.MOST_BEHIND", 10)
    with BrokerProcess(tmp_path) as broker:
        with connect(broker.url("kokaq", "/default/q")) as client:  # returns once it is journaled
            client.publish("before")
            settings = AdminSettings(
                version="1", code="compiled", data="", journal=str(broker.data), address="",
                traces_endpoint=collector.url, traces_queues=["*"],
            )  # fmt: skip
            tracer = Tracer(settings, Reporter(BytesIO(), "the test"))
            client.publish_many([f"m{number}" for number in range(30)])
        tracer.start()
        collector.wait("default/q", 10)
        tracer.close()
        assert (tracer.sent, tracer.refused, tracer.skipped) == (10, 0, 20)


def test_a_missing_extra_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry'] = None\n")
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path / "data"), "--otlp", "http://h/"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 3
    assert "traces.endpoint needs opentelemetry-proto: pip install 'penstock[otel]'" in done.stderr


def test_an_event_always_gives_the_same_spans_and_sampling_keeps_whole_messages() -> None:
    def event(message: int, kind: str) -> TracedEvent:
        return TracedEvent(message, kind, 5, message.to_bytes(16), "default", "q", 1, 3, None, "kokaq", None)

    both = [(spans_of(event(n, "published"), 0.25), spans_of(event(n, "acknowledged"), 0.25)) for n in range(2000)]
    assert 350 < sum(bool(begins) for begins, _ in both) < 650
    assert all(len(ends) == (2 if begins else 0) for begins, ends in both)
    assert spans_of(event(7, "acknowledged"), 1.0) == spans_of(event(7, "acknowledged"), 1.0) != []
    assert spans_of(event(7, "published"), 0.0) == []


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--otlp", "localhost:4318"], "the flag --otlp: traces.endpoint: a collector is as in http://127.0.0.1:4318"),
        (["--otlp", "http://h:port/"], "the flag --otlp: traces.endpoint: a collector is as in http://127.0.0.1:4318"),
        (["--otlp", "http://h/", "--http", "off"], "traces.endpoint: the HTTP process makes traces"),
    ],
)
def test_an_invalid_collector_ends_the_start(tmp_path: Path, given: list[str], complaint: str) -> None:
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path / "data"), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert complaint in done.stderr
