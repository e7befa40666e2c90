"""Namespaces and queues."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from penstock.admin.resources.common import Body, Count, Limit, Order, PageQuery, Pattern, Resource, Seconds

LockSeconds = Annotated[float, Meta(gt=0, le=2**32)]
QueueSort = Literal[
    "name", "ready", "out", "delayed", "dead", "bytes", "consumers", "oldest", "published", "delivered", "settled"
]
QueueState = Literal["active", "idle", "paused", "backlog", "dead", "empty"]


class Rules(Body, frozen=True, kw_only=True):
    """What a queue does with its messages: the words of the configuration file. 0 means no limit."""

    default_ttl_seconds: Seconds = 0.0
    on_expiry: Literal["dead", "drop"] = "dead"
    max_deliveries: Count = 0
    dead_letters: bool = True
    max_depth: Count = 0
    max_bytes: Count = 0
    on_full: Literal["reject", "drop-oldest"] = "reject"
    lock_seconds: LockSeconds = 30.0
    deduplication_seconds: Seconds = 300.0
    paused: bool = False


class RulesChange(Body, frozen=True, kw_only=True, omit_defaults=True):
    """The rules that are to be others; the rest stays."""

    default_ttl_seconds: Seconds | UnsetType = UNSET
    on_expiry: Literal["dead", "drop"] | UnsetType = UNSET
    max_deliveries: Count | UnsetType = UNSET
    dead_letters: bool | UnsetType = UNSET
    max_depth: Count | UnsetType = UNSET
    max_bytes: Count | UnsetType = UNSET
    on_full: Literal["reject", "drop-oldest"] | UnsetType = UNSET
    lock_seconds: LockSeconds | UnsetType = UNSET
    deduplication_seconds: Seconds | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class Rates(Resource, frozen=True, kw_only=True):
    """Messages a second, over the last few seconds. ``settled`` is acknowledged, popped, dropped or purged."""

    published: float = 0.0
    delivered: float = 0.0
    settled: float = 0.0
    redelivered: float = 0.0


class Counters(Resource, frozen=True, kw_only=True):
    """Messages since the queue was made; ``delivered`` and ``redelivered`` since the broker started."""

    published: int = 0
    acknowledged: int = 0
    popped: int = 0
    dropped: int = 0
    purged: int = 0
    moved_in: int = 0
    moved_out: int = 0
    delivered: int = 0
    redelivered: int = 0


class QueueSummary(Resource, frozen=True, kw_only=True):
    """A queue in a list."""

    name: str
    namespace: str
    queue: str
    ready: int
    out: int
    delayed: int
    dead: int
    damaged: int
    #: Payload bytes of the messages that wait.
    bytes: int
    #: Windows, and connections that ask for one message at a time: docs/protocols/queues.md, "A consumer".
    consumers: int
    paused: bool
    #: When the oldest ready message was published; null if there is none.
    oldest: datetime | None
    rates: Rates
    #: Which of the states of ``state=`` it is in.
    states: list[QueueState]


class QueueDetail(QueueSummary, frozen=True, kw_only=True):
    """A queue by itself."""

    created_at: datetime
    rules: Rules
    #: Its dead letters by reason.
    dead_by_reason: dict[str, int]
    counters: Counters
    #: Of ``rules``: the value of ``ETag``, which a change names in ``If-Match``.
    version: str


class QueuesQuery(PageQuery, frozen=True, kw_only=True):
    """Which queues, and in which order."""

    pattern: Pattern = "*"
    #: Only queues in this state. ``backlog`` has ready messages and no consumers, ``dead`` has dead letters.
    state: QueueState | None = None
    #: Part of the full name, in any case of letters.
    contains: Annotated[str, Meta(max_length=255)] = ""
    sort: QueueSort = "name"
    order: Order = "ascending"


class NamespaceSummary(Resource, frozen=True, kw_only=True):
    """A namespace in a list."""

    name: str
    queues: int
    ready: int
    out: int
    delayed: int
    dead: int


class NewQueue(Body, frozen=True, kw_only=True):
    """A queue that is to be made. Its namespace is made with it."""

    rules: Rules = Rules()


class Purge(Body, frozen=True, kw_only=True):
    """Remove all messages of these states. ``confirm`` is the full name of the queue, typed once more."""

    states: Annotated[list[Literal["ready", "delayed", "dead"]], Meta(min_length=1, max_length=3)]
    confirm: Annotated[str, Meta(max_length=511)]


class HistoryQuery(PageQuery, frozen=True, kw_only=True):
    """How far back, at most."""

    limit: Limit = 600
