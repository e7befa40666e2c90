"""Namespaces and queues."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Union

from msgspec import UNSET, Meta, UnsetType, defstruct
from msgspec.structs import fields

from penstock.admin.resources.common import Body, Limit, Order, PageQuery, Pattern, Resource
from penstock.core.policy import QueueRules

QueueSort = Literal[
    "name", "ready", "out", "delayed", "dead", "bytes", "consumers", "oldest", "published", "delivered", "settled"
]
QueueState = Literal["active", "idle", "paused", "backlog", "dead", "empty"]


RulesChange = defstruct(
    "RulesChange",
    [(rule.name, Union[rule.type, UnsetType], UNSET) for rule in fields(QueueRules)],  # noqa: UP007
    bases=(Body,),
    namespace={"__doc__": "The rules to change. Rules that are omitted keep their values."},
    module=__name__,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
)


class Rates(Resource, frozen=True, kw_only=True):
    """Messages per second, over the last few seconds. ``settled`` is acknowledged, popped, dropped or purged."""

    published: float = 0.0
    delivered: float = 0.0
    settled: float = 0.0
    redelivered: float = 0.0


class Counters(Resource, frozen=True, kw_only=True):
    """Messages since the queue was created; ``delivered`` and ``redelivered`` since the broker started."""

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
    #: Payload bytes of waiting messages.
    bytes: int
    #: Windows, and connections that request one message at a time: docs/protocols/queues.md, "A consumer".
    consumers: int
    paused: bool
    #: When the oldest ready message was published; null if there is none.
    oldest: datetime | None
    rates: Rates
    #: The values of ``state=`` that match it.
    states: list[QueueState]


class QueueDetail(QueueSummary, frozen=True, kw_only=True):
    """A queue with its rules and counters."""

    created_at: datetime
    rules: QueueRules
    #: Dead letters by reason.
    dead_by_reason: dict[str, int]
    counters: Counters
    #: The version of ``rules``: the value of ``ETag``, and of ``If-Match`` in a change.
    version: str


class QueuesQuery(PageQuery, frozen=True, kw_only=True):
    """Which queues, and their order."""

    pattern: Pattern = "*"
    #: Only queues in this state. ``backlog``: ready messages and no consumers. ``dead``: dead letters.
    state: QueueState | None = None
    #: Part of the full name, case-insensitive.
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
    """A queue to create. Its namespace is created as well."""

    rules: QueueRules = QueueRules()


class Purge(Body, frozen=True, kw_only=True):
    """Remove all messages in these states. ``confirm`` is the full name of the queue."""

    states: Annotated[list[Literal["ready", "delayed", "dead"]], Meta(min_length=1, max_length=3)]
    confirm: Annotated[str, Meta(max_length=511)]


class HistoryQuery(PageQuery, frozen=True, kw_only=True):
    """How many samples."""

    limit: Limit = 600
