"""Messages as they are published, received and settled."""

from __future__ import annotations

import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypedDict

from msgspec import Struct
from msgspec.structs import asdict

from penstock.client.errors import ClientError, Disconnected, NotHeld, TimedOut, Uncertain


class Details(TypedDict, total=False):
    """Optional properties of a message; see :class:`Outgoing`. docs/client.md lists them per protocol."""

    ttl: float
    priority: int
    delay: float
    expires_at: int
    retries: int
    correlation_id: bytes
    request_id: bytes
    id: str
    source_info: str


class Outgoing(Struct, frozen=True):
    """A message to publish.

    ``ttl`` is in seconds, rounded up to whole ones; 0 means it never expires. ``delay`` is in seconds, ``expires_at``
    Unix time. ``retries`` is how often SSPQ may deliver the message *again* after a lost connection; default 255, for
    ever. With a ``request_id`` (16 bytes) the broker detects duplicates. ``id`` (32 hex digits) asks for that ID.
    ``source_info`` replaces the publisher's address in ``Received.source``.
    """

    body: bytes
    ttl: float | None = None
    priority: int | None = None
    delay: float | None = None
    expires_at: int | None = None
    retries: int | None = None
    correlation_id: bytes | None = None
    request_id: bytes | None = None
    id: str | None = None
    source_info: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.body, bytes):  # publish("text") encodes text
            raise TypeError(f"the body of an Outgoing is bytes, not {type(self.body).__name__}: encode text first")

    @property
    def ttl_seconds(self) -> int | None:
        """Whole seconds, rounded up: a short life must not become 0, which never expires."""
        return None if self.ttl is None else math.ceil(self.ttl)


#: Names of the optional properties.
PROPERTIES = Outgoing.__struct_fields__[1:]


def outgoing(message: Outgoing | bytes | str, details: Details) -> Outgoing:
    """The message for an argument of ``publish``: a body (text is encoded as UTF-8) with details, or an Outgoing."""
    if isinstance(message, Outgoing):
        if details:
            raise TypeError(f"an Outgoing has its details inside: {', '.join(details)} would be ignored")
        return message
    if isinstance(message, str):
        message = message.encode()
    elif not isinstance(message, bytes):
        raise TypeError(f"a body is bytes or str, not {type(message).__name__}")
    return Outgoing(message, **details)


class Published(Struct, frozen=True):
    """The result of a publish.

    ``confirmed``: the broker answered that everything is on disk (Kokaq); ``ids`` then has each message's ID. PHPMQ and
    SSPQ do not answer a publish, so all that is known is that it was handed to the connection.
    """

    count: int
    confirmed: bool
    ids: tuple[str, ...] = ()

    @property
    def id(self) -> str | None:
        """The ID of the only message."""
        return self.ids[0] if len(self.ids) == 1 else None


class Received(Struct, frozen=True):
    """A message as it was delivered. Properties that the protocol does not carry are None (or 0).

    ``ttl`` is the remaining seconds; 0 never expires. ``retries`` is the number of SSPQ retries left. ``deliveries``
    counts earlier deliveries. ``locked_until`` is Unix time on the broker's clock.
    """

    body: bytes
    queue: str | None = None
    id: str | None = None
    ttl: int | None = None
    retries: int | None = None
    priority: int = 0
    deliveries: int | None = None
    correlation_id: bytes | None = None
    request_id: bytes | None = None
    created_at: int | None = None
    expires_at: int | None = None
    locked_until: int | None = None
    source: str | None = None
    dead_reason: str | None = None

    def __repr__(self) -> str:
        start = repr(self.body[:40]) + ("…" if len(self.body) > 40 else "")
        return f"<{type(self).__name__} {self.id or 'without ID'} from {self.queue or 'its queue'}: {start}>"

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()


