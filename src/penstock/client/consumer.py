"""Consuming, across connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType

from msgspec import Struct

from penstock.client.errors import Disconnected, NoMessage, Refused, TimedOut
from penstock.client.messages import Delivery, Message, message_of
from penstock.client.session import ClientSession, MessageSource


class ConsumerRequest(Struct, frozen=True, kw_only=True):
    """What a consumer was asked for."""

    queue: str | None
    window: int
    lock: float | None
    poll: float
    dead: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 65_535:
            raise ValueError(f"a window has room for 1 to 65,535 messages, not {self.window}")


class DeliveryStream:
    """What comes from a queue, on this connection and, if the client returns after a loss, on those after it."""

    def __init__(
        self,
        session: Callable[[], Awaitable[ClientSession]],
        wanted: ConsumerRequest,
        *,
        returns: bool,
        idle: float | None = None,
    ) -> None:
        self._session = session
        self._wanted = wanted
        self._returns = returns
        self._idle = idle
        self._source: MessageSource | None = None
        self._on: ClientSession | None = None
        self._told_none = False

    async def next(self) -> Delivery | None:
        """The next delivery, or None if none came within the idle time. Safe to cancel."""
        try:
            async with asyncio.timeout(self._idle):
                while (delivery := await self._try()) is None:
                    pass
        except TimeoutError:
            return None
        self._told_none = False
        return delivery

    def close(self) -> None:
        """Ask for no more."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    async def _try(self) -> Delivery | None:
        """The next delivery on the present connection; None if it was lost, and the next one is worth a try."""
        try:
            if self._source is None or self._on is None or self._on.failure is not None:
                await self._begin()
            assert self._source is not None
            return await self._source.next()
        except (Disconnected, TimedOut):
            if not self._returns:
                raise
        except (NoMessage, Refused) as error:
            # A broker that shuts down says so once; one that says it again, to a new connection, has another reason.
            if not (self._returns and error.retriable) or self._told_none:
                raise
            self._told_none = True
            assert self._on is not None
            await self._on.close()
        return None

    async def _begin(self) -> None:
        """Ask the present connection for messages."""
        self.close()
        wanted = self._wanted
        self._on = await self._session()
        self._source = self._on.source(
            wanted.queue, window=wanted.window, lock=wanted.lock, poll=wanted.poll, dead=wanted.dead
        )


class Consumer(AsyncIterator[Message]):
    """Messages, as they come. Iterate over it; leaving the loop is enough to end it, ``async with`` says it aloud.

    Messages that the broker had already sent when it ended are given to the next consumer of the same queue and
    client (PHPMQ, SSPQ) or back to the broker (Kokaq). Closing the client gives everything back.
    """

    def __init__(self, deliveries: DeliveryStream) -> None:
        self._deliveries = deliveries

    async def __anext__(self) -> Message:
        delivery = await self._deliveries.next()
        if delivery is None:
            self.close()
            raise StopAsyncIteration
        return message_of(delivery)

    def close(self) -> None:
        """Ask for no more messages. Those given out can still be settled."""
        self._deliveries.close()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
