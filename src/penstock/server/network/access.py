"""Access rules: a peer's rights are derived from them when it connects, and looked up by queue."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import pwd
from collections.abc import Sequence
from typing import NamedTuple

from penstock.companions.rights import Allowed, Right
from penstock.patterns import fits, fits_queue, includes_every_queue
from penstock.server.options.broker_options import AccessRule

#: Answers remembered for one peer: it may name queues without end.
REMEMBERED = 1_000
#: Denials of one peer that are logged, each once.
LOGGED_DENIALS = 100
#: Bytes of an identity. A certificate's subject may be longer, and is then known by its hash.
IDENTITY_BYTES = 255
#: The identity of peers without credentials in no network that a rule names.
ANONYMOUS = "no credentials"


class TokenRule(AccessRule, frozen=True, kw_only=True):
    """The rule of a token that was made over the API."""

    id: str


class Peer(NamedTuple):
    """The other end of a connection."""

    #: Its address, or "unix" for a Unix-domain socket.
    address: str
    #: Of its certificate: see ``subjects``.
    subject: str = ""
    #: The number of the user at the other end of a Unix-domain socket.
    user: int | None = None
    port: int = 0
    #: What it has shown over Flight; the other protocols have no place for one. Or its SHA-256, from the HTTP process.
    token: str = ""
    token_sha256: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of its token, in hex; empty if it has shown none."""
        return self.token_sha256 or (_digest(self.token) if self.token else "")


class Rights:
    """The rights of one peer: all of them if there are no rules."""

    def __init__(self, rules: Sequence[AccessRule], peer: Peer) -> None:
        #: There are no rules.
        self.open = not rules
        self._rules = [rule for rule in rules if _matches(rule, peer)]
        self._known: dict[tuple[Right, str, str], bool] = {}
        self._denied: set[tuple[Right, str]] = set()

    def allow(self, right: Right, namespace: str, name: str) -> bool:
        """Whether the peer may do this with the queue; without a name, with the namespace."""
        if self.open:
            return True
        known = self._known.get((right, namespace, name))
        if known is None:
            known = any(right in rule.may and _is_where(rule.where, namespace, name) for rule in self._rules)
            if len(self._known) < REMEMBERED:
                self._known[(right, namespace, name)] = known
        return known

    def note_denial(self, right: Right, queue: str) -> bool:
        """The peer was denied something. Returns whether to log that: each once, and not very many of them."""
        if (right, queue) in self._denied or len(self._denied) >= LOGGED_DENIALS:
            return False
        self._denied.add((right, queue))
        return True

    def rules(self, rights: Sequence[Right], namespace: str, name: str) -> list[AccessRule]:
        """The rules that give the peer one of these rights with the queue."""
        return [rule for rule in self._rules if set(rights) & set(rule.may) and _is_where(rule.where, namespace, name)]

    def allow_somewhere(self, right: Right) -> bool:
        """Whether there may be a queue with which the peer may do this."""
        return self.open or any(right in rule.may and rule.where for rule in self._rules)

    def allow_everywhere(self, *rights: Right) -> bool:
        """Whether the peer may do one of these with all queues."""
        return self.open or any(
            set(rights) & set(rule.may) and any(map(includes_every_queue, rule.where)) for rule in self._rules
        )


def allowed(
    rules: Sequence[AccessRule], peer: Peer, tokens: Sequence[TokenRule] = (), *, closed: bool = False
) -> Allowed:
    """The rights of a peer of the companion processes, which enforce them.

    ``tokens`` are rules beside those of the configuration; they do not restrict peers without a token. ``closed``: an
    unknown peer has no rights even if there are no rules.
    """
    everything = [*rules, *tokens]
    digest = peer.digest
    matching = [rule for rule in everything if _matches(rule, peer)]
    known = any(rule.token_sha256 and _is_token(rule.token_sha256, digest) for rule in everything)
    is_open = not rules and not closed
    return Allowed(
        open=is_open,
        unknown_token=bool(digest) and not is_open and not known,
        rules=[(rule.may, rule.where) for rule in matching],
        identity="" if is_open else _identity(matching, peer),
        token_id=_token_id(tokens, digest) if known else "",
    )


def _token_id(tokens: Sequence[TokenRule], digest: str) -> str:
    """Of a token of the configuration, which has none, the first digits of its SHA-256."""
    found = next((rule.id for rule in tokens if _is_token(rule.token_sha256, digest)), None)
    return found or f"sha256:{digest[:16]}"


def _identity(matching: Sequence[AccessRule], peer: Peer) -> str:
    """The owner of the readers and writers that this peer creates, by its strongest credential."""
    if peer.digest:
        named = [rule.name for rule in matching if rule.token_sha256]
        plain = f"token {peer.digest[:16]}"
    elif peer.subject:
        named = [rule.name for rule in matching if rule.subject]
        plain = f"subject {peer.subject}"
    else:
        named = [rule.name for rule in matching]
        networks = [rule.network for rule in matching if rule.network]
        narrowest = max(networks, key=lambda each: ipaddress.ip_network(each).prefixlen, default="")
        plain = f"network {narrowest}" if narrowest else ANONYMOUS
    found = next(filter(None, named), plain)
    return found if len(found.encode("utf-8", "replace")) <= IDENTITY_BYTES else f"sha256 {_digest(found)}"


def _is_where(patterns: Sequence[str], namespace: str, name: str) -> bool:
    return any(fits_queue(pattern, namespace, name) for pattern in patterns)


def plain_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address without its zone, and IPv4 mapped into IPv6 as IPv4. None: it is no address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def names_subject(rule: AccessRule, name: str, other: str) -> bool:
    """Whether a rule would match a subject of this name, and not of the other one."""
    return bool(rule.subject and name) and fits(rule.subject, name) and not fits(rule.subject, other)


def _matches(rule: AccessRule, peer: Peer) -> bool:
    if rule.subject and not (peer.subject and fits(rule.subject, peer.subject)):
        return False
    if rule.user and not _is_user(rule.user, peer.user):
        return False
    if rule.token_sha256 and not _is_token(rule.token_sha256, peer.digest):
        return False
    return not rule.network or _is_in(rule.network, peer.address)


def _is_token(wanted: str, digest: str) -> bool:
    return bool(digest) and hmac.compare_digest(wanted.lower(), digest)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_user(wanted: str, user: int | None) -> bool:
    if user is None:
        return False
    if wanted.isdigit():
        return int(wanted) == user
    try:
        return pwd.getpwnam(wanted).pw_uid == user
    except KeyError:
        return False


def _is_in(network: str, address: str) -> bool:
    found = plain_address(address)
    return found is not None and found in ipaddress.ip_network(network)
