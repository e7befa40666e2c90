"""What the sessions of the three protocols have in common. A session is one connection and what is known about it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.client.abilities import require, unsupported
from penstock.client.connection import Link, open_link
from penstock.client.errors import ClientError
from penstock.client.messages import PROPERTIES, Delivery, Hold, Keeper, Outgoing
from penstock.client.options import Options
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


class Source(ABC):
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
    async def landed(self) -> Sequence[str | ClientError | None]:
        """Each message's ID, or why it was refused, or None if the connection ended before its answer."""


class Session(Keeper):
    """One connection that speaks one protocol."""

    #: As in :mod:`penstock.client.abilities`; also the protocol's name in errors.
    protocol: str
    link: Link[Any]

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options

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
                require(self.protocol, name)

    @abstractmethod
    async def publish(self, queue: str | None, messages: Sequence[Outgoing]) -> Sending | None:
        """Send checked messages, waiting for room to do so. None means that no answer will ever come."""

    @abstractmethod
    def source(self, queue: str | None, *, window: int, lock: float | None, poll: float, dead: bool) -> Source:
        """Begin to consume."""

    async def renew(self, hold: Hold, lock: float | None) -> None:
        """Only Kokaq has this."""
        raise unsupported(self.protocol, "renew")

    def name(self, queue: str | None) -> str:
        """The queue that is meant: the call's own, else the URL's."""
        name = queue if queue is not None else self.address.queue
        if name is None:
            raise ValueError(f"which queue? Name it in the call, or in the URL ({self.address})")
        return name
