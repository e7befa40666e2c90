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
from penstock.client.close_reasons import PATIENCE, Unconfirmed, asked, no_answer, over_limit, reasons
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
from penstock.hosts import HostRing

__all__ = ["AsyncClient", "Consumer", "Message", "connect"]

log = logging.getLogger(__name__)

#: Unsettled messages per consumer.
DEFAULT_WINDOW = 32
#: The longest pause between two polls of an empty Kokaq queue, in seconds.
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

    The options are those of :class:`~penstock.client.options.ClientOptions`. The first connection is tried only once,
    even with ``reconnect``, so that a wrong address does not look like a slow one. With several hosts each is tried,
    and with ``reconnect`` they are retried for ``connect_timeout`` seconds, since none serves during a take-over.
    """
    return Connecting(AsyncClient(*parse(url, settings)))


class AsyncClient:
    """One connection to a broker. Made by :func:`connect`. For one event loop; any number of tasks may use it.

    With several hosts it connects to the one that serves, and after a loss to the one that serves then. Operations that
    the URL's protocol can't express raise :class:`~penstock.client.errors.Unsupported` before anything is sent.
    ``queue`` may be omitted if the URL names one.
    """

    def __init__(self, addresses: Sequence[Address], options: ClientOptions) -> None:
        #: All hosts of the URL, and the one that was connected to last.
        self.addresses = tuple(addresses)
        self.address = addresses[0]
        self._hosts = HostRing(self.addresses)
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
        """Publish one message. Kokaq returns once it is on the broker's disk; the others once it was sent."""
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

        Stops at the first message that is refused or in doubt. The error has those messages, what was published before
        them, and what was taken from the iterator but not sent.
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
        """Consume a queue: ``async for message in client.consume()``.

        At most ``window`` messages are unsettled at a time (SSPQ: always one). The loop ends after ``idle`` seconds
        without a message. For Kokaq, ``lock`` is the duration of each lock in seconds (default: the queue's), and
        ``poll`` the longest pause between two polls of an empty queue.
        """
        wanted = ConsumerRequest(queue=queue, window=window, lock=lock, poll=poll)
        return Consumer(self._deliveries(wanted, idle))

    def dead_letters(self, *, idle: float | None = None) -> Consumer:
        """SSPQ: consume the queue's dead letters. An acknowledged one is gone for good."""
        return Consumer(self._dead(idle))

    async def receive(
        self, queue: str | None = None, *, timeout: float | None = None, lock: float | None = None
    ) -> Message | None:
        """One message; None if none came within ``timeout`` seconds."""
        delivery = await self._one(queue, timeout, lock)
        return None if delivery is None else message_of(delivery)

    async def ack_many(self, messages: Iterable[Message]) -> None:
        """Acknowledge several messages. Kokaq waits once for all answers.

        All are tried before the first error, if any, is raised.
        """
        await self._ack_all([message._hold for message in messages])

    async def lock(self, queue: str | None = None, *, lock: float | None = None) -> Message | None:
        """Kokaq: lock the head of the queue for ``lock`` seconds; None if the queue is empty."""
        delivery = await self._locked(queue, lock)
        return None if delivery is None else message_of(delivery)

    async def pop(self, queue: str | None = None) -> Received | None:
        """Kokaq: remove the head of the queue; None if it is empty. At most once: see Uncertain."""
        return await (await self._able("pop")).pop(queue)

    async def peek(self, queue: str | None = None) -> Received | None:
        """Kokaq: the next message, left in the queue; None if the queue is empty."""
        return await (await self._able("peek")).peek(queue)

    async def get(self, message_id: str, queue: str | None = None) -> Received | None:
        """Kokaq: the message with this ID, wherever it is in its queue; None if there is none."""
        return await (await self._able("get")).get(message_id, queue)

    async def queue_info(self, queue: str | None = None) -> QueueInfo:
        """Kokaq: the broker's description of a queue."""
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
        """Kokaq: create a queue with these defaults. False if it existed and ``exist_ok`` allows that."""
        session = await self._able("create_queue")
        return await session.create_queue(queue, ttl=ttl, lock=lock, max_deliveries=max_deliveries, exist_ok=exist_ok)

    async def create_namespace(self, namespace: str, *, exist_ok: bool = False) -> bool:
        """Kokaq: create a namespace. False if it existed and ``exist_ok`` allows that."""
        return await (await self._able("create_namespace")).create_namespace(namespace, exist_ok=exist_ok)

    async def delete_queue(self, queue: str | None = None) -> None:
        """Kokaq: delete a queue. Refused ("not_allowed") unless it is empty."""
        await (await self._able("delete_queue")).delete_queue(queue)

    async def delete_namespace(self, namespace: str) -> None:
        """Kokaq: delete a namespace. Refused ("not_allowed") unless it is empty."""
        await (await self._able("delete_namespace")).delete_namespace(namespace)

    async def ping(self) -> None:
        """Kokaq: ping the broker and wait for its answer."""
        await (await self._able("ping")).ping()

    async def health(self) -> str | None:
        """Kokaq: why the broker is unhealthy; None if it is healthy."""
        return await (await self._able("health")).health()

    async def counters(self) -> dict[str, int | str]:
        """Kokaq: the broker's counters by name, whichever it sends (docs/protocols/kokaq.md)."""
        return await (await self._able("counters")).counters()

    def check(self) -> None:
        """Raise the reason why the connection ended, if it did. Sends nothing to the broker."""
        if self._current is None:
            raise Closed(f"{self.address}: the client is closed")
        self._current.link.check()

    async def close(self) -> None:
        """Flush and close the connection. Unsettled messages go back to their queues."""
        self._closed = True
        session, self._current = self._current, None
        if session is not None:
            await session.close()
            self._parted = session.link.parted
            if self._sent.count and not self._sent.reported:
                await self._log_doubt()

    async def _log_doubt(self) -> None:
        """Log unconfirmed publishes that no call can raise any more."""
        if not self._parted:
            why = await self.why_closed()
            log.warning("%s: whether all that was published was taken is not known: %s", self.address, why)
        elif found := await self.refusal():
            log.warning("%s: refused: %s", self.address, found)

    async def why_closed(self) -> str:
        """The likely reasons why the broker closed a connection that published.

        Closing is the only refusal of protocols without confirmations. With the option ``ask`` the broker is asked.
        """
        known = reasons(self._sent)
        if self.options.ask is None:
            return known
        try:
            async with asyncio.timeout(PATIENCE), connect(self.options.ask) as other:
                found = await asked(other, self._sent)
        except (ClientError, TimeoutError) as error:
            return f"{known} ({no_answer(error)})"
        if found:
            return f"asked over {other.protocol}: {found}"
        return f"{known} (asked over {other.protocol}, it reports no problem)"

    async def refusal(self) -> str:
        """Which published messages the broker can't have accepted, according to itself; empty if none.

        An orderly close proves nothing: a broker also closes in order when it refuses what it received.
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
        """Whether the client was closed and the broker then ended the connection in order and in time.

        If not, the broker may not have read what was sent last over PHPMQ or SSPQ.
        """
        return self._parted

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Shared with the synchronous client.

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
            else:  # no host serves during a take-over
                self._current = await self._return(returning, self.options.connect_timeout)
        return self

    async def _connected(self) -> ClientSession:
        """A connection to the host that serves. After a loss, the one that was lost is tried last."""
        first, *others = self._hosts.in_order()
        order = [first, *others] if self._current is None else [*others, first]
        session = await first_serving(order, self._connected_to)
        self._hosts.served(session.address)
        self.address = session.address
        return session

    async def _connected_to(self, address: Address) -> ClientSession:
        session = client_protocol(address.scheme).session(address, self.options)
        await session.open()
        return session

    async def _session(self) -> ClientSession:
        """The current connection, or the next one if it was lost and the client reconnects."""
        async with self._connecting:
            if self._closed or self._current is None:
                raise Closed(f"{self.address}: the client is closed")
            if self._current.failure is not None:
                returning = self.options.returning
                if returning is None:
                    self._current.link.check()
                    raise AssertionError
                session = await self._return(returning)
                if self._closed:  # closed while there was no connection
                    await session.close()
                    raise Closed(f"{self.address}: the client is closed")
                self._current = session
            return self._current

    async def _return(self, returning: Reconnect, patience: float = math.inf) -> ClientSession:
        """Connect, retrying with pauses for ``patience`` seconds."""
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
                again = "retrying" if patience == math.inf else f"retrying for {patience:g} s"
                log.log(logging.WARNING if last is None else logging.INFO, "%s; %s", error, again)
                last = error
            else:
                log.info("%s: connected", self.address)
                return session
        assert last is not None
        raise last

    async def _able(self, operation: str) -> ClientSession:
        """The current connection, if its protocol has the operation."""
        require(self.address.abilities, operation)
        return await self._session()
