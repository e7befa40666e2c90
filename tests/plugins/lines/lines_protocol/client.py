"""How a client speaks Lines. Imports nothing of Penstock but ``penstock.client`` and ``penstock.wire``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from lines_protocol.codec import Decoder, Line, encode
from penstock.client.abilities import require
from penstock.client.connection import Link
from penstock.client.errors import ClientError
from penstock.client.messages import Action, Delivery, Hold, Outgoing, Received
from penstock.client.options import ClientOptions
from penstock.client.protocol import COMMON, Abilities, ClientProtocol
from penstock.client.session import ClientSession, Inbox, MessageSource, Sending
from penstock.client.urls import Address


class LinesClientSession(ClientSession):
    """One connection. Answers arrive in the order of the requests."""

    link: Link[Line]

    def __init__(self, address: Address, options: ClientOptions) -> None:
        super().__init__(address, options)
        self.link = Link(address, Decoder(options.max_message), self._take, self._lost)
        self.inbox = Inbox(self.link)
        self._asked: deque[asyncio.Future[str | None]] = deque()

    @override
    async def publish(self, queue: str | None, messages: Sequence[Outgoing]) -> Sending:
        name = self.name(queue)
        answers = [self._ask(Line("PUT", name, message.body)) for message in messages]
        return LinesSending(self, messages, answers)

    @override
    async def ping(self) -> None:
        async with self.link.limit(self.options.timeout, "answer"):
            await self._ask(Line("PING"))
        self.link.check()

    @override
    async def settle(self, hold: Hold, action: Action, ttl: float | None) -> None:
        require(self.abilities, action.ability)
        self.write(Line("ACK"))
        self.inbox.wake()
        await self.link.drain(self.options.timeout)

    def write(self, line: Line) -> None:
        """Send a line."""
        self.link.write(encode([line]))

    @override
    def _source(self, queue: str | None, window: int, lock: float | None, poll: float, dead: bool) -> MessageSource:
        return LinesSource(self, self.name(queue))

    def _ask(self, line: Line) -> asyncio.Future[str | None]:
        self.write(line)
        self._asked.append(asyncio.get_running_loop().create_future())
        return self._asked[-1]

    def _take(self, lines: list[Line]) -> None:
        for line in lines:
            if line.verb == "MSG":
                self.inbox.put(Delivery(Received(line.body, line.queue), Hold(self, line.queue, b"")))
            elif not self._asked[0].done():
                self._asked.popleft().set_result(line.body.decode())

    def _lost(self) -> None:
        self.inbox.wake()
        for answer in self._asked:
            if not answer.done():
                answer.set_result(None)


class LinesSending(Sending):
    """Messages whose OK is awaited."""

    def __init__(
        self, session: LinesClientSession, messages: Sequence[Outgoing], answers: list[asyncio.Future[str | None]]
    ) -> None:
        self.messages = messages
        self._session = session
        self._answers = answers

    @override
    async def outcomes(self) -> Sequence[str | ClientError | None]:
        async with self._session.link.limit(self._session.options.timeout, "answer"):
            return await asyncio.gather(*self._answers)


class LinesSource(MessageSource):
    """One message at a time."""

    def __init__(self, session: LinesClientSession, queue: str) -> None:
        self._session = session
        self._queue = queue
        self._hold: Any = None

    @override
    async def next(self) -> Delivery:
        while (delivery := self._session.inbox.take()) is None:
            if self._hold is None or self._hold.done is not None:
                self._session.write(Line("GET", self._queue))
                self._hold = Hold(self._session, self._queue, b"")
            await self._session.inbox.news()
        self._hold = delivery.hold
        return delivery

    @override
    def close(self) -> None:
        """Leave a requested message in the inbox for the next consumer."""


ABILITIES = Abilities("Lines", COMMON | {"confirmed publishing", "ping", "queue", "payload over 65,535 bytes"})
CLIENT = ClientProtocol(session=LinesClientSession, abilities=(ABILITIES,), window=1)
