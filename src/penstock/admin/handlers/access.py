"""Logins, tokens and the audit log."""

from __future__ import annotations

import secrets
import time

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import Token
from penstock.admin.audit import Audit
from penstock.admin.gatekeeper import LOGIN_SECONDS, Gatekeeper, digest_of
from penstock.admin.http import Request, Response
from penstock.admin.origins import Origins
from penstock.admin.pages import slice_page
from penstock.admin.resources.access import NewToken, TokenMade, TokenSummary
from penstock.admin.resources.common import Done, Page, resource_of
from penstock.admin.times import to_datetime, to_datetime_or_none
from penstock.admin.watched_broker import WatchedBroker

#: Random bytes of a token.
TOKEN_BYTES = 32


class AccessHandlers:
    """Handles requests about access."""

    def __init__(self, broker: WatchedBroker, gatekeeper: Gatekeeper, audit: Audit, origins: Origins) -> None:
        self._broker = broker
        self._gatekeeper = gatekeeper
        self._audit = audit
        self._origins = origins

    async def login(self, request: Request) -> Response:
        """Set a cookie for a token."""
        cookie, caller = await self._gatekeeper.log_in(request.caller.address, request.body.token)
        self._audit.record_login(caller)
        return Response(caller.to_session(), headers=(self._cookie(request, cookie, int(LOGIN_SECONDS)),))

    async def session(self, request: Request) -> Response:
        """The caller itself."""
        return Response(request.caller.to_session())

    async def logout(self, request: Request) -> Response:
        """Invalidate the cookie, and have the browser delete it."""
        self._gatekeeper.log_out(self._gatekeeper.cookie_in(request.headers))
        return Response(Done(), headers=(self._cookie(request, "", 0),))

    def _cookie(self, request: Request, value: str, seconds: int) -> tuple[str, str]:
        secure = "; Secure" if self._origins.is_secure(request.headers) else ""
        name = self._gatekeeper.cookie
        return "set-cookie", f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    # Tokens

    async def tokens(self, request: Request) -> Response:
        """Oldest first."""
        found = await self._broker.ask(requests.Tokens(), list[Token])
        shown, following = slice_page(found, request.query, lambda each: (each.created_at, each.id), tuple[int, str])
        items = [_summary(each) for each in shown]
        return Response(Page[TokenSummary](items=items, next=following, total=len(found)))

    async def create_token(self, request: Request) -> Response:
        """Create a token. Only its hash is stored."""
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
        summary = _summary(await self._broker.ask(asked, Token))
        self._gatekeeper.forget_rights()
        return Response(TokenMade(token=token, summary=summary), target=summary.id, after=summary)

    async def revoke_token(self, request: Request) -> Response:
        """Revoke a token with immediate effect."""
        asked = requests.RevokeToken(id=request.path_params["id"], by=request.caller.by)
        token = await self._broker.ask(asked, Token)
        self._gatekeeper.forget_rights()
        return Response(Done(), before=_summary(token))

    # Audit log

    async def audit(self, request: Request) -> Response:
        """A page of the entries that match, newest first."""
        return Response(self._audit.page(request.query))


def _summary(token: Token) -> TokenSummary:
    return resource_of(
        TokenSummary,
        token,
        created_at=to_datetime(token.created_at),
        expires_at=to_datetime_or_none(token.expires_at),
        expired=0 < token.expires_at <= int(time.time() * 1e6),
    )
