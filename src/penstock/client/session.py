"""What the sessions of all protocols have in common. A session is one connection and what is known about it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.client.abilities import require
from penstock.client.connection import Link, open_link
from penstock.client.errors import ClientError
from penstock.client.messages import PROPERTIES, Delivery, Outgoing, Settler
from penstock.client.operations import Operations
from penstock.client.options import ClientOptions
from penstock.client.urls import Address


class Inbox:
    """Deliveries that have come and that nobody has taken yet, in order.

    Whoever waits in :meth:`get` may be cancelled at any time: a delivery is either returned or still here.
    """

    def __init__(self, link: Link[Any]) -> None:
        self._link = link
        self._ready: deque[Delivery] = deque()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, delivery: Delivery) -> None:
        """Add one at the end."""
        self._ready.append(delivery)
        self._news.set()

    def wake(self) -> None:
        """Let whoever waits look again: something has changed."""
        self._news.set()

    def take(self) -> Delivery | None:
        """The first one, if there is one."""
        return self._ready.popleft() if self._ready else None

    async def news(self) -> None:
        """Wait until something may have changed. Raises the reason if the connection is over."""
        self._link.check()
        self._news.clear()
        await self._news.wait()


class MessageSource(ABC):
    """Where one consumer's messages come from, on one connection."""

    @abstractmethod
    async def next(self) -> Delivery:
        """The next message, however long that takes. Safe to cancel: no message is lost by it."""

    @abstractmethod
    def close(self) -> None:
        """Ask for no more. At once and without waiting, so that it can be called from anywhere on the loop."""


class Sending(ABC):
    """Messages that were sent together and whose answers are awaited."""

    messages: Sequence[Outgoing]

    @abstractmethod
    async def outcomes(self) -> Sequence[str | ClientError | None]:
        """Each message's ID, or why it was refused, or None if the connection ended before its answer."""


class ClientSession(Operations, Settler):
    """One connection that speaks one protocol."""

    link: Link[Any]

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self.address = address
        self.options = options
        self.abilities = address.abilities

    def can(self, operation: str) -> bool:
        """Whether the protocol has this operation."""
        return operation in self.abilities.operations

    @property
    def failure(self) -> ClientError | None:
        """Why the connection is over, if it is."""
        return self.link.failure

    async def open(self) -> None:
        """Connect."""
        await open_link(self.link, self.options)

    async def close(self) -> None:
        """Send what is left, and end the connection."""
        await self.link.close()

    def check(self, message: Outgoing) -> None:
        """Raise :class:`Unsupported` or ``ValueError`` for a message that the protocol can't carry."""
        for name in PROPERTIES:
            if getattr(message, name) is not None:
                require(self.abilities, name)

    @abstractmethod
    async def publish(self, queue: str | None, messages: Sequence[Outgoing]) -> Sending | None:
        """Send checked messages, waiting for room to do so. None means that no answer will ever come."""

    def source(self, queue: str | None, *, window: int, lock: float | None, poll: float, dead: bool) -> MessageSource:
        """Begin to consume, if the protocol can do it like this."""
        asked = {"queue": queue is not None, "dead_letters": dead, "lock": lock is not None}
        for operation in [name for name, given in asked.items() if given]:
            require(self.abilities, operation)
        return self._source(queue, window, lock, poll, dead)

    @abstractmethod
    def _source(self, queue: str | None, window: int, lock: float | None, poll: float, dead: bool) -> MessageSource:
        """Begin to consume. What the protocol has no ability for is not asked."""

    def name(self, queue: str | None) -> str:
        """The queue that is meant: the call's own, else the URL's."""
        name = queue if queue is not None else self.address.queue
        if name is None:
            raise ValueError(f"which queue? Name it in the call, or in the URL ({self.address})")
        return name
