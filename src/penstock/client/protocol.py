"""What a client must know of a protocol, in one value; the table of protocols names it as the part ``client``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from penstock.protocols import ProtocolError, having, protocols

if TYPE_CHECKING:
    from penstock.client.options import ClientOptions
    from penstock.client.session import ClientSession
    from penstock.client.urls import Address

#: What every protocol can do.
COMMON = frozenset({"publish", "publish_many", "consume", "receive", "ack", "ack_many"})

#: Every operation that a protocol may have, and every property of a message that it may send. docs/client.md has them.
OPERATIONS = (
    *("publish", "publish_many", "confirmed publishing", "consume", "receive", "dead_letters", "ack", "ack_many"),
    *("requeue", "reject", "release", "renew", "lock", "pop", "peek", "get", "queue_info", "create_queue"),
    *("delete_queue", "create_namespace", "delete_namespace", "ping", "health", "counters", "queue", "ttl", "retries"),
    *("priority", "delay", "expires_at", "correlation_id", "request_id", "id", "source_info"),
    "payload over 65,535 bytes",
)


class Abilities(Struct, frozen=True):
    """Which of the OPERATIONS a protocol, or a dialect of it, has. ``title`` is its name in errors."""

    title: str
    operations: frozenset[str]

    def __post_init__(self) -> None:
        if unknown := sorted(self.operations - set(OPERATIONS)):
            raise ProtocolError(f"{self.title} has no ability {unknown[0]!r}; there are {', '.join(OPERATIONS)}")


class ClientProtocol(Struct, frozen=True, kw_only=True):
    """How a client speaks a protocol."""

    #: Makes a connection.
    session: Callable[[Address, ClientOptions], ClientSession]
    #: The usual ones first; then those of dialects that can do less.
    abilities: tuple[Abilities, ...]
    #: How a URL names a queue: not at all, since the listener has one, by a name, or by namespace/name.
    queue: Literal["none", "name", "namespace/name"] = "name"
    #: ClientOptions that a URL of this protocol may have, besides those of all.
    url_options: tuple[str, ...] = ()
    #: What these options come to: a value for the session (``Address.variant``), and the abilities that go with it.
    #: Raises BadURL. Without it: no value, and the usual abilities.
    variant: Callable[[Mapping[str, str]], tuple[Any, Abilities]] | None = None
    #: Messages that ``penstock receive`` has unsettled at a time: few where locks run out, 1 where there are no more.
    window: int = 256


def client_protocol(name: str) -> ClientProtocol:
    """How to speak the protocol of this name. Raises ProtocolError if clients can't."""
    found = protocols()[name].part("client")
    if not isinstance(found, ClientProtocol):
        raise ProtocolError(f"{protocols()[name].title}: {protocols()[name].client!r} is no ClientProtocol")
    return found


def who_can(operation: str) -> tuple[str, ...]:
    """Which protocols have an operation, or the first of their dialects that has it."""
    found = []
    for protocol in having("client"):
        able = [each.title for each in client_protocol(protocol.name).abilities if operation in each.operations]
        found += able[:1]
    return tuple(found)
