"""The base of all sessions. A session is one connection of one protocol."""

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
    """Deliveries that were received and not yet consumed, in order.

    Waiting in :meth:`news` may be cancelled at any time: a delivery is either returned or still here.
    """

    def __init__(self, link: Link[Any]) -> None:
        self._link = link
        self._ready: deque[Delivery] = deque()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def put(self, delivery: Delivery) -> None:
        """Append a delivery."""
        self._ready.append(delivery)
        self._news.set()

    def wake(self) -> None:
        """Wake the waiting consumer."""
        self._news.set()

    def take(self) -> Delivery | None:
        """Remove and return the first, or None."""
        return self._ready.popleft() if self._ready else None

    async def news(self) -> None:
        """Wait until something may have changed. Raises the reason if the connection ended."""
        self._link.check()
        self._news.clear()
        await self._news.wait()


class MessageSource(ABC):
    """One consumer's messages on one connection."""

    @abstractmethod
    async def next(self) -> Delivery:
        """Wait for the next message. Cancelling loses no message."""

    @abstractmethod
    def close(self) -> None:
        """Stop consuming. Does not wait, so that it can be called from anywhere on the loop."""


class Sending(ABC):
    """Messages that were sent together and await their answers."""

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
        """Whether the protocol supports this operation."""
        return operation in self.abilities.operations

    @property
    def failure(self) -> ClientError | None:
        """Why the connection ended, if it did."""
        return self.link.failure

    async def open(self) -> None:
        """Connect."""
        await open_link(self.link, self.options)

    async def close(self) -> None:
        """Flush and close the connection."""
        await self.link.close()

    def check(self, message: Outgoing) -> None:
        """Raise :class:`Unsupported` or ``ValueError`` for a message that the protocol can't carry."""
        for name in PROPERTIES:
            if getattr(message, name) is not None:
                require(self.abilities, name)

    @abstractmethod
    async def publish(self, queue: str | None, messages: Sequence[Outgoing]) -> Sending | None:
        """Send checked messages, waiting for room. None: the protocol does not answer."""

    def source(self, queue: str | None, *, window: int, lock: float | None, poll: float, dead: bool) -> MessageSource:
        """Start consuming. Raises Unsupported if the protocol can't."""
        needed = {"queue": queue is not None, "dead_letters": dead, "lock": lock is not None}
        for operation in [name for name, given in needed.items() if given]:
            require(self.abilities, operation)
        return self._source(queue, window, lock, poll, dead)

    @abstractmethod
    def _source(self, queue: str | None, window: int, lock: float | None, poll: float, dead: bool) -> MessageSource:
        """Start consuming. Arguments that the protocol does not support have their defaults."""

    def name(self, queue: str | None) -> str:
        """The call's queue, else the URL's. Raises ValueError if there is neither."""
        name = queue if queue is not None else self.address.queue
        if name is None:
            raise ValueError(f"which queue? Name it in the call, or in the URL ({self.address})")
        return name
