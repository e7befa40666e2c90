"""Sessions, tokens and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.admin.resources.common import Body, PageQuery, Pattern, Resource

Role = Literal["view", "operate", "admin"]
Right = Literal["publish", "consume", "dead-letter", "administer", "read", "create", "view", "operate", "admin"]


class Login(Body, frozen=True, kw_only=True):
    """A token to exchange for a cookie."""

    token: Annotated[str, Meta(min_length=1, max_length=1000)]


class Grant(Resource, frozen=True, kw_only=True):
    """Rights and the patterns of queues for which they hold."""

    may: list[str]
    where: list[str]


class Session(Resource, frozen=True, kw_only=True):
    """The caller's identity and rights."""

    identity: str
    #: The highest role for any queue.
    role: Role
    grants: list[Grant]
    #: When the login expires; null for a token in the request itself.
    expires_at: datetime | None


class TokenSummary(Resource, frozen=True, kw_only=True):
    """A token without its secret, of which only a hash is stored."""

    id: str
    name: str
    may: list[Right]
    where: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    expired: bool


class NewToken(Body, frozen=True, kw_only=True):
    """A token to create. It is valid over HTTP and Flight."""

    #: The identity of its user, to which names of readers and writers belong.
    name: Annotated[str, Meta(min_length=1, max_length=100, pattern="^[^\\x00-\\x1f\\x7f]+$")]
    may: Annotated[list[Right], Meta(min_length=1, max_length=9)]
    where: Annotated[list[Pattern], Meta(min_length=1, max_length=100)] = msgspec.field(default_factory=lambda: ["*"])
    #: Null: never.
    expires_in_seconds: Annotated[float, Meta(gt=0, le=2**32)] | None = None


class TokenMade(Resource, frozen=True, kw_only=True):
    """A new token, which is shown only once."""

    token: str
    summary: TokenSummary


#: ``partial``: refused after a part of the change was made. ``dry-run``: nothing was changed.
Outcome = Literal["done", "partial", "dry-run", "refused", "failed"]


class AuditEntry(Resource, frozen=True, kw_only=True):
    """A change, an attempted change, or a login."""

    number: int
    at: datetime
    #: The name of the caller's token, which may not be unique, and the token's ID. For a token in the configuration the
    #: ID is ``sha256:`` and the first 16 digits; without a token it is empty.
    who: str
    token: str
    #: The caller's address.
    origin: str
    #: The route's name, such as ``configure-queue``, and the object of the change.
    action: str
    target: str
    outcome: Outcome
    before: Any
    after: Any
    detail: str


class AuditQuery(PageQuery, frozen=True, kw_only=True):
    """Which entries; newest first."""

    who: Annotated[str, Meta(max_length=255)] = ""
    #: The ID of a token.
    token: Annotated[str, Meta(max_length=100)] = ""
    outcome: Outcome | None = None
    action: Annotated[str, Meta(max_length=100)] = ""
    #: Part of the object's name.
    target: Annotated[str, Meta(max_length=511)] = ""
    since: datetime | None = None
    until: datetime | None = None
