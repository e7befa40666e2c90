"""Connections, locks, readers, leases, writers and pipelines."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from penstock.admin.resources.common import Order, PageQuery, Pattern, Resource

Throttle = Literal["", "publish refused", "disk", "memory", "answers", "slow peer"]


class ConnectionSummary(Resource, frozen=True, kw_only=True):
    """A connection in a list."""

    id: int
    protocol: str
    #: Address and port, or "unix".
    peer: str
    tls: bool
    #: The subject of its certificate.
    subject: str
    #: The user at the other end of a Unix-domain socket.
    user: str
    since: datetime
    #: Messages it holds, and queues it consumes from.
    out: int
    consumers: int
    #: Bytes buffered by the broker: received and not processed, and sent but not taken by the peer.
    input_bytes: int
    output_bytes: int
    #: Why reading from it, or sending to it, is suspended; empty if neither is.
    throttled: Throttle
    #: It is being closed.
    ending: bool


class Subscription(Resource, frozen=True, kw_only=True):
    """A connection's consumption from one queue."""

    queue: str
    #: 0: one message at a time.
    window: int
    #: Messages it is waiting for; 0 if the window is full, and between single requests.
    credit: int
    dead: bool


class ConnectionDetail(ConnectionSummary, frozen=True, kw_only=True):
    """A connection with its subscriptions."""

    subscriptions: list[Subscription]


class ConnectionsQuery(PageQuery, frozen=True, kw_only=True):
    """Which connections."""

    protocol: Annotated[str, Meta(max_length=20)] = ""
    #: Part of the address, subject or user.
    contains: Annotated[str, Meta(max_length=255)] = ""
    #: Only throttled ones.
    throttled: bool = False
    #: Only consumers of this queue, as namespace/queue.
    queue: Annotated[str, Meta(max_length=511)] = ""
    sort: Literal["id", "out", "input_bytes", "output_bytes"] = "id"
    order: Order = "ascending"


class Lock(Resource, frozen=True, kw_only=True):
    """A message locked by a connection."""

    message: str
    position: int
    queue: str
    connection: int
    peer: str
    since: datetime
    until: datetime
    seconds_left: float


class LocksQuery(PageQuery, frozen=True, kw_only=True):
    """Which queues. Locks that expire first come first."""

    pattern: Pattern = "*"


class Reader(Resource, frozen=True, kw_only=True):
    """A reader of the journal over Flight, usually a streaming query."""

    name: str
    view: str
    where: str
    position: int
    lag_rows: int
    lag_seconds: float
    #: After the journal was restored: events from this position on, which the reader has seen, are lost. 0: none.
    lost_from: int
    #: History is retained for it.
    pin: bool
    peer: str
    heard_at: datetime
    leased: int
    owner: str


class Lease(Resource, frozen=True, kw_only=True):
    """Messages of a queue leased by a reader."""

    position: int
    reader: str
    queue: str
    messages: int
    since: datetime
    until: datetime


class Writer(Resource, frozen=True, kw_only=True):
    """A writer of numbered chunks over Flight."""

    name: str
    owner: str
    epoch: int
    partitions: int
    written_at: datetime | None


class Pipeline(Resource, frozen=True, kw_only=True):
    """A pipeline, according to its files in the folder ``[http] lake``."""

    name: str
    kind: str
    #: Its last batch, and when that finished; null while it is being written.
    batch: int
    finished_at: datetime | None
    #: Rows and quarantined rows of all batches; null if the pipeline does not count them.
    rows: int | None
    quarantined: int | None
    #: The path of the insight report, or empty.
    report: str


class NamesQuery(PageQuery, frozen=True, kw_only=True):
    """Which names."""

    contains: Annotated[str, Meta(max_length=255)] = ""
