"""The caller and its rights. The broker evaluates the access rules; its answer is cached for a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import pyarrow.flight as fl
from typing_extensions import override

from penstock.companions.certificate_subjects import subject_of_identity
from penstock.companions.rights import Allowed, Right
from penstock.flight.calls import Pick, Problem
from penstock.flight.problems import UnknownToken, trouble
from penstock.journal.format.catalogue import QueueName
from penstock.patterns import MOST_CHARACTERS, fits_queue

#: Seconds for which the broker's answer is cached, so that not every call in a series of small ones asks the broker.
HOLDS = 5.0
#: Peers in the cache.
REMEMBERED = 1_000
#: Longer headers are ignored: no token is that long.
MOST_TOKEN = 4096

MIDDLEWARE = "access"


class Peer(NamedTuple):
    """The other end of a call."""

    address: str
    #: Such as "10.0.0.1:4711", for display.
    name: str
    subject: str
    token: str


class Caller(NamedTuple):
    """A peer and its rights."""

    peer: Peer
    allowed: Allowed

    @property
    def identity(self) -> str:
        """The owner of the readers and writers that it names; empty if there are no rules."""
        return self.allowed.identity

    @property
    def manages(self) -> str:
        """The identity whose readers and writers it may drop; empty means everyone's."""
        return "" if self.may_everywhere("administer") else self.identity

    def may_anything(self) -> bool:
        """Whether it has any right at all."""
        return self.allowed.may_anything()

    def may(self, right: Right, name: QueueName) -> bool:
        """Whether the rules grant this right on this queue."""
        return self.allowed.may(right, *name)

    def may_everywhere(self, right: Right) -> bool:
        """Whether the rules grant this right on all queues, including future ones."""
        return self.allowed.may_everywhere(right)

    def patterns(self, right: Right) -> list[str]:
        """Patterns of the queues on which the rules grant this right."""
        return self.allowed.patterns(right)

    def demand(self, right: Right, name: QueueName) -> None:
        """Raises Trouble unless the rules grant this right on this queue."""
        if not self.may(right, name):
            raise trouble("denied", f"the access rules do not let you {right} {name}")

    def demand_somewhere(self, right: Right) -> None:
        """Raises Trouble unless the rules grant this right on some queue."""
        self.demand_one_of(right)

    def demand_one_of(self, *rights: Right) -> None:
        """Raises Trouble unless the rules grant one of these rights on some queue."""
        if not any(map(self.allowed.may_somewhere, rights)):
            raise trouble("denied", f"the access rules do not let you {' or '.join(rights)} anything")


class Callers:
    """Identifies callers. ``ask`` sends ``rights.AskRights`` about a peer to the broker."""

    def __init__(self, ask: Callable[[Peer], Allowed], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = Lock()
        self._known: dict[tuple[str, str, str], tuple[float, Allowed]] = {}

    def caller(self, context: Any) -> Caller:
        """The caller of a call, which has at least one right.

        Raises Trouble if the peer has no right at all, shows an unknown token, or the broker is away.
        """
        peer = peer_of(context)
        allowed = self._allowed(peer)
        if allowed.unknown_token:
            raise UnknownToken(Problem(code="denied", text="the access rules do not know this token"))
        caller = Caller(peer, allowed)
        if not caller.may_anything():
            raise trouble("denied", "the access rules do not let you do anything")
        return caller

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
    """Holds the token of a call."""

    def __init__(self, token: str) -> None:
        self.token = token


class HeaderReader(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Extracts the token from the headers of each call."""

    @override
    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> _Headers:
        value = headers.get("authorization", [""])[0]
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        scheme, _, token = text[:MOST_TOKEN].partition(" ")
        return _Headers(token.strip() if scheme.lower() == "bearer" else "")


def peer_of(context: Any) -> Peer:
    """The peer as gRPC describes it: "ipv4:127.0.0.1:40098", "ipv6:%5B::1%5D:40098" or "unix:"."""
    family, _, where = context.peer().partition(":")
    where = where.replace("%5B", "[").replace("%5D", "]").replace("%25", "%")
    address = "unix" if family == "unix" else where.rpartition(":")[0].strip("[]")
    headers = context.get_middleware(MIDDLEWARE)
    subject = subject_of_identity(context.peer_identity())
    return Peer(address, where if family != "unix" else "unix", subject, headers.token if headers else "")


def queue_filter(pick: Pick, caller: Caller, right: Right) -> Callable[[QueueName], bool] | None:
    """A test for the selected queues, limited to those on which the caller has the right; None selects everything.

    Raises Trouble for a queue without the right, and for a contradictory pick.
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
    """Parse namespace/queue. Raises Trouble."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise trouble("bad-request", f"a queue is named namespace/queue, as in default/jobs, not {text!r}")
    return QueueName(namespace, name)
