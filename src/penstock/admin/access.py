"""Who asks, and what they may do: tokens in requests, logins with a cookie, and how often a login may fail."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from penstock.admin.problems import ApiProblem, fail, problem
from penstock.admin.resources.access import Grant, Role, Session
from penstock.admin.store import StateFile
from penstock.endpoint.rights import Allowed, AskRights, Right
from penstock.patterns import includes_namespace

#: Seconds that an answer of the broker holds. A token that is revoked here is forgotten at once.
HOLDS = 2.0
#: Seconds that it holds beyond that while the broker is silent: who watches it must not lose sight of it then.
HOLDS_SILENT = 300.0
#: Peers that are remembered.
REMEMBERED = 1_000
#: Logins by one token, and by all. Beyond it the oldest ends: by the same token, or by the one that has most.
LOGINS_OF_TOKEN = 100
MOST_LOGINS = 10_000
#: Seconds after which one has to log in again.
LOGIN_SECONDS = 12 * 3600.0
#: Failures of one address, in so many seconds, after which it has to wait; and addresses that are remembered.
FAILURES = 10
FAILURE_SECONDS = 60.0
MOST_ADDRESSES = 10_000

#: Each role with those that include it.
ROLES: dict[Role, tuple[Right, ...]] = {
    "view": ("view", "operate", "admin"),
    "operate": ("operate", "admin"),
    "admin": ("admin",),
}


class Actor(NamedTuple):
    """Who did something: names of tokens repeat, their IDs do not."""

    identity: str
    token_id: str
    address: str

    def __str__(self) -> str:
        token = f"[{self.token_id}]" if self.token_id else ""
        return " ".join(filter(None, (self.identity, token, self.address)))

    @classmethod
    def parse(cls, text: str) -> Actor:
        """From what ``str`` makes of one that has an address."""
        rest, _, address = text.rpartition(" ")
        identity, _, token = rest.rpartition(" ")
        if token.startswith("[") and token.endswith("]"):
            return cls(identity, token[1:-1], address)
        return cls(rest, "", address)


class Caller(NamedTuple):
    """Who asks."""

    identity: str
    address: str
    allowed: Allowed
    #: When the login ends; 0: the token came with the request.
    until: float = 0.0
    #: A token was shown: who did not may look, and change nothing.
    shown: bool = True

    @property
    def by(self) -> str:
        """Who it is, for the journal and what is kept of jobs; see ``Actor``."""
        return str(self.actor)

    @property
    def actor(self) -> Actor:
        """The same in parts, for the audit log."""
        return Actor(self.identity, self.allowed.token_id, self.address)

    def may(self, role: Role, namespace: str, name: str) -> bool:
        """Whether it has the role for this queue."""
        return self._usable(role) and any(self.allowed.may(right, namespace, name) for right in ROLES[role])

    def may_everywhere(self, role: Role) -> bool:
        """Whether it has the role for all queues."""
        return self._usable(role) and any(self.allowed.may_everywhere(right) for right in ROLES[role])

    def may_somewhere(self, role: Role) -> bool:
        """Whether there may be a queue for which it has the role."""
        return self._usable(role) and any(self.allowed.may_somewhere(right) for right in ROLES[role])

    def may_namespace(self, role: Role, namespace: str) -> bool:
        """Whether it has the role for all queues of a namespace."""
        return self._usable(role) and any(includes_namespace(pattern, namespace) for pattern in self.patterns(role))

    def patterns(self, role: Role) -> list[str]:
        """Of the queues for which it has the role."""
        return [pattern for right in ROLES[role] for pattern in self.allowed.patterns(right)]

    @property
    def role(self) -> Role | None:
        """The most that it may do anywhere."""
        roles: tuple[Role, ...] = ("admin", "operate", "view")
        return next((role for role in roles if self.may_somewhere(role)), None)

    def _usable(self, role: Role) -> bool:
        return self.shown or role == "view"

    def told(self) -> Session:
        """Who it is, for itself."""
        grants = [Grant(may=list(rights), where=list(patterns)) for rights, patterns in self.allowed.rules]
        until = datetime.fromtimestamp(self.until, UTC) if self.until else None
        return Session(identity=self.identity, role=self.role or "view", grants=grants, expires_at=until)


class _Login(NamedTuple):
    digest: str
    until: float


class Gatekeeper:
    """Finds out who asks. ``ask`` is the broker's answer about a peer."""

    def __init__(
        self, ask: Callable[[AskRights], Awaitable[Allowed]], store: StateFile, clock: Callable[[], float] = time.time
    ) -> None:
        """Logins outlive a restart: who has a page open goes on. Of cookies and tokens only hashes are kept."""
        self._ask = ask
        #: The name of the cookie: browsers send a host's cookies to all its ports, so each broker has its own.
        self.cookie = f"penstock_session_{store.identity}"
        self._store = store
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], tuple[float, Allowed]] = OrderedDict()
        store.write("delete from logins where until <= ?", (clock(),))
        rows = store.rows("select cookie, digest, until from logins order by until")
        self._logins: OrderedDict[str, _Login] = OrderedDict(
            (cookie, _Login(digest, until)) for cookie, digest, until in rows
        )
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    async def caller(self, address: str, token: str, cookie: str) -> Caller:
        """Who shows this. Raises ApiProblem for a token that nobody knows, and for whoever shows nothing that helps."""
        login = self._login_of(cookie)
        digest = digest_of(token) if token else (login.digest if login else "")
        allowed = await self._allowed(address, digest)
        if digest and allowed.unknown_token:
            if token:
                self._note_failure(address)
            fail(
                "unauthenticated",
                "this token is not known, or has expired or was revoked",
                field="header.Authorization",
            )
        shown = bool(digest)
        caller = Caller(allowed.identity, address, allowed, login.until if login and not token else 0.0, shown)
        if caller.role is None and not digest:
            fail("unauthenticated", "show a token: Authorization: Bearer …", field="header.Authorization")
        return caller

    def nobody(self, address: str) -> Caller:
        """Who asks for what everybody is told."""
        return Caller("", address, Allowed(open=False), shown=False)

    def cookie_in(self, headers: Mapping[str, str]) -> str:
        """The value of the login's cookie; empty if there is none."""
        for each in headers.get("cookie", "").split(";"):
            name, _, value = each.strip().partition("=")
            if name == self.cookie:
                return value
        return ""

    # Logins

    async def log_in(self, address: str, token: str) -> tuple[str, Caller]:
        """A cookie for a token, and who that is. Raises ApiProblem."""
        digest = digest_of(token)
        allowed = await self._allowed(address, digest, fresh=True)
        caller = Caller(allowed.identity, address, allowed, self._clock() + LOGIN_SECONDS)
        if allowed.unknown_token or caller.role is None:
            self._note_failure(address)
            fail("unauthenticated", "this token is not known, or has no right over HTTP", field="body.token")
        cookie = secrets.token_urlsafe(32)
        self._logins[digest_of(cookie)] = _Login(digest, caller.until)
        values = (digest_of(cookie), digest, caller.until)
        self._store.write("insert into logins (cookie, digest, until) values (?, ?, ?)", values)
        self._make_room(digest)
        return cookie, caller

    def _make_room(self, digest: str) -> None:
        """A token ends the logins of others only where it has fewer than they."""
        if sum(login.digest == digest for login in self._logins.values()) > LOGINS_OF_TOKEN:
            self._forget(self._oldest_login(digest))
        elif len(self._logins) > MOST_LOGINS:
            [(most, _)] = Counter(login.digest for login in self._logins.values()).most_common(1)
            self._forget(self._oldest_login(most))

    def _oldest_login(self, digest: str) -> str:
        return next(hashed for hashed, login in self._logins.items() if login.digest == digest)

    def log_out(self, cookie: str) -> None:
        """The cookie is worth nothing any more."""
        self._forget(digest_of(cookie))

    def _forget(self, hashed: str) -> None:
        self._logins.pop(hashed, None)
        self._store.write("delete from logins where cookie = ?", (hashed,))

    def forget(self) -> None:
        """Tokens have changed: ask the broker again."""
        self._known.clear()

    def _login_of(self, cookie: str) -> _Login | None:
        login = self._logins.get(digest_of(cookie)) if cookie else None
        return login if login is not None and login.until > self._clock() else None

    async def _allowed(self, address: str, digest: str, *, fresh: bool = False) -> Allowed:
        key = (address, digest)
        known = self._known.get(key)
        if known is not None and self._clock() < known[0] and not fresh:
            return known[1]
        asked = AskRights(address=address, token=digest, hashed=True, closed=True)
        try:
            allowed = await self._ask(asked)
        except ApiProblem as error:
            if known is None or fresh or error.problem.code != "away" or self._clock() > known[0] + HOLDS_SILENT:
                raise
            return known[1]
        self._known[key] = (self._clock() + HOLDS, allowed)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return allowed

    # Failures

    def _note_failure(self, address: str) -> None:
        """One more token that is not known. Raises ApiProblem for an address that has guessed too often.

        A token that is known is accepted all the same: others may have the same address, that of a proxy.
        """
        since = self._clock() - FAILURE_SECONDS
        failures = self._failures.setdefault(address, [])
        recent = [at for at in failures if at > since]
        if len(recent) >= FAILURES:
            wait = int(recent[0] - since) + 1
            text = f"{FAILURES} tokens from your address were not known: wait {wait} seconds"
            raise problem("too-many", text, retry_after=wait)
        failures.append(self._clock())
        del failures[:-FAILURES]
        self._failures.move_to_end(address)
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)


def digest_of(text: str) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
