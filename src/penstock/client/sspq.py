"""SSPQ: publish and forget; one message at a time; dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from typing_extensions import override

from penstock.client.abilities import require
from penstock.client.connection import Link
from penstock.client.errors import Busy, NoMessage, ProtocolProblem
from penstock.client.messages import Action, Delivery, Hold, Outgoing, Received
from penstock.client.options import ClientOptions
from penstock.client.protocol import COMMON, Abilities, ClientProtocol
from penstock.client.session import ClientSession, Inbox, MessageSource
from penstock.client.urls import Address
from penstock.wire import sspq
from penstock.wire.sspq import SspqFrame


class SspqClientSession(ClientSession):
    """One SSPQ connection.

    It is in one of four states: idle; a request is waiting (``_asked``); its message is in the inbox; the message was
    consumed and is unsettled (``_out``). The next request is sent when idle.
    """

    link: Link[SspqFrame]

    def __init__(self, address: Address, options: ClientOptions) -> None:
        super().__init__(address, options)
        self.link = Link(address, sspq.Decoder(options.max_message), self._take, self._lost)
        self.inbox = Inbox(self.link)
        self.consumed = False
        #: Whether the waiting request asks for dead letters; None if no request waits.
        self._asked: bool | None = None
        #: Whether the last message received is a dead letter.
        self._dead = False
        self._out: Hold | None = None
        self._refused = False

    @override
    def check(self, message: Outgoing) -> None:
        super().check(message)
        if message.retries is not None and not 0 <= message.retries <= sspq.FOREVER:
            raise ValueError(f"retries are 0 to 254, or 255 for no limit, not {message.retries}")

    @override
    async def publish(self, queue: str | None, messages: Sequence[Outgoing]) -> None:
        """The broker does not confirm it."""
        if queue is not None:
            require(self.abilities, "queue")
        runs = groupby(messages, lambda message: sspq.FOREVER if message.retries is None else message.retries)
        frames = [sspq.Send(retries, tuple(message.body for message in run)) for retries, run in runs]
        self.link.write(sspq.encode(frames))
        await self.link.drain(self.options.timeout)

    @override
    def _source(self, queue: str | None, window: int, lock: float | None, poll: float, dead: bool) -> MessageSource:
        """The window is always one message."""
        return SspqSource(self, dead)

    @override
    async def settle(self, hold: Hold, action: Action, ttl: float | None) -> None:
        """The broker does not confirm it."""
        require(self.abilities, action.ability)
        self.link.write(sspq.encode([sspq.Confirm()]))
        self._out = None
        self.inbox.wake()
        await self.link.drain(self.options.timeout, at_once=False)

    async def next(self, dead: bool) -> Delivery:
        """The next message, or dead letter."""
        while True:
            self.link.check()
            self._check_kind(dead)
            if (delivery := self.inbox.take()) is not None:
                return delivery
            if self._refused:
                self._refused = False
                raise self._no_message(dead)
            if self._asked is None and self._out is None:
                self.link.write(sspq.encode([sspq.DeadReceive() if dead else sspq.Receive()]))
                self._asked = dead
            await self.inbox.news()

    def _check_kind(self, dead: bool) -> None:
        """The broker still answers a cancelled request: that answer must not be mistaken for one of another kind."""
        earlier = self._asked if self._asked is not None else self._dead if len(self.inbox) else dead
        if earlier is not dead:
            kinds = ("a message", "a dead letter") if dead else ("a dead letter", "a message")
            raise Busy(f"this client is waiting for {kinds[0]} and can't request {kinds[1]}; use another client")

    def _no_message(self, dead: bool) -> NoMessage:
        reasons = "it is shutting down, or this client may not receive here"
        if dead:
            reasons = "dead letters are switched off, " + reasons
        error = NoMessage(f"{self.address}: the broker refuses to deliver (NO_RECEIVE): {reasons}")
        error.retriable = not dead
        return error

    def _take(self, frames: list[SspqFrame]) -> None:
        for frame in sspq.singles(frames):
            if isinstance(frame, sspq.Send):
                if self._asked is None:  # ignoring the message would lose it; ending the connection returns it
                    self.link.fail(ProtocolProblem(f"{self.address} sent a message without a request"))
                    return
                self._dead, self._asked = self._asked, None
                self._out = Hold(self, "", b"")
                self.inbox.put(Delivery(Received(frame.payloads[0], retries=frame.retries), self._out))
            elif isinstance(frame, sspq.NoReceive) and self._asked is not None:
                self._asked = None
                self._refused = True
                self.inbox.wake()

    def _lost(self) -> None:
        self.inbox.wake()


class SspqSource(MessageSource):
    """The one consumer of an SSPQ connection."""

    def __init__(self, session: SspqClientSession, dead: bool) -> None:
        if session.consumed:
            raise Busy("SSPQ delivers one message at a time per connection; use another client for a second consumer")
        session.consumed = True
        self._session = session
        self._dead = dead

    @override
    async def next(self) -> Delivery:
        return await self._session.next(self._dead)

    @override
    def close(self) -> None:
        """A request can't be withdrawn: its message waits for the next consumer."""
        self._session.consumed = False


CLIENT = ClientProtocol(
    session=SspqClientSession,
    abilities=(Abilities("SSPQ", COMMON | {"dead_letters", "retries", "payload over 65,535 bytes"}),),
    queue="none",
    window=1,
)
