"""Makes OpenTelemetry spans from events of the journal, following the semantic conventions for messaging.

Each message is one trace: ``publish``, then ``process`` for each delivery, with a child ``settle``. All IDs are derived
from positions in the journal, so nothing is stored, and reading an event again yields the same spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

#: Kinds of events that end a delivery or a message.
OUTCOMES = ("acknowledged", "popped", "returned", "requeued", "dead", "dropped")
#: Reasons of failed deliveries after which the message stays in its queue.
FAILED = ("lost", "lock_expired")


class TracedEvent(NamedTuple):
    """The columns of the view ``events`` that spans need. Times are microseconds since 1970."""

    position: int
    kind: str
    at: int
    message_id: bytes | None
    namespace: str | None
    queue: str | None
    deliveries: int | None
    delivered_at: int | None
    reason: str | None
    protocol: str | None
    payload_size: int | None


def events_of(batch: pa.RecordBatch) -> Iterator[TracedEvent]:
    """The rows of a batch with the columns of ``TracedEvent``."""
    columns = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in batch.columns]
    return (TracedEvent(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True))


def spans_of(event: TracedEvent, ratio: float) -> list[Span]:
    """The spans of an event, if its message is in the sampled ``ratio``."""
    if event.message_id is None or event.kind not in ("published", "redriven", *OUTCOMES):
        return []
    trace = blake2b(event.message_id, digest_size=16).digest()
    if int.from_bytes(trace[-7:]) >= ratio * 2**56:
        return []
    published = _span_id(event.message_id, "publish", 0)
    if event.kind == "published":
        return [_span(event, trace, published, b"", "publish", "send", Span.SPAN_KIND_PRODUCER)]
    if event.kind == "redriven":
        own = _span_id(event.message_id, "redrive", event.position)
        return [_span(event, trace, own, published, "redrive", "send", Span.SPAN_KIND_PRODUCER)]
    return _settled(event, event.message_id, trace, published)


def _settled(event: TracedEvent, message: bytes, trace: bytes, published: bytes) -> list[Span]:
    """The delivery, if there was one, and its settlement."""
    spans, parent = [], published
    if event.delivered_at is not None:
        parent = _span_id(message, "process", event.position)
        spans.append(_span(event, trace, parent, published, "process", "process", Span.SPAN_KIND_CONSUMER))
        spans[0].start_time_unix_nano = min(event.delivered_at, event.at) * 1000
    own = _span_id(message, "settle", event.position)
    spans.append(_span(event, trace, own, parent, "settle", "settle", Span.SPAN_KIND_CLIENT))
    failed = event.kind in ("dead", "dropped") or event.reason in FAILED
    for span in spans:
        span.attributes.append(_attribute("penstock.outcome", event.kind))
        if failed:
            span.attributes.append(_attribute("error.type", event.reason or event.kind))
            span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=event.reason or event.kind))
    return spans


def _span(
    event: TracedEvent,
    trace: bytes,
    own: bytes,
    parent: bytes,
    name: str,
    operation: str,
    kind: Span.SpanKind.ValueType,
) -> Span:
    destination = f"{event.namespace}/{event.queue}"
    attributes: dict[str, str | int | None] = {
        "messaging.system": "penstock",
        "messaging.operation.name": name,
        "messaging.operation.type": operation,
        "messaging.destination.name": destination,
        "messaging.message.id": (event.message_id or b"").hex(),
        "messaging.message.body.size": event.payload_size,
        "network.protocol.name": event.protocol,
        "penstock.deliveries": event.deliveries,
        "penstock.reason": event.reason,
    }
    return Span(
        trace_id=trace,
        span_id=own,
        parent_span_id=parent,
        name=f"{name} {destination}",
        kind=kind,
        start_time_unix_nano=event.at * 1000,
        end_time_unix_nano=event.at * 1000,
        attributes=[_attribute(key, value) for key, value in attributes.items() if value is not None],
    )


def _span_id(message: bytes, name: str, position: int) -> bytes:
    return blake2b(b"%b %b %d" % (message, name.encode(), position), digest_size=8).digest()


def _attribute(key: str, value: str | int) -> KeyValue:
    found = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=key, value=found)
