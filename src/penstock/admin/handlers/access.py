"""Logins, tokens and the audit log."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable

from penstock.admin import admin_requests as requests
from penstock.admin.access import LOGIN_SECONDS, Gatekeeper, digest_of
from penstock.admin.admin_requests import Token
from penstock.admin.audit import Audit
from penstock.admin.http import Answer, Request
from penstock.admin.origins import Origins
from penstock.admin.pages import cursor_of, values_of
from penstock.admin.resources.access import NewToken, TokenMade, TokenSummary
from penstock.admin.resources.common import Done, Page
from penstock.admin.times import moment, moment_or_none
from penstock.admin.watched_broker import WatchedBroker

#: Random bytes of a token.
TOKEN_BYTES = 32


class AccessHandlers:
    """Handles what is about access."""

    def __init__(self, broker: WatchedBroker, gatekeeper: Gatekeeper, audit: Audit, origins: Origins) -> None:
        self._broker = broker
        self._gatekeeper = gatekeeper
        self._audit = audit
        self._origins = origins
        self.handlers: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "login": self.log_in,
            "session": self.session,
            "logout": self.log_out,
            "tokens": self.tokens,
            "create-token": self.create,
            "revoke-token": self.revoke,
            "audit": audit.listed,
        }

    async def log_in(self, request: Request) -> Answer:
        """A cookie for a token."""
        cookie, caller = await self._gatekeeper.log_in(request.caller.address, request.body.token)
        self._audit.login(caller)
        return Answer(caller.told(), headers=(self._cookie(request, cookie, int(LOGIN_SECONDS)),))

    async def session(self, request: Request) -> Answer:
        """Who am I."""
        return Answer(request.caller.told())

    async def log_out(self, request: Request) -> Answer:
        """The cookie is void, and the browser forgets it."""
        self._gatekeeper.log_out(self._gatekeeper.cookie_in(request.headers))
        return Answer(Done(), headers=(self._cookie(request, "", 0),))

    def _cookie(self, request: Request, value: str, seconds: int) -> tuple[str, str]:
        secure = "; Secure" if self._origins.is_secure(request.headers) else ""
        name = self._gatekeeper.cookie
        return "set-cookie", f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    # Tokens

    async def tokens(self, request: Request) -> Answer:
        """The oldest first."""
        found = await self._broker.ask(requests.Tokens(), list[Token])
        after: tuple[int, str] | None = values_of(request.query.cursor, tuple[int, str])
        rest = [token for token in found if after is None or (token.created_at, token.id) > after]
        limit = request.query.limit
        items = [_told(token) for token in rest[: limit + 1]]
        following = cursor_of(rest[limit - 1].created_at, rest[limit - 1].id) if len(rest) > limit else None
        return Answer(Page[TokenSummary](items=items[:limit], next=following, total=len(found)))

    async def create(self, request: Request) -> Answer:
        """Made here, kept by its hash, told once."""
        body: NewToken = request.body
        token = f"pk_{secrets.token_urlsafe(TOKEN_BYTES)}"
        expires = int((time.time() + body.expires_in_seconds) * 1e6) if body.expires_in_seconds is not None else 0
        asked = requests.MakeToken(
            name=body.name,
            sha256=digest_of(token),
            may=list(dict.fromkeys(body.may)),
            where=body.where,
            expires_at=expires,
            by=request.caller.by,
        )
        summary = _told(await self._broker.ask(asked, Token))
        self._gatekeeper.forget()
        return Answer(TokenMade(token=token, summary=summary), target=summary.id, after=summary)

    async def revoke(self, request: Request) -> Answer:
        """At once, for all who use it."""
        asked = requests.RevokeToken(id=request.places["id"], by=request.caller.by)
        token = await self._broker.ask(asked, Token)
        self._gatekeeper.forget()
        return Answer(Done(), before=_told(token))


def _told(token: Token) -> TokenSummary:
    return TokenSummary(
        id=token.id,
        name=token.name,
        may=token.may,
        where=token.where,
        created_at=moment(token.created_at),
        created_by=token.created_by,
        expires_at=moment_or_none(token.expires_at),
        expired=0 < token.expires_at <= int(time.time() * 1e6),
    )
