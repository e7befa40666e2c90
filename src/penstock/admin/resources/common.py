"""Types that all resources share: names, pages and problems."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from penstock.patterns import MOST_CHARACTERS

#: Entries per page: the default and the limit.
PAGE = 100
MOST_PAGE = 1000

Limit = Annotated[int, Meta(ge=1, le=MOST_PAGE)]
#: The start of the next page. It is opaque to clients.
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
    """The base of all responses."""


R = TypeVar("R", bound=Resource)


def resource_of(kind: type[R], source: object, **values: Any) -> R:
    """A resource whose fields are ``values``, and otherwise the attributes of ``source`` with the same names."""
    missing = (name for name in kind.__struct_fields__ if name not in values)
    return kind(**{name: getattr(source, name) for name in missing if hasattr(source, name)}, **values)


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all requests: unknown fields are errors."""


class QueryParameters(Body, frozen=True, kw_only=True):
    """The parameters of a query string."""


class Page(Resource, Generic[T], frozen=True, kw_only=True):
    """A part of a list."""

    items: list[T]
    #: The ``cursor`` of the next page; null at the end.
    next: str | None = None
    #: The number of entries on all pages, if it is known.
    total: int | None = None


class PageQuery(QueryParameters, frozen=True, kw_only=True):
    """The parameters of all lists."""

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
    """Why a request failed (RFC 9457), as ``application/problem+json``."""

    #: A URI that identifies the kind of problem: ``/problems/`` and the code.
    type: str
    title: str
    status: int
    #: What is wrong with this request, and how to correct it.
    detail: str
    code: Code
    #: The invalid field or parameter, such as ``body.rules.max_depth`` or ``query.limit``.
    field: str = ""
    #: For ``stale``: the current resource.
    current: Any = None


class Done(Resource, frozen=True, kw_only=True):
    """The request succeeded and has no other result."""

    done: bool = True


class Change(Resource, frozen=True, kw_only=True):
    """One change with the values before and after; null if there is none."""

    what: Literal["namespace", "queue", "limit", "token", "connection", "lock", "reader", "writer", "message", "broker"]
    name: str
    action: Literal["create", "change", "delete", "other"]
    before: Any = None
    after: Any = None
    #: Why the change is not applied while the broker runs, or empty.
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
