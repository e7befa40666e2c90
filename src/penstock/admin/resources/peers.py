"""Who is connected, what they hold, and who reads and writes through Spark."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from penstock.admin.resources.common import Order, PageQuery, Pattern, Resource

Throttle = Literal["", "publish refused", "disk", "memory", "answers", "slow peer"]


class ConnectionSummary(Resource, frozen=True, kw_only=True):
    """A connection of one of the three protocols."""

    id: int
    protocol: str
    #: Address and port, or "unix".
    peer: str
    tls: bool
    #: Of its certificate.
    subject: str
    #: The user at the other end of a Unix-domain socket.
    user: str
    since: datetime
    #: Messages that it has, and queues of which it is a consumer.
    out: int
    consumers: int
    #: Bytes that the broker holds for it: received and not worked on, and not taken by the peer yet.
    input_bytes: int
    output_bytes: int
    #: Why it is not read from or not sent to at this moment; empty if it is.
    throttled: Throttle
    #: It is about to end.
    ending: bool


class Subscription(Resource, frozen=True, kw_only=True):
    """What a connection wants of a queue."""

    queue: str
    #: 0: one message at a time.
    window: int
    #: Messages that it waits for now; 0 for a window that is full, and between requests for one message.
    credit: int
    dead: bool


class ConnectionDetail(ConnectionSummary, frozen=True, kw_only=True):
    """A connection by itself."""

    subscriptions: list[Subscription]


class ConnectionsQuery(PageQuery, frozen=True, kw_only=True):
    """Which connections."""

    protocol: Annotated[str, Meta(max_length=20)] = ""
    #: Part of the address, subject or user.
    contains: Annotated[str, Meta(max_length=255)] = ""
    #: Only those that are throttled.
    throttled: bool = False
    #: Only consumers of this queue, as namespace/queue.
    queue: Annotated[str, Meta(max_length=511)] = ""
    sort: Literal["id", "out", "input_bytes", "output_bytes"] = "id"
    order: Order = "ascending"


class Lock(Resource, frozen=True, kw_only=True):
    """A message that a connection has locked for a time."""

    message: str
    position: int
    queue: str
    connection: int
    peer: str
    since: datetime
    until: datetime
    seconds_left: float


class LocksQuery(PageQuery, frozen=True, kw_only=True):
    """Of which queues. Those that end first come first."""

    pattern: Pattern = "*"


class Reader(Resource, frozen=True, kw_only=True):
    """Who reads the journal over Flight: a streaming query, mostly."""

    name: str
    view: str
    where: str
    position: int
    lag_rows: int
    lag_seconds: float
    #: The journal was put back behind what it has read: lost is what it has read from this position on. 0: nothing is.
    lost_from: int
    #: History is kept for it.
    pin: bool
    peer: str
    heard_at: datetime
    leased: int
    owner: str


class Lease(Resource, frozen=True, kw_only=True):
    """Messages of a queue that a reader has until a time."""

    position: int
    reader: str
    queue: str
    messages: int
    since: datetime
    until: datetime


class Writer(Resource, frozen=True, kw_only=True):
    """Who writes numbered chunks over Flight."""

    name: str
    owner: str
    epoch: int
    partitions: int
    written_at: datetime | None


class Pipeline(Resource, frozen=True, kw_only=True):
    """A pipeline that writes below the folder of ``[http] lake``, from what it left there."""

    name: str
    kind: str
    #: Its last batch, and when that was finished; null while it is being written.
    batch: int
    finished_at: datetime | None
    #: Rows of all batches, and those of them that did not fit; null where the pipeline has not counted them.
    rows: int | None
    quarantined: int | None
    #: Where the insight report is served, if there is one.
    report: str


class NamesQuery(PageQuery, frozen=True, kw_only=True):
    """Part of the name."""

    contains: Annotated[str, Meta(max_length=255)] = ""
