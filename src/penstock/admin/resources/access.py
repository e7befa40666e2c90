"""Who may do what: sessions, tokens and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.admin.resources.common import Body, PageQuery, Pattern, Resource

Role = Literal["view", "operate", "admin"]
Right = Literal["publish", "consume", "dead-letter", "administer", "read", "create", "view", "operate", "admin"]


class Login(Body, frozen=True, kw_only=True):
    """A token, for a cookie."""

    token: Annotated[str, Meta(min_length=1, max_length=1000)]


class Grant(Resource, frozen=True, kw_only=True):
    """Rights, and the queues that they are for."""

    may: list[str]
    where: list[str]


class Session(Resource, frozen=True, kw_only=True):
    """Who the caller is."""

    identity: str
    #: The most that the caller may do anywhere.
    role: Role
    grants: list[Grant]
    #: Of the login; null for a token in the request itself.
    expires_at: datetime | None


class TokenSummary(Resource, frozen=True, kw_only=True):
    """A token. What it is itself is not known: only its hash is kept."""

    id: str
    name: str
    may: list[Right]
    where: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    expired: bool


class NewToken(Body, frozen=True, kw_only=True):
    """A token that is to be made. It holds over HTTP and over Flight."""

    #: To whom it is given: names of readers and writers belong to it.
    name: Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]+$")]
    may: Annotated[list[Right], Meta(min_length=1, max_length=9)]
    where: Annotated[list[Pattern], Meta(min_length=1, max_length=100)] = msgspec.field(default_factory=lambda: ["*"])
    #: Null: it does not expire.
    expires_in_seconds: Annotated[float, Meta(gt=0, le=2**32)] | None = None


class TokenMade(Resource, frozen=True, kw_only=True):
    """The token, shown this once."""

    token: str
    summary: TokenSummary


#: ``partial``: it was refused after a part of it was done. ``dry-run``: the caller asked what it would do.
Outcome = Literal["done", "partial", "dry-run", "refused", "failed"]


class AuditEntry(Resource, frozen=True, kw_only=True):
    """A change, or one that was not made; or a login."""

    number: int
    at: datetime
    #: The name of its token, which others may have too, and its ID. Of a token of the configuration the ID is
    #: ``sha256:`` and the first 16 digits; without a token it is empty.
    who: str
    token: str
    #: Its address.
    origin: str
    #: The route's name, as in ``configure-queue``, and what it was about.
    action: str
    target: str
    outcome: Outcome
    before: Any
    after: Any
    detail: str


class AuditQuery(PageQuery, frozen=True, kw_only=True):
    """Which entries; the newest come first."""

    who: Annotated[str, Meta(max_length=255)] = ""
    #: The ID of a token.
    token: Annotated[str, Meta(max_length=100)] = ""
    outcome: Outcome | None = None
    action: Annotated[str, Meta(max_length=100)] = ""
    #: Part of what it was about.
    target: Annotated[str, Meta(max_length=511)] = ""
    since: datetime | None = None
    until: datetime | None = None
