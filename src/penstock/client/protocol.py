"""A protocol as the client sees it: the part ``client`` of its registration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from penstock.protocols import ProtocolError, having, protocols

if TYPE_CHECKING:
    from penstock.client.options import ClientOptions
    from penstock.client.session import ClientSession
    from penstock.client.urls import Address

#: Operations that every protocol has.
COMMON = frozenset({"publish", "publish_many", "consume", "receive", "ack", "ack_many"})

#: Every operation, and every property of a message, that a protocol may support. docs/client.md describes them.
OPERATIONS = (
    *("publish", "publish_many", "confirmed publishing", "consume", "receive", "dead_letters", "ack", "ack_many"),
    *("requeue", "reject", "release", "renew", "lock", "pop", "peek", "get", "queue_info", "create_queue"),
    *("delete_queue", "create_namespace", "delete_namespace", "ping", "health", "counters", "queue", "ttl", "retries"),
    *("priority", "delay", "expires_at", "correlation_id", "request_id", "id", "source_info"),
    "payload over 65,535 bytes",
)


class Abilities(Struct, frozen=True):
    """The OPERATIONS that a protocol or dialect supports. ``title`` names it in errors."""

    title: str
    operations: frozenset[str]

    def __post_init__(self) -> None:
        if unknown := sorted(self.operations - set(OPERATIONS)):
            raise ProtocolError(f"{self.title} has no ability {unknown[0]!r}; there are {', '.join(OPERATIONS)}")


class ClientProtocol(Struct, frozen=True, kw_only=True):
    """How a client speaks a protocol."""

    #: Creates a session, not yet connected.
    session: Callable[[Address, ClientOptions], ClientSession]
    #: The default first, then those of dialects that support less.
    abilities: tuple[Abilities, ...]
    #: How a URL names a queue; "none" if the listener is bound to one.
    queue: Literal["none", "name", "namespace/name"] = "name"
    #: Query options of this protocol's URLs, in addition to the common ones.
    url_options: tuple[str, ...] = ()
    #: Turns these options into a value for the session (``Address.variant``) and its abilities. Raises BadURL.
    variant: Callable[[Mapping[str, str]], tuple[Any, Abilities]] | None = None
    #: Unsettled messages of ``penstock receive``: few where locks expire, 1 where the protocol allows no more.
    window: int = 256


def client_protocol(name: str) -> ClientProtocol:
    """The client's part of the protocol of this name. Raises ProtocolError if it has none."""
    found = protocols()[name].part("client")
    if not isinstance(found, ClientProtocol):
        raise ProtocolError(f"{protocols()[name].title}: {protocols()[name].client!r} is no ClientProtocol")
    return found


def who_can(operation: str) -> tuple[str, ...]:
    """Titles of the protocols that support an operation; of each, the first dialect that does."""
    found = []
    for protocol in having("client"):
        able = [each.title for each in client_protocol(protocol.name).abilities if operation in each.operations]
        found += able[:1]
    return tuple(found)
