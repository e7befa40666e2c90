"""Messages: browsing, search, one message, publishing, and the life of one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.admin.resources.common import (
    Body,
    DeadReason,
    FullName,
    MessageId,
    PageQuery,
    Pattern,
    QueryParameters,
    Resource,
    State,
)
from penstock.core.policy import Count, Seconds

#: Bytes of a payload that are shown: unless told otherwise, and at most. The whole is a download.
SHOWN = 4096
MOST_SHOWN = 2**20
#: Messages of one publish, and bytes of its body.
MOST_PUBLISHED = 1000
#: Messages that a job may be given by name.
MOST_SELECTED = 10_000

Encoding = Literal["text", "json", "hex", "base64"]
Shown = Annotated[int, Meta(ge=0, le=MOST_SHOWN)]


class Search(Body, frozen=True, kw_only=True):
    """What messages must have. All that is given must hold."""

    #: Part of the payload, as UTF-8. Cases of letters differ.
    text: Annotated[str, Meta(max_length=1000)] = ""
    #: The same as bytes, in hex.
    hex: Annotated[str, Meta(max_length=2000, pattern="^([0-9a-fA-F]{2})*$")] = ""
    #: The ID, or how it begins, in hex digits.
    id: Annotated[str, Meta(max_length=32, pattern="^[0-9a-fA-F]*$")] = ""
    #: The whole correlation ID.
    correlation_id: Annotated[str, Meta(max_length=255)] = ""
    #: Published at or after, and before.
    published_from: datetime | None = None
    published_to: datetime | None = None
    #: Why a message is dead.
    reason: DeadReason | None = None
    #: Deliveries that have ended, at least.
    deliveries: Count = 0


class MessagesQuery(PageQuery, frozen=True, kw_only=True):
    """Which messages of a queue. Those of ``Search`` may be given as well."""

    state: State = "ready"
    text: Annotated[str, Meta(max_length=1000)] = ""
    hex: Annotated[str, Meta(max_length=2000, pattern="^([0-9a-fA-F]{2})*$")] = ""
    id: Annotated[str, Meta(max_length=32, pattern="^[0-9a-fA-F]*$")] = ""
    correlation_id: Annotated[str, Meta(max_length=255)] = ""
    published_from: datetime | None = None
    published_to: datetime | None = None
    reason: DeadReason | None = None
    deliveries: Count = 0
    #: Bytes of each payload that are shown.
    bytes: Shown = 200
    encoding: Encoding | None = None


class Payload(Resource, frozen=True, kw_only=True):
    """A payload, or its beginning."""

    size: int
    #: How ``value`` is to be read. Unless text, hex or base64 was asked for: json if the whole payload is JSON, text if
    #: it is UTF-8, else hex.
    encoding: Encoding
    #: A string; for json the payload itself, digit by digit, without the space between its tokens.
    value: msgspec.Raw
    #: There is more than is shown.
    truncated: bool


class MessageSummary(Resource, frozen=True, kw_only=True):
    """A message in a list. Looking at it does not take it."""

    id: str
    position: int
    state: State
    priority: int
    published_at: datetime
    expires_at: datetime | None
    #: Delayed: when it becomes ready.
    due_at: datetime | None
    deliveries: int
    #: Null is without end.
    retries_left: int | None
    #: Dead: why, and since when.
    reason: str | None
    correlation_id: str
    request_id: str
    #: Who published it, as the journal has it, and what it said of itself.
    source: str
    source_info: str
    payload: Payload


class Holder(Resource, frozen=True, kw_only=True):
    """Who has a message that is out."""

    #: The connection, or null for a reader's lease.
    connection: int | None
    reader: str
    peer: str
    since: datetime
    #: When its lock or lease ends; null: with the connection.
    until: datetime | None


class MessageDetail(MessageSummary, frozen=True, kw_only=True):
    """A message by itself."""

    queue: str
    holder: Holder | None


class MessageQuery(QueryParameters, frozen=True, kw_only=True):
    """How the payload is shown."""

    bytes: Shown = SHOWN
    encoding: Encoding | None = None


class MessagePage(Resource, frozen=True, kw_only=True):
    """Some of the messages in their order. A search looks at a bounded number at a time and may find none of them."""

    items: list[MessageSummary]
    #: Go on with this as ``cursor``; null: all were looked at.
    next: str | None
    #: Messages that were looked at for this page, and payload bytes that were searched.
    looked_at: int
    searched_bytes: int
    #: How many messages of this state the queue has.
    total: int


class NewMessage(Body, frozen=True, kw_only=True):
    """A message that is to be published.

    A ``json`` payload is sent as it stands in the request, digit by digit, without the space between its tokens.
    """

    payload: msgspec.Raw
    encoding: Encoding = "text"
    priority: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    #: Null: as the queue says; 0: without end.
    ttl_seconds: Seconds | None = None
    delay_seconds: Seconds = 0.0
    correlation_id: Annotated[str, Meta(max_length=255)] = ""


class Publish(Body, frozen=True, kw_only=True):
    """Messages to be published, all or none."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=MOST_PUBLISHED)]


