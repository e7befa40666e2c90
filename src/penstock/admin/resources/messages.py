"""Messages: browsing, search, details, publishing and events."""

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

#: Bytes of a payload in a response: the default and the limit. The download has no limit.
SHOWN = 4096
MOST_SHOWN = 2**20
#: Messages of one publish.
MOST_PUBLISHED = 1000
#: Message IDs of one job.
MOST_SELECTED = 10_000

Encoding = Literal["text", "json", "hex", "base64"]
Shown = Annotated[int, Meta(ge=0, le=MOST_SHOWN)]


class Search(Body, frozen=True, kw_only=True):
    """Conditions on messages. All conditions given must match."""

    #: Part of the payload, as UTF-8, case-sensitive.
    text: Annotated[str, Meta(max_length=1000)] = ""
    #: Part of the payload, in hex.
    hex: Annotated[str, Meta(max_length=2000, pattern="^([0-9a-fA-F]{2})*$")] = ""
    #: The ID or its beginning, in hex digits.
    id: Annotated[str, Meta(max_length=32, pattern="^[0-9a-fA-F]*$")] = ""
    #: The whole correlation ID.
    correlation_id: Annotated[str, Meta(max_length=255)] = ""
    #: Published at or after, and published before.
    published_from: datetime | None = None
    published_to: datetime | None = None
    #: Reason of a dead letter.
    reason: DeadReason | None = None
    #: Minimum of ended deliveries.
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
    #: Bytes of each payload in the response.
    bytes: Shown = 200
    encoding: Encoding | None = None


class Payload(Resource, frozen=True, kw_only=True):
    """A payload, or its beginning."""

    size: int
    #: The encoding of ``value``: as requested; by default json if the whole payload is JSON, text if UTF-8, else hex.
    encoding: Encoding
    #: A string; for json the payload itself without whitespace between tokens.
    value: msgspec.Raw
    #: The payload is longer than ``value``.
    truncated: bool


class MessageSummary(Resource, frozen=True, kw_only=True):
    """A message in a list."""

    id: str
    position: int
    state: State
    priority: int
    published_at: datetime
    expires_at: datetime | None
    #: When a delayed message becomes ready.
    due_at: datetime | None
    deliveries: int
    #: Null: unlimited.
    retries_left: int | None
    #: Why it is dead.
    reason: str | None
    correlation_id: str
    request_id: str
    #: Its publisher, as identified by the broker, and the publisher's own description.
    source: str
    source_info: str
    payload: Payload


class Holder(Resource, frozen=True, kw_only=True):
    """The holder of a message that is out."""

    #: The connection, or null for a reader's lease.
    connection: int | None
    reader: str
    peer: str
    since: datetime
    #: When its lock or lease ends; null: when the connection ends.
    until: datetime | None


class MessageDetail(MessageSummary, frozen=True, kw_only=True):
    """A message with all details."""

    queue: str
    holder: Holder | None


class MessageQuery(QueryParameters, frozen=True, kw_only=True):
    """How to encode the payload."""

    bytes: Shown = SHOWN
    encoding: Encoding | None = None


class MessagePage(Resource, frozen=True, kw_only=True):
    """Messages in the order of the queue. A search examines a bounded number of messages, so a page may be empty."""

    items: list[MessageSummary]
    #: The ``cursor`` to continue with; null if all messages were examined.
    next: str | None
    #: Messages examined for this page, and payload bytes searched.
    looked_at: int
    searched_bytes: int
    #: Messages in this state in the queue.
    total: int


class NewMessage(Body, frozen=True, kw_only=True):
    """A message to publish.

    A ``json`` payload is published as it is in the request, without whitespace between tokens.
    """

    payload: msgspec.Raw
    encoding: Encoding = "text"
    priority: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    #: Null: the queue's default; 0: unlimited.
    ttl_seconds: Seconds | None = None
    delay_seconds: Seconds = 0.0
    correlation_id: Annotated[str, Meta(max_length=255)] = ""


class Publish(Body, frozen=True, kw_only=True):
    """Messages to publish, all or none."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=MOST_PUBLISHED)]


class Published(Resource, frozen=True, kw_only=True):
    """IDs of the messages, which are on disk, in order."""

    ids: list[str]


class Event(Resource, frozen=True, kw_only=True):
    """An event of a message."""

    position: int
    at: datetime
    #: As in ``events`` of the journal: published, returned, requeued, dead, redriven, acknowledged, popped, dropped …
    kind: str
    queue: str
    source: str
    reason: str | None
    deliveries: int | None
    #: When the delivery that this event ended had started.
    delivered_at: datetime | None


class Life(Resource, frozen=True, kw_only=True):
    """All events of one message that are still in the journal, and its current state."""

    id: str
    position: int
    #: Null: the message is gone.
    state: State | None
    queue: str
    events: list[Event]
    #: The ``cursor`` to continue with; null if the whole journal was searched.
    next: str | None
    #: Earlier history has been removed.
    since: datetime | None


class LifeQuery(PageQuery, frozen=True, kw_only=True):
    """Where to continue."""


class DeadGroup(Resource, frozen=True, kw_only=True):
    """Dead letters of one queue with the same reason."""

    queue: str
    reason: str
    count: int
    #: When the oldest dead letter of the queue was published, of any reason.
    oldest: datetime | None


class DeadQuery(PageQuery, frozen=True, kw_only=True):
    """Which queues."""

    pattern: Pattern = "*"


class NewJob(Body, frozen=True, kw_only=True):
    """Work on many messages of a queue, in the background."""

    #: ``redrive``: dead letters become ready again. ``move``: to another queue. ``delete``: for good.
    kind: Literal["redrive", "move", "delete"]
    queue: FullName
    #: The state of the messages: dead for ``redrive``, ready or dead for ``move``.
    state: Literal["ready", "delayed", "dead"] = "dead"
    #: The target queue; empty: the same queue.
    target: Annotated[str, Meta(max_length=511)] = ""
    #: IDs of the messages; without IDs and ``search``, all that exist when the job starts.
    ids: Annotated[list[MessageId], Meta(max_length=MOST_SELECTED)] = msgspec.field(default_factory=list)
    search: Search | None = None
    #: Maximum of messages per second; 0: as fast as possible without disturbing clients.
    rate: Seconds = 0.0


JobState = Literal["waiting", "running", "cancelled", "interrupted", "failed", "done"]
JobKind = Literal["redrive", "move", "delete", "purge", "backup"]


class Job(Resource, frozen=True, kw_only=True):
    """A job and its progress. An interrupted or cancelled job can be resumed."""

    id: str
    kind: JobKind
    state: JobState
    queue: str
    target: str
    by: str
    created_at: datetime
    ended_at: datetime | None
    #: Messages (bytes for a backup) processed, their total if known, and messages skipped.
    done: int
    total: int | None
    skipped: int
    rate: float
    #: Why it failed, or its result.
    detail: str


class JobsQuery(PageQuery, frozen=True, kw_only=True):
    """Which jobs."""

    state: JobState | None = None
