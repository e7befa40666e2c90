"""What goes to a broker, and what comes back."""

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
    """What a message can have besides its body; see :class:`Outgoing`. Which protocol has what is in docs/client.md."""

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

    ``ttl`` is in seconds, rounded up to whole ones; 0 is never. ``delay`` is in seconds, ``expires_at`` Unix time.
    ``retries`` is how often SSPQ may give the message out *again* after a lost connection; 255 (for ever) unless said.
    ``request_id`` (16 bytes) makes the broker notice a repetition. ``id`` (32 hex digits) is an ID to ask for.
    ``source_info`` is what to tell consumers of the publisher, instead of its address: ``Received.source``.
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
        if not isinstance(self.body, bytes):  # text has its own way in: publish("text") encodes it
            raise TypeError(f"the body of an Outgoing is bytes, not {type(self.body).__name__}: encode text first")

    @property
    def ttl_seconds(self) -> int | None:
        """Whole seconds. Rounded up, as a short life must not become 0, which is for ever."""
        return None if self.ttl is None else math.ceil(self.ttl)


#: What a message can have besides its body.
PROPERTIES = Outgoing.__struct_fields__[1:]


def outgoing(message: Outgoing | bytes | str, details: Details) -> Outgoing:
    """A message from what ``publish`` takes: a body (text becomes UTF-8) with details, or a ready message."""
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
    """How a publish went.

    ``confirmed`` is true if the broker has said that all of it is on disk (Kokaq); ``ids`` then has each message's ID.
    PHPMQ and SSPQ have no answer to a publish: it was handed to the connection, and that is all one can know.
    """

    count: int
    confirmed: bool
    ids: tuple[str, ...] = ()

    @property
    def id(self) -> str | None:
        """The ID of the only message."""
        return self.ids[0] if len(self.ids) == 1 else None


class Received(Struct, frozen=True):
    """A message as the broker gave it. What the protocol does not tell is None (or 0).

    ``ttl`` is what remains, in seconds; 0 is for ever. ``retries`` is what SSPQ has left of them. ``deliveries`` counts
    how often it was given out before. ``locked_until`` is Unix time on the broker's clock.
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
    """What Kokaq tells about a queue. ``depth`` counts ready messages, ``lock`` is in seconds.

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
    """The ways to be done with a message. The value is what has then become of it."""

    ACK = "acknowledged"
    REQUEUE = "re-queued"
    REJECT = "rejected"
    RELEASE = "released"

    @property
    def ability(self) -> str:
        """The operation that a protocol must have for it."""
        return self.name.lower()


class Settler(ABC):
    """The connection that a message came over."""

    @property
    @abstractmethod
    def failure(self) -> ClientError | None:
        """Why the connection is over, if it is."""

    @abstractmethod
    async def settle(self, hold: Hold, action: Action, ttl: float | None) -> None:
        """Tell the broker. :class:`Unsupported` where the protocol has no such word."""

    @abstractmethod
    async def renew(self, hold: Hold, lock: float | None) -> None:
        """Tell the broker that we need the message for longer."""


class Hold:
    """The right to settle one message, once, on the connection that it came over."""

    __slots__ = ("done", "key", "on_done", "queue", "settler", "stale_at")

    def __init__(self, settler: Settler, queue: str, key: bytes, on_done: Callable[[Hold], None] | None = None) -> None:
        self.settler = settler
        self.queue = queue
        self.key = key
        #: What was done with the message, or None.
        self.done: Action | None = None
        self.on_done = on_done
        #: When the broker takes the message back, by our loop's clock.
        self.stale_at = math.inf

    async def settle(self, action: Action, ttl: float | None = None) -> None:
        """Settle the message; raises :class:`NotHeld` if that is no longer possible."""
        self._check()
        self.done = action  # at once, so that a second call that comes meanwhile is noticed
        try:
            await self.settler.settle(self, action, ttl)
        except (Disconnected, TimedOut) as error:
            text = f"whether the message is {action.value} is not known; it may be given out again ({error})"
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
            raise NotHeld(f"the message was {self.done.value} already")
        if self.settler.failure is not None:
            text = "the connection that the message came over is gone; the broker gives it out again"
            raise NotHeld(text) from self.settler.failure


class Delivery(NamedTuple):
    """A message and the right to settle it."""

    received: Received
    hold: Hold


class Message(Received, frozen=True):
    """A message to work on, and then to settle with one of the first four methods."""

    #: Not for callers.
    hold: Hold | None = None

    async def ack(self) -> None:
        """Done: the broker may forget the message. Kokaq answers; with the others this says only that it was sent."""
        await self._hold.settle(Action.ACK)

    async def requeue(self, ttl: float = 0) -> None:
        """To the end of its queue, with a new time to live in seconds (0 is for ever)."""
        await self._hold.settle(Action.REQUEUE, ttl)

    async def reject(self) -> None:
        """To the queue's dead letters."""
        await self._hold.settle(Action.REJECT)

    async def release(self) -> None:
        """Back to its old place in the queue, for anybody to take."""
        await self._hold.settle(Action.RELEASE)

    async def renew(self, lock: float | None = None) -> None:
        """Keep it locked for another ``lock`` seconds from now (None: as long as the queue's default)."""
        await self._hold.renew(lock)

    @property
    def _hold(self) -> Hold:
        assert self.hold is not None
        return self.hold


def message_of(delivery: Delivery) -> Message:
    """What the asynchronous client gives out."""
    return Message(**asdict(delivery.received), hold=delivery.hold)


def new_request_id() -> bytes:
    """A request ID that nobody else has."""
    return uuid.uuid4().bytes
