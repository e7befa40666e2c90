"""The asynchronous client.

::

    async with aio.connect("phpmq://127.0.0.1:9100/jobs") as client:
        await client.publish(b"hello")
        async for message in client.consume():
            print(message.text)
            await message.ack()
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Unpack

from penstock.client.abilities import require
from penstock.client.close_reasons import PATIENCE, Unconfirmed, asked, over_limit, reasons, unheard
from penstock.client.consumer import Consumer, ConsumerRequest, DeliveryStream
from penstock.client.errors import ClientError, Closed, ConnectFailed
from penstock.client.hosts import first_serving
from penstock.client.messages import (
    Action,
    Delivery,
    Details,
    Hold,
    Message,
    Outgoing,
    Published,
    QueueInfo,
    Received,
    message_of,
    outgoing,
)
from penstock.client.options import ClientOptions, ClientSettings, Reconnect
from penstock.client.protocol import client_protocol
from penstock.client.publisher import Batcher, Publisher, in_batches
from penstock.client.session import ClientSession
from penstock.client.urls import Address, parse

__all__ = ["AsyncClient", "Consumer", "Message", "connect"]

log = logging.getLogger(__name__)

#: How many unsettled messages a consumer has at most unless told otherwise.
DEFAULT_WINDOW = 32
#: The longest pause between two questions to an empty Kokaq queue, in seconds, unless told otherwise.
DEFAULT_POLL = 1.0


class Connecting:
    """What :func:`connect` returns: await it for a client, or use it in ``async with``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def __await__(self) -> Generator[object, None, AsyncClient]:
        return self._client._open().__await__()

    async def __aenter__(self) -> AsyncClient:
        return await self._client._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()


def connect(url: str, **settings: Unpack[ClientSettings]) -> Connecting:
    """A client, once it is awaited or used in ``async with``.

    The options are those of :class:`~penstock.client.options.ClientOptions`. The first connection is tried once, also
    with ``reconnect``: an address that is wrong should not look like one that is slow. Of several hosts each is tried,
    and with ``reconnect`` again for ``connect_timeout`` seconds: none serves while one of them takes over.
    """
    return Connecting(AsyncClient(*parse(url, settings)))


