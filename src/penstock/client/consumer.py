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
    """Deliveries of one queue, over this connection and, if the client reconnects, the following ones."""

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
        """The next delivery on the current connection; None if it was lost and reconnecting may help."""
        try:
            if self._source is None or self._on is None or self._on.failure is not None:
                await self._begin()
            assert self._source is not None
            return await self._source.next()
        except (Disconnected, TimedOut):
            if not self._returns:
                raise
        except (NoMessage, Refused) as error:
            # A broker that shuts down refuses once. If it refuses a new connection too, it has another reason.
            if not (self._returns and error.retriable) or self._told_none:
                raise
            self._told_none = True
            assert self._on is not None
            await self._on.close()
        return None

    async def _begin(self) -> None:
        """Start consuming on the current connection."""
        self.close()
        wanted = self._wanted
        self._on = await self._session()
        self._source = self._on.source(
            wanted.queue, window=wanted.window, lock=wanted.lock, poll=wanted.poll, dead=wanted.dead
        )


class Consumer(AsyncIterator[Message]):
    """An iterator over messages. Leaving the loop ends it; ``async with`` makes that explicit.

    Messages that the broker had already sent go to the next consumer of the same queue and client (PHPMQ, SSPQ) or
    back to the broker (Kokaq). Closing the client returns everything.
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
        """Stop consuming. Messages already received can still be settled."""
        self._deliveries.close()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