class Published(Resource, frozen=True, kw_only=True):
    """They are on disk, in this order."""

    ids: list[str]


class Event(Resource, frozen=True, kw_only=True):
    """Something that happened to a message."""

    position: int
    at: datetime
    #: As in ``events`` of the journal: published, returned, requeued, dead, redriven, acknowledged, popped, dropped …
    kind: str
    queue: str
    source: str
    reason: str | None
    deliveries: int | None
    #: When the delivery began that this event ended.
    delivered_at: datetime | None


class Life(Resource, frozen=True, kw_only=True):
    """Every event of one message that the journal still has, and where the message is now."""

    id: str
    position: int
    #: Null: it is no more.
    state: State | None
    queue: str
    events: list[Event]
    #: Not all of the journal was looked through: go on with this as ``cursor``.
    next: str | None
    #: The history before this moment is not kept any more.
    since: datetime | None


class LifeQuery(PageQuery, frozen=True, kw_only=True):
    """How far the journal was looked through already."""


class DeadGroup(Resource, frozen=True, kw_only=True):
    """Dead letters of one queue with one reason."""

    queue: str
    reason: str
    count: int
    #: When the oldest dead letter of the queue was published, whatever its reason.
    oldest: datetime | None


class DeadQuery(PageQuery, frozen=True, kw_only=True):
    """Of which queues."""

    pattern: Pattern = "*"


class NewJob(Body, frozen=True, kw_only=True):
    """Something with many messages of a queue, done in the background."""

    #: ``redrive``: dead letters back to work. ``move``: ready messages to another queue. ``delete``: for good.
    kind: Literal["redrive", "move", "delete"]
    queue: FullName
    #: Of which state: ``redrive`` is of dead, ``move`` of ready or dead ones.
    state: Literal["ready", "delayed", "dead"] = "dead"
    #: The queue they go to; empty: their own.
    target: Annotated[str, Meta(max_length=511)] = ""
    #: These; without any, and without a search, all that are there when the job begins.
    ids: Annotated[list[MessageId], Meta(max_length=MOST_SELECTED)] = msgspec.field(default_factory=list)
    search: Search | None = None
    #: Messages a second at most; 0: as fast as it goes without getting in the way.
    rate: Seconds = 0.0


JobState = Literal["waiting", "running", "cancelled", "interrupted", "failed", "done"]
JobKind = Literal["redrive", "move", "delete", "purge", "backup"]


class Job(Resource, frozen=True, kw_only=True):
    """A job and how far it is. One that was interrupted or cancelled can be resumed."""

    id: str
    kind: JobKind
    state: JobState
    queue: str
    target: str
    by: str
    created_at: datetime
    ended_at: datetime | None
    #: Messages (bytes, for a backup) that are done, of how many as far as that is known, and what was passed over.
    done: int
    total: int | None
    skipped: int
    rate: float
    #: Why it failed, or what it has made.
    detail: str


class JobsQuery(PageQuery, frozen=True, kw_only=True):
    """Which jobs."""

    state: JobState | None = None
