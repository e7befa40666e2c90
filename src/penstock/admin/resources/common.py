"""What resources of all kinds share: names, pages, problems."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from penstock.patterns import MOST_CHARACTERS

#: Entries of one page: unless told otherwise, and at most.
PAGE = 100
MOST_PAGE = 1000

Limit = Annotated[int, Meta(ge=1, le=MOST_PAGE)]
#: Where the next page begins. It is made by the server and means nothing to a client.
Cursor = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
#: namespace/queue.
FullName = Annotated[str, Meta(min_length=3, max_length=511)]
#: Patterns of namespace/queue, with ``*`` and ``?``; a namespace alone is all its queues.
Pattern = Annotated[str, Meta(min_length=1, max_length=MOST_CHARACTERS)]
#: 32 hex digits.
MessageId = Annotated[str, Meta(pattern="^[0-9a-fA-F]{32}$")]

State = Literal["ready", "out", "delayed", "dead"]
DeadReason = Literal["rejected", "retries", "expired", "deliveries", "overflow"]
Order = Literal["ascending", "descending"]

T = TypeVar("T")


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """What all answers have."""


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all requests have: a field that is not known is an error."""


class QueryParameters(Body, frozen=True, kw_only=True):
    """The parameters behind the question mark."""


class Page(Resource, Generic[T], frozen=True, kw_only=True):
    """Some of a list."""

    items: list[T]
    #: Ask for the next page with this as ``cursor``; null at the end.
    next: str | None = None
    #: How many there are, over all pages, where that is known without looking at all of them.
    total: int | None = None


class PageQuery(QueryParameters, frozen=True, kw_only=True):
    """What all lists take."""

    limit: Limit = PAGE
    cursor: Cursor = ""


Code = Literal[
    "bad-request",
    "unauthenticated",
    "denied",
    "not-found",
    "method-not-allowed",
    "conflict",
    "stale",
    "version-required",
    "too-large",
    "too-many",
    "unsupported-type",
    "refused",
    "away",
    "standby",
    "internal",
]


#: ``standby``: another broker serves.
Role = Literal["serving", "standby"]


class Problem(Resource, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was not done (RFC 9457), as ``application/problem+json``."""

    #: A URI that names the sort of problem: ``/problems/`` and the code.
    type: str
    title: str
    status: int
    #: What was wrong with this request, and what would be right.
    detail: str
    code: Code
    #: The field or parameter that was wrong, as in ``rules.max_depth`` or ``query.limit``.
    field: str = ""
    #: For ``stale``: the thing as it is now.
    current: Any = None


class Done(Resource, frozen=True, kw_only=True):
    """It was done, and there is nothing else to say."""

    done: bool = True


class Change(Resource, frozen=True, kw_only=True):
    """One change: what it was, and what it is or would be. Null is nothing."""

    what: Literal["namespace", "queue", "limit", "token", "connection", "lock", "reader", "writer", "message", "broker"]
    name: str
    action: Literal["create", "change", "delete", "other"]
    before: Any = None
    after: Any = None
    #: Why it can not be applied while the broker runs, if that is so.
    note: str = ""


class Sample(Resource, frozen=True, kw_only=True):
    """Rates and backlog at one moment."""

    at: datetime
    published_per_second: float
    delivered_per_second: float
    settled_per_second: float
    ready: int
    out: int
    delayed: int
    dead: int
