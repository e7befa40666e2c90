"""Who calls, and what they may do. The broker knows the rules; its answer holds for a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import pyarrow.flight as fl

from penstock.endpoint.rights import Allowed, Right
from penstock.flight.calls import Pick, Problem
from penstock.flight.problems import UnknownToken, trouble
from penstock.flight.subjects import subject_of_identity
from penstock.journal.format.catalogue import QueueName
from penstock.patterns import MOST_CHARACTERS, fits_queue

#: How long an answer of the broker holds: a stream of small calls must not ask each time.
HOLDS = 5.0
#: Peers that are remembered.
REMEMBERED = 1_000
#: Longer headers are not looked at: no token is that long.
MOST_TOKEN = 4096

MIDDLEWARE = "access"


class Peer(NamedTuple):
    """What is known of the other end of a call."""

    address: str
    #: As in "10.0.0.1:4711", for people.
    name: str
    subject: str
    token: str


class Caller(NamedTuple):
    """A peer, and what it may do."""

    peer: Peer
    allowed: Allowed

    @property
    def identity(self) -> str:
        """To whom the names of readers and writers belong that it makes; empty if there are no rules."""
        return self.allowed.identity

    @property
    def manages(self) -> str:
        """The identity whose names it may drop; empty is all of them."""
        return "" if self.may_everywhere("administer") else self.identity

    def may_anything(self) -> bool:
        """Whether there is any right that it has."""
        return self.allowed.may_anything()

    def may(self, right: Right, name: QueueName) -> bool:
        """Whether the rules say so for this queue."""
        return self.allowed.may(right, *name)

    def may_everywhere(self, right: Right) -> bool:
        """Whether the rules say so for all queues, those that do not exist yet too."""
        return self.allowed.may_everywhere(right)

    def patterns(self, right: Right) -> list[str]:
        """Of the queues for which the rules say so."""
        return self.allowed.patterns(right)

    def demand(self, right: Right, name: QueueName) -> None:
        """Raises Trouble unless the peer may."""
        if not self.may(right, name):
            raise trouble("denied", f"the access rules do not let you {right} {name}")

    def demand_somewhere(self, right: Right) -> None:
        """Raises Trouble if the peer may not do it anywhere."""
        self.demand_one_of(right)

    def demand_one_of(self, *rights: Right) -> None:
        """Raises Trouble if the peer may do none of it anywhere."""
        if not any(map(self.allowed.may_somewhere, rights)):
            raise trouble("denied", f"the access rules do not let you {' or '.join(rights)} anything")


class Callers:
    """Finds out who calls. ``ask`` is the broker's answer to ``rights.AskRights`` about a peer."""

    def __init__(self, ask: Callable[[Peer], Allowed], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = Lock()
        self._known: dict[tuple[str, str, str], tuple[float, Allowed]] = {}

    def caller(self, context: Any) -> Caller:
        """Who is behind a call, and may do something at least.

        Raises Trouble for whoever has no right at all or shows a token that nobody knows, and while the broker is away.
        """
        peer = peer_of(context)
        allowed = self._allowed(peer)
        if allowed.unknown_token:
            raise UnknownToken(Problem(code="denied", text="the access rules do not know this token"))
        found = Caller(peer, allowed)
        if not found.may_anything():
            raise trouble("denied", "the access rules do not let you do anything")
        return found

    def _allowed(self, peer: Peer) -> Allowed:
        key = (peer.address, peer.subject, peer.token)
        now = self._clock()
        with self._lock:
            known = self._known.get(key)
        if known is not None and now < known[0]:
            return known[1]
        allowed = self._ask(peer)
        with self._lock:
            if len(self._known) >= REMEMBERED:
                self._known = {each: value for each, value in self._known.items() if now < value[0]}
            if len(self._known) < REMEMBERED:
                self._known[key] = (now + HOLDS, allowed)
        return allowed


class _Headers(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """Keeps the token of a call."""

    def __init__(self, token: str) -> None:
        self.token = token


class HeaderReader(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Takes the token out of the headers of each call."""

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> _Headers:
        """See pyarrow: it calls this before each call."""
        value = headers.get("authorization", [""])[0]
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        scheme, _, token = text[:MOST_TOKEN].partition(" ")
        return _Headers(token.strip() if scheme.lower() == "bearer" else "")


def peer_of(context: Any) -> Peer:
    """What gRPC knows of the caller: "ipv4:127.0.0.1:40098", "ipv6:%5B::1%5D:40098" or "unix:"."""
    family, _, where = context.peer().partition(":")
    where = where.replace("%5B", "[").replace("%5D", "]").replace("%25", "%")
    address = "unix" if family == "unix" else where.rpartition(":")[0].strip("[]")
    headers = context.get_middleware(MIDDLEWARE)
    subject = subject_of_identity(context.peer_identity())
    return Peer(address, where if family != "unix" else "unix", subject, headers.token if headers else "")


def chosen(pick: Pick, caller: Caller, right: Right) -> Callable[[QueueName], bool] | None:
    """Which queues are meant, of those that the caller may see; None for all without exception.

    Raises Trouble for a queue that it may not, and for a pick that makes no sense.
    """
    if pick.queue and pick.pattern:
        raise trouble("bad-request", "a queue and a pattern can't both be given: leave one of them out")
    if pick.queue:
        wanted = queue_name(pick.queue)
        caller.demand(right, wanted)
        return lambda name: name == wanted
    caller.demand_somewhere(right)
    if len(pick.pattern) > MOST_CHARACTERS:
        raise trouble("bad-request", f"a pattern has {len(pick.pattern)} characters: at most {MOST_CHARACTERS}")
    if pick.pattern:
        return lambda name: fits_queue(pick.pattern, *name) and caller.may(right, name)
    return None if caller.may_everywhere(right) else lambda name: caller.may(right, name)


def queue_name(text: str) -> QueueName:
    """From namespace/queue. Raises Trouble."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise trouble("bad-request", f"a queue is named namespace/queue, as in default/jobs, not {text!r}")
    return QueueName(namespace, name)
