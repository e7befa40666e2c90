"""The tables, their columns and their descriptions."""

from __future__ import annotations

import pyarrow as pa

from penstock.flight.views import LIVE
from penstock.journal.views.arrow import EVENTS, MESSAGES

_TIME = pa.timestamp("us", tz="UTC")

QUEUES = pa.schema(
    {
        "namespace": pa.string(),
        "queue": pa.string(),
        "ready": pa.int64(),
        "out": pa.int64(),
        "delayed": pa.int64(),
        "dead": pa.int64(),
        "damaged": pa.int64(),
        "bytes": pa.int64(),
        "consumers": pa.int64(),
        "paused": pa.bool_(),
        "created_at": _TIME,
        "published": pa.int64(),
        "delivered": pa.int64(),
        "redelivered": pa.int64(),
        "settled": pa.int64(),
    }
)
READERS = pa.schema(
    {
        "reader": pa.string(),
        "view": pa.string(),
        "of": pa.string(),
        "position": pa.int64(),
        "lag_rows": pa.int64(),
        "lag_seconds": pa.float64(),
        "pin": pa.bool_(),
        "peer": pa.string(),
        "heard_at": _TIME,
        "leased": pa.int64(),
        "owner": pa.string(),
    }
)
AUDIT = pa.schema(
    {
        "number": pa.int64(),
        "at": _TIME,
        "who": pa.string(),
        "token": pa.string(),
        "origin": pa.string(),
        "action": pa.string(),
        "target": pa.string(),
        "outcome": pa.string(),
        "before": pa.string(),
        "after": pa.string(),
        "detail": pa.string(),
    }
)
SCHEMAS: dict[str, pa.Schema] = {
    "messages": MESSAGES,
    "events": EVENTS,
    "live": LIVE,
    "queues": QUEUES,
    "readers": READERS,
    "audit": AUDIT,
}
ABOUT = {
    "messages": "Published messages in the journal, including those that are gone. One row per message.",
    "events": "Events of messages and queues. One row per event.",
    "live": "Messages in the queues now, with their state: ready, out, delayed or dead.",
    "queues": "Queues with their figures. Counters count since the queue was created.",
    "readers": "Readers of the journal, and their lag.",
    "audit": "The audit log: changes and refused attempts. before and after are JSON.",
}