class AsyncClient:
    """One connection to a broker. Made by :func:`connect`. For one event loop; any number of tasks may use it.

    Of several hosts it is the one that serves, and after a loss the one that serves then. What the protocol of the URL
    can't express raises :class:`~penstock.client.errors.Unsupported`, before anything is sent. ``queue`` may be left
    out where the URL names one.
    """

    def __init__(self, addresses: Sequence[Address], options: ClientOptions) -> None:
        #: All that the URL names, and the one that was connected to last.
        self.addresses = tuple(addresses)
        self.address = addresses[0]
        self.options = options
        self._current: ClientSession | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._parted = False
        self._sent = Unconfirmed()

    @property
    def protocol(self) -> str:
        """Its name, as in "PHPMQ"."""
        return self.address.protocol

    def can(self, operation: str) -> bool:
        """Whether the protocol has an operation, or a property of messages: see docs/client.md."""
        return operation in self.address.abilities.operations

    async def publish(
        self, message: Outgoing | bytes | str, *, queue: str | None = None, **details: Unpack[Details]
    ) -> Published:
        """Publish one message. Kokaq: returns when it is on the broker's disk. The others: when it was sent."""
        publisher = self._publisher(queue)
        await publisher.add([outgoing(message, details)])
        return await publisher.finish()

    async def publish_many(
        self,
        messages: Iterable[Outgoing | bytes | str] | AsyncIterable[Outgoing | bytes | str],
        *,
        queue: str | None = None,
        **details: Unpack[Details],
    ) -> Published:
        """Publish any number of messages, pipelined. The iterator is read only as fast as the broker takes them.

        Ends at the first message that is refused or in doubt; the error says which they are, what went before, and
        what was taken from the iterator and not sent.
        """
        publisher = self._publisher(queue)
        if isinstance(messages, AsyncIterable):
            batcher = Batcher(details)
            async for message in messages:
                if (batch := batcher.add(message)) is not None:
                    await publisher.add(batch)
            await publisher.add(batcher.rest())
        else:
            for batch in in_batches(messages, details):
                await publisher.add(batch)
        return await publisher.finish()

    def consume(
        self,
        queue: str | None = None,
        *,
        window: int = DEFAULT_WINDOW,
        idle: float | None = None,
        lock: float | None = None,
        poll: float = DEFAULT_POLL,
    ) -> Consumer:
        """The queue's messages, as they come: ``async for message in client.consume()``.

        At most ``window`` of them are unsettled at a time (SSPQ: always one); more come as they are settled. ``idle``
        ends the loop when none has come for so many seconds. For Kokaq, ``lock`` is how long each message is ours, in
        seconds (else as the queue is set up), and ``poll`` the longest pause between two looks at an empty queue.
        """
        wanted = ConsumerRequest(queue=queue, window=window, lock=lock, poll=poll)
        return Consumer(self._deliveries(wanted, idle))

    def dead_letters(self, *, idle: float | None = None) -> Consumer:
        """SSPQ: the dead letters of the queue, as they come. An acknowledged one is gone for good."""
        return Consumer(self._dead(idle))

    async def receive(
        self, queue: str | None = None, *, timeout: float | None = None, lock: float | None = None
    ) -> Message | None:
        """One message; None if none came within ``timeout`` seconds."""
        delivery = await self._one(queue, timeout, lock)
        return None if delivery is None else message_of(delivery)

    async def ack_many(self, messages: Iterable[Message]) -> None:
        """Acknowledge several messages: with Kokaq one wait for all answers, not one each.

        Every one is tried; after that the first error, if there was one, is raised.
        """
        await self._ack_all([message._hold for message in messages])

    async def lock(self, queue: str | None = None, *, lock: float | None = None) -> Message | None:
        """Kokaq: the head of the queue, locked for ``lock`` seconds; None if there is nothing now."""
        delivery = await self._locked(queue, lock)
        return None if delivery is None else message_of(delivery)

    async def pop(self, queue: str | None = None) -> Received | None:
        """Kokaq: take the head of the queue for good; None if there is nothing now. At most once: see Uncertain."""
        return await (await self._able("pop")).pop(queue)

    async def peek(self, queue: str | None = None) -> Received | None:
        """Kokaq: the message that would come next, left where it is; None if there is nothing now."""
        return await (await self._able("peek")).peek(queue)

    async def get(self, message_id: str, queue: str | None = None) -> Received | None:
        """Kokaq: the message with this ID, wherever it is in its queue; None if there is none."""
        return await (await self._able("get")).get(message_id, queue)

    async def queue_info(self, queue: str | None = None) -> QueueInfo:
        """Kokaq: what the broker tells about a queue."""
        return await (await self._able("queue_info")).queue_info(queue)

    async def create_queue(
        self,
        queue: str | None = None,
        *,
        ttl: int | None = None,
        lock: float | None = None,
        max_deliveries: int | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Kokaq: create a queue, with these as its defaults. False if it was there already and that is ``exist_ok``."""
        session = await self._able("create_queue")
        return await session.create_queue(queue, ttl=ttl, lock=lock, max_deliveries=max_deliveries, exist_ok=exist_ok)

    async def create_namespace(self, namespace: str, *, exist_ok: bool = False) -> bool:
        """Kokaq: create a namespace. False if it was there already and that is ``exist_ok``."""
        return await (await self._able("create_namespace")).create_namespace(namespace, exist_ok=exist_ok)

    async def delete_queue(self, queue: str | None = None) -> None:
        """Kokaq: delete a queue. Refused ("not_allowed") unless it is empty."""
        await (await self._able("delete_queue")).delete_queue(queue)

    async def delete_namespace(self, namespace: str) -> None:
        """Kokaq: delete a namespace. Refused ("not_allowed") unless it is empty."""
        await (await self._able("delete_namespace")).delete_namespace(namespace)

    async def ping(self) -> None:
        """Kokaq: ask for a sign of life, and wait for it."""
        await (await self._able("ping")).ping()

    async def health(self) -> str | None:
        """Kokaq: what ails the broker; None if it is well."""
        return await (await self._able("health")).health()

    async def counters(self) -> dict[str, int | str]:
        """Kokaq: the broker's own counters: whatever fields it sends, by their names (docs/protocols/kokaq.md)."""
        return await (await self._able("counters")).counters()

    def check(self) -> None:
        """Raise the reason why the connection is over, if it is. A look, not a question to the broker."""
        if self._current is None:
            raise Closed(f"{self.address}: the client is closed")
        self._current.link.check()

    async def close(self) -> None:
        """Send what is left and end the connection. What was not settled goes back to its queue."""
        self._closed = True
        session, self._current = self._current, None
        if session is not None:
            await session.close()
            self._parted = session.link.parted
            if self._sent.count and not self._sent.told:
                await self._tell()

    async def _tell(self) -> None:
        """Nobody has been told of a doubt so far, and there is no call left to raise it."""
        if not self._parted:
            why = await self.why_closed()
            log.warning("%s: whether all that was published was taken is not known: %s", self.address, why)
        elif found := await self.refusal():
            log.warning("%s: refused: %s", self.address, found)

    async def why_closed(self) -> str:
        """What can be known of why the broker has closed a connection over which was published.

        Protocols that do not confirm refuse a message in no other way. With the option ``ask`` the broker is asked.
        """
        told = reasons(self._sent)
        if self.options.ask is None:
            return told
        try:
            async with asyncio.timeout(PATIENCE), connect(self.options.ask) as other:
                found = await asked(other, self._sent)
        except (ClientError, TimeoutError) as error:
            return f"{told} ({unheard(error)})"
        return f"asked over {other.protocol}: {found}" if found else f"{told} (asked over {other.protocol}, it is well)"

    async def refusal(self) -> str:
        """Which of the messages that were published the broker can't have taken, as far as asking it tells; else empty.

        A close in order does not tell: a broker may end a connection that way because it refuses what came over it.
        """
        if self.options.ask is None or not self._sent.count:
            return ""
        try:
            async with asyncio.timeout(PATIENCE), connect(self.options.ask) as other:
                return await over_limit(other, self._sent)
        except (ClientError, TimeoutError):
            return ""

    @property
    def parted(self) -> bool:
        """Whether the client was closed, and the broker then ended the connection in order and in time.

        Without it, what PHPMQ and SSPQ were given last may not have been read.
        """
        return self._parted

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What the synchronous client needs as well.

    def _publisher(self, queue: str | None) -> Publisher:
        return Publisher(self._session, queue, self.options, self._sent, self.why_closed)

    def _deliveries(self, wanted: ConsumerRequest, idle: float | None) -> DeliveryStream:
        return DeliveryStream(self._session, wanted, returns=self.options.returning is not None, idle=idle)

    def _dead(self, idle: float | None) -> DeliveryStream:
        require(self.address.abilities, "dead_letters")
        return self._deliveries(ConsumerRequest(queue=None, window=1, lock=None, poll=DEFAULT_POLL, dead=True), idle)

    async def _one(self, queue: str | None, timeout: float | None, lock: float | None) -> Delivery | None:
        deliveries = self._deliveries(ConsumerRequest(queue=queue, window=1, lock=lock, poll=DEFAULT_POLL), timeout)
        try:
            return await deliveries.next()
        finally:
            deliveries.close()

    async def _ack_all(self, holds: list[Hold]) -> None:
        outcomes = await asyncio.gather(*(hold.settle(Action.ACK) for hold in holds), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _locked(self, queue: str | None, lock: float | None) -> Delivery | None:
        return await (await self._able("lock")).acquire(queue, lock)

    # The connection.

    async def _open(self) -> AsyncClient:
        if self._current is None:
            returning = self.options.returning if len(self.addresses) > 1 else None
            if returning is None:
                self._current = await self._connected()
            else:  # none of them serves while one takes over
                self._current = await self._return(returning, self.options.connect_timeout)
        return self

    async def _connected(self) -> ClientSession:
        """A connection to the host that serves. After a loss, the one that was lost is tried last."""
        lost = self.addresses.index(self.address) + 1 if self._current is not None else 0
        session = await first_serving((*self.addresses[lost:], *self.addresses[:lost]), self._connected_to)
        self.address = session.address
        return session

    async def _connected_to(self, address: Address) -> ClientSession:
        session = client_protocol(address.scheme).session(address, self.options)
        await session.open()
        return session

    async def _session(self) -> ClientSession:
        """The present connection, or the next one if it was lost and the client is to return."""
        async with self._connecting:
            if self._closed or self._current is None:
                raise Closed(f"{self.address}: the client is closed")
            if self._current.failure is not None:
                returning = self.options.returning
                if returning is None:
                    self._current.link.check()
                    raise AssertionError
                session = await self._return(returning)
                if self._closed:  # meanwhile, when there was no connection to close
                    await session.close()
                    raise Closed(f"{self.address}: the client is closed")
                self._current = session
            return self._current

    async def _return(self, returning: Reconnect, patience: float = math.inf) -> ClientSession:
        """Connect, again and again with pauses, for so many seconds."""
        last: ConnectFailed | None = None
        until = asyncio.get_running_loop().time() + patience
        for pause in returning.pauses():
            await asyncio.sleep(pause)
            if self._closed:
                raise Closed(f"{self.address}: the client is closed")
            try:
                session = await self._connected()
            except ConnectFailed as error:
                if not error.retriable or asyncio.get_running_loop().time() >= until:
                    raise
                again = "trying again" if patience == math.inf else f"trying again for {patience:g} s"
                log.log(logging.WARNING if last is None else logging.INFO, "%s; %s", error, again)
                last = error
            else:
                log.info("%s: connected", self.address)
                return session
        assert last is not None
        raise last

    async def _able(self, operation: str) -> ClientSession:
        """The present connection, if its protocol has the operation."""
        require(self.address.abilities, operation)
        return await self._session()
