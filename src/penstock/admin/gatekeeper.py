"""Authentication and rights of callers: tokens in requests, logins with a cookie, and a limit on failed attempts."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from penstock.admin.admin_requests import QueueRow
from penstock.admin.problems import ApiProblem, fail, problem
from penstock.admin.resources.access import Grant, Role, Session
from penstock.admin.store import StateFile
from penstock.companions.rights import Allowed, AskRights, Right
from penstock.patterns import includes_namespace

#: Seconds for which the broker's answer about a peer is cached. Tokens revoked over HTTP take effect at once.
RIGHTS_TTL = 2.0
#: Additional seconds while the broker is silent: an operator who watches it must not lose access then.
RIGHTS_TTL_SILENT = 300.0
#: Peers whose rights are cached.
MOST_CACHED = 1_000
#: Logins per token, and in total. Beyond, the oldest login ends: of this token, or of the token with the most.
LOGINS_OF_TOKEN = 100
MOST_LOGINS = 10_000
#: Seconds until a login expires.
LOGIN_SECONDS = 12 * 3600.0
#: Failed attempts of one address within ``FAILURE_SECONDS`` before it has to wait; and addresses that are tracked.
FAILURES = 10
FAILURE_SECONDS = 60.0
MOST_ADDRESSES = 10_000

#: Each role with the rights that include it.
ROLES: dict[Role, tuple[Right, ...]] = {
    "view": ("view", "operate", "admin"),
    "operate": ("operate", "admin"),
    "admin": ("admin",),
}


class Actor(NamedTuple):
    """The author of a change. Names of tokens may repeat, their IDs do not."""

    identity: str
    token_id: str
    address: str

    def __str__(self) -> str:
        token = f"[{self.token_id}]" if self.token_id else ""
        return " ".join(filter(None, (self.identity, token, self.address)))

    @classmethod
    def parse(cls, text: str) -> Actor:
        """The inverse of ``str`` for an actor with an address."""
        rest, _, address = text.rpartition(" ")
        identity, _, token = rest.rpartition(" ")
        if token.startswith("[") and token.endswith("]"):
            return cls(identity, token[1:-1], address)
        return cls(rest, "", address)


class Caller(NamedTuple):
    """The sender of a request, with its rights."""

    identity: str
    address: str
    allowed: Allowed
    #: When the login expires; 0 if the token came with the request.
    until: float = 0.0
    #: Whether it has a token. Without one it can only view.
    authenticated: bool = True

    @property
    def by(self) -> str:
        """The actor as text, for the journal and for jobs."""
        return str(self.actor)

    @property
    def actor(self) -> Actor:
        """The actor, for the audit log."""
        return Actor(self.identity, self.allowed.token_id, self.address)

    def may(self, role: Role, namespace: str, name: str) -> bool:
        """Whether it has the role for this queue."""
        return self._usable(role) and any(self.allowed.may(right, namespace, name) for right in ROLES[role])

    def may_view(self, row: QueueRow) -> bool:
        """Whether it may view this queue."""
        return self.may("view", row.namespace, row.name)

    def may_everywhere(self, role: Role) -> bool:
        """Whether it has the role for all queues."""
        return self._usable(role) and any(self.allowed.may_everywhere(right) for right in ROLES[role])

    def may_somewhere(self, role: Role) -> bool:
        """Whether it has the role for at least one pattern."""
        return self._usable(role) and any(self.allowed.may_somewhere(right) for right in ROLES[role])

    def may_namespace(self, role: Role, namespace: str) -> bool:
        """Whether it has the role for all queues of a namespace."""
        return self._usable(role) and any(includes_namespace(pattern, namespace) for pattern in self.patterns(role))

    def patterns(self, role: Role) -> list[str]:
        """Patterns of the queues for which it has the role."""
        return [pattern for right in ROLES[role] for pattern in self.allowed.patterns(right)]

    @property
    def role(self) -> Role | None:
        """The highest role that it has for any queue."""
        roles: tuple[Role, ...] = ("admin", "operate", "view")
        return next((role for role in roles if self.may_somewhere(role)), None)

    def _usable(self, role: Role) -> bool:
        return self.authenticated or role == "view"

    def to_session(self) -> Session:
        """The resource that the caller sees."""
        grants = [Grant(may=list(rights), where=list(patterns)) for rights, patterns in self.allowed.rules]
        until = datetime.fromtimestamp(self.until, UTC) if self.until else None
        return Session(identity=self.identity, role=self.role or "view", grants=grants, expires_at=until)


class _Login(NamedTuple):
    digest: str
    until: float


class Gatekeeper:
    """Authenticates callers. ``ask`` asks the broker for the rights of a peer."""

    def __init__(
        self, ask: Callable[[AskRights], Awaitable[Allowed]], store: StateFile, clock: Callable[[], float] = time.time
    ) -> None:
        """Logins survive a restart. Only hashes of cookies and tokens are stored."""
        self._ask = ask
        #: Each broker has a cookie name of its own, because browsers send a host's cookies to all its ports.
        self.cookie = f"penstock_session_{store.identity}"
        self._store = store
        self._clock = clock
        self._rights: OrderedDict[tuple[str, str], tuple[float, Allowed]] = OrderedDict()
        store.write("delete from logins where until <= ?", (clock(),))
        rows = store.rows("select cookie, digest, until from logins order by until")
        self._logins: OrderedDict[str, _Login] = OrderedDict(
            (cookie, _Login(digest, until)) for cookie, digest, until in rows
        )
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    async def caller(self, address: str, token: str, cookie: str) -> Caller:
        """The caller with this token or cookie. Raises ApiProblem if neither is valid and anonymous access is off."""
        login = self._login_of(cookie)
        digest = digest_of(token) if token else (login.digest if login else "")
        allowed = await self._allowed(address, digest)
        if digest and allowed.unknown_token:
            if token:
                self._note_failure(address)
            fail(
                "unauthenticated",
                "this token is unknown, expired or revoked",
                field="header.Authorization",
            )
        until = login.until if login and not token else 0.0
        caller = Caller(allowed.identity, address, allowed, until, authenticated=bool(digest))
        if caller.role is None and not digest:
            fail("unauthenticated", "a token is needed: Authorization: Bearer …", field="header.Authorization")
        return caller

    def anonymous(self, address: str) -> Caller:
        """The caller of an open route: it has no rights and needs none."""
        return Caller("", address, Allowed(open=False), authenticated=False)

    def cookie_in(self, headers: Mapping[str, str]) -> str:
        """The value of the login cookie; empty if there is none."""
        for each in headers.get("cookie", "").split(";"):
            name, _, value = each.strip().partition("=")
            if name == self.cookie:
                return value
        return ""

    # Logins

    async def log_in(self, address: str, token: str) -> tuple[str, Caller]:
        """A new cookie for a token, and its caller. Raises ApiProblem if the token is invalid."""
        digest = digest_of(token)
        allowed = await self._allowed(address, digest, fresh=True)
        caller = Caller(allowed.identity, address, allowed, self._clock() + LOGIN_SECONDS)
        if allowed.unknown_token or caller.role is None:
            self._note_failure(address)
            fail("unauthenticated", "this token is unknown, or grants no right over HTTP", field="body.token")
        cookie = secrets.token_urlsafe(32)
        self._logins[digest_of(cookie)] = _Login(digest, caller.until)
        values = (digest_of(cookie), digest, caller.until)
        self._store.write("insert into logins (cookie, digest, until) values (?, ?, ?)", values)
        self._evict(digest)
        return cookie, caller

    def _evict(self, digest: str) -> None:
        """End a login if there are too many: of this token, or of the token with the most logins."""
        if sum(login.digest == digest for login in self._logins.values()) > LOGINS_OF_TOKEN:
            self._end_login(self._oldest_login(digest))
        elif len(self._logins) > MOST_LOGINS:
            [(most, _)] = Counter(login.digest for login in self._logins.values()).most_common(1)
            self._end_login(self._oldest_login(most))

    def _oldest_login(self, digest: str) -> str:
        return next(hashed for hashed, login in self._logins.items() if login.digest == digest)

    def log_out(self, cookie: str) -> None:
        """Invalidate the cookie."""
        self._end_login(digest_of(cookie))

    def _end_login(self, hashed: str) -> None:
        self._logins.pop(hashed, None)
        self._store.write("delete from logins where cookie = ?", (hashed,))

    def forget_rights(self) -> None:
        """Ask the broker again for all rights: tokens have changed."""
        self._rights.clear()

    def _login_of(self, cookie: str) -> _Login | None:
        login = self._logins.get(digest_of(cookie)) if cookie else None
        return login if login is not None and login.until > self._clock() else None

    async def _allowed(self, address: str, digest: str, *, fresh: bool = False) -> Allowed:
        key = (address, digest)
        cached = self._rights.get(key)
        if cached is not None and self._clock() < cached[0] and not fresh:
            return cached[1]
        asked = AskRights(address=address, token=digest, hashed=True, closed=True)
        try:
            allowed = await self._ask(asked)
        except ApiProblem as error:
            if cached is None or fresh or error.problem.code != "away" or self._clock() > cached[0] + RIGHTS_TTL_SILENT:
                raise
            return cached[1]
        self._rights[key] = (self._clock() + RIGHTS_TTL, allowed)
        self._rights.move_to_end(key)
        while len(self._rights) > MOST_CACHED:
            self._rights.popitem(last=False)
        return allowed

    # Failures

    def _note_failure(self, address: str) -> None:
        """Count an invalid token. Raises ApiProblem if the address has sent too many.

        Valid tokens are accepted all the same: other clients may share the address, that of a proxy.
        """
        since = self._clock() - FAILURE_SECONDS
        failures = self._failures.setdefault(address, [])
        recent = [at for at in failures if at > since]
        if len(recent) >= FAILURES:
            wait = int(recent[0] - since) + 1
            text = f"{FAILURES} tokens from your address were invalid; wait {wait} seconds"
            raise problem("too-many", text, retry_after=wait)
        failures.append(self._clock())
        del failures[:-FAILURES]
        self._failures.move_to_end(address)
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)


def digest_of(text: str) -> str:
    """The SHA-256 hash of a token or cookie, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