class QueueInfo(Struct, frozen=True):
    """Kokaq's description of a queue. ``depth`` counts ready messages, ``lock`` is in seconds.

    ``limits`` is a text like "max_depth=1000 max_bytes=5000000 bytes=1234"; empty if the queue has none.
    """

    name: str
    depth: int | None = None
    created_at: int | None = None
    ttl: int | None = None
    lock: float | None = None
    max_deliveries: int | None = None
    limits: str = ""


class Action(Enum):
    """The ways to settle a message. The value is the resulting state."""

    ACK = "acknowledged"
    REQUEUE = "re-queued"
    REJECT = "rejected"
    RELEASE = "released"

    @property
    def ability(self) -> str:
        """The operation that the protocol must have."""
        return self.name.lower()


class Settler(ABC):
    """The connection that delivered a message."""

    @property
    @abstractmethod
    def failure(self) -> ClientError | None:
        """Why the connection ended, if it did."""

    @abstractmethod
    async def settle(self, hold: Hold, action: Action, ttl: float | None) -> None:
        """Settle at the broker. Raises :class:`Unsupported` if the protocol can't express the action."""

    @abstractmethod
    async def renew(self, hold: Hold, lock: float | None) -> None:
        """Extend the lock."""


class Hold:
    """The right to settle one message, once, on the connection that delivered it."""

    __slots__ = ("done", "key", "on_done", "queue", "settler", "stale_at")

    def __init__(self, settler: Settler, queue: str, key: bytes, on_done: Callable[[Hold], None] | None = None) -> None:
        self.settler = settler
        self.queue = queue
        self.key = key
        #: What was done with the message, or None.
        self.done: Action | None = None
        self.on_done = on_done
        #: When the lock expires, by our loop's clock.
        self.stale_at = math.inf

    async def settle(self, action: Action, ttl: float | None = None) -> None:
        """Settle the message; raises :class:`NotHeld` if that is no longer possible."""
        self._check()
        self.done = action  # set before awaiting, so that a concurrent second call is detected
        try:
            await self.settler.settle(self, action, ttl)
        except (Disconnected, TimedOut) as error:
            text = f"whether the message is {action.value} is unknown; it may be delivered again ({error})"
            raise Uncertain(text) from error
        except ClientError:
            self.done = None
            raise
        if self.on_done is not None:
            self.on_done(self)

    async def renew(self, lock: float | None) -> None:
        """Keep the message for longer."""
        self._check()
        await self.settler.renew(self, lock)

    def _check(self) -> None:
        if self.done is not None:
            raise NotHeld(f"the message was already {self.done.value}")
        if self.settler.failure is not None:
            text = "the connection that delivered the message is gone; the broker delivers it again"
            raise NotHeld(text) from self.settler.failure


class Delivery(NamedTuple):
    """A message and the right to settle it."""

    received: Received
    hold: Hold


class Message(Received, frozen=True):
    """A delivered message. Settle it with ``ack``, ``requeue``, ``reject`` or ``release``."""

    #: Internal.
    hold: Hold | None = None

    async def ack(self) -> None:
        """Done: the broker may delete the message. Kokaq confirms; with the others this only means that it was sent."""
        await self._hold.settle(Action.ACK)

    async def requeue(self, ttl: float = 0) -> None:
        """Move it to the end of its queue with a new time to live in seconds (0 never expires)."""
        await self._hold.settle(Action.REQUEUE, ttl)

    async def reject(self) -> None:
        """Move it to the queue's dead letters."""
        await self._hold.settle(Action.REJECT)

    async def release(self) -> None:
        """Return it to its place in the queue, for any consumer."""
        await self._hold.settle(Action.RELEASE)

    async def renew(self, lock: float | None = None) -> None:
        """Extend its lock to ``lock`` seconds from now (None: the queue's default)."""
        await self._hold.renew(lock)

    @property
    def _hold(self) -> Hold:
        assert self.hold is not None
        return self.hold


def message_of(delivery: Delivery) -> Message:
    """The asynchronous client's message for a delivery."""
    return Message(**asdict(delivery.received), hold=delivery.hold)


def new_request_id() -> bytes:
    """A unique request ID."""
    return uuid.uuid4().bytes
