"""What each protocol can say. One table: the code asks it, and docs/client.md shows it."""

from __future__ import annotations

from penstock.client.errors import Unsupported

PHPMQ = "PHPMQ"
#: The two older dialects, which have no TTL and nothing that came with it.
PHPMQ_PLAIN = "PHPMQ (dialects 32 and 36)"
SSPQ = "SSPQ"
KOKAQ = "Kokaq"

_EVERYBODY = (PHPMQ, PHPMQ_PLAIN, SSPQ, KOKAQ)

#: Who has which operation, and who can send which property of a message.
WHO_CAN: dict[str, tuple[str, ...]] = {
    "publish": _EVERYBODY,
    "publish_many": _EVERYBODY,
    "confirmed publishing": (KOKAQ,),
    "consume": _EVERYBODY,
    "receive": _EVERYBODY,
    "dead_letters": (SSPQ,),
    "ack": _EVERYBODY,
    "ack_many": _EVERYBODY,
    "requeue": (PHPMQ,),
    "reject": (PHPMQ,),
    "release": (KOKAQ,),
    "renew": (KOKAQ,),
    "lock": (KOKAQ,),
    "pop": (KOKAQ,),
    "peek": (KOKAQ,),
    "get": (KOKAQ,),
    "queue_info": (KOKAQ,),
    "create_queue": (KOKAQ,),
    "delete_queue": (KOKAQ,),
    "create_namespace": (KOKAQ,),
    "delete_namespace": (KOKAQ,),
    "ping": (KOKAQ,),
    "health": (KOKAQ,),
    "counters": (KOKAQ,),
    "queue": (PHPMQ, PHPMQ_PLAIN, KOKAQ),
    "ttl": (PHPMQ, KOKAQ),
    "retries": (SSPQ,),
    "priority": (KOKAQ,),
    "delay": (KOKAQ,),
    "expires_at": (KOKAQ,),
    "correlation_id": (KOKAQ,),
    "request_id": (KOKAQ,),
    "id": (KOKAQ,),
    "source_info": (KOKAQ,),
    "payload over 65,535 bytes": (PHPMQ, PHPMQ_PLAIN, SSPQ),
}


def unsupported(protocol: str, operation: str) -> Unsupported:
    """The error that says that ``protocol`` has no ``operation``, and who has it."""
    instead = tuple(who for who in WHO_CAN[operation] if who is not PHPMQ_PLAIN or PHPMQ not in WHO_CAN[operation])
    error = Unsupported(f"{protocol} can't express {operation!r}; {' and '.join(instead)} can")
    error.protocol, error.operation, error.instead = protocol, operation, instead
    return error


def require(protocol: str, operation: str) -> None:
    """Raise :class:`Unsupported` unless the protocol has the operation."""
    if protocol not in WHO_CAN[operation]:
        raise unsupported(protocol, operation)
