"""The client for code without an event loop: runs the asynchronous one in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar, Unpack

from msgspec.structs import asdict

from penstock.client.aio import DEFAULT_POLL, DEFAULT_WINDOW, AsyncClient
from penstock.client.aio import connect as connect_async
from penstock.client.consumer import ConsumerRequest, DeliveryStream
from penstock.client.errors import Closed
from penstock.client.messages import Action, Delivery, Details, Hold, Outgoing, Published, QueueInfo, Received, outgoing
from penstock.client.options import ClientSettings
from penstock.client.publisher import in_batches
from penstock.client.urls import Address

T = TypeVar("T")


class _Loop:
    """An event loop in a thread. A daemon: a script that forgets to close its client still ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and wait for it. Ctrl-C cancels it."""
        if self._loop.is_closed():
            work.close()
            raise Closed("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, deliveries: DeliveryStream) -> None:
        """End a consumer without waiting. Safe in a finalizer, which may run in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(deliveries.close)

    def close(self) -> None:
        """Stop the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Message(Received, frozen=True):
    """A delivered message. Settle it with ``ack``, ``requeue``, ``reject`` or ``release``."""

    #: Internal.
    hold: Hold | None = None
    loop: _Loop | None = None

    def ack(self) -> None:
        """Done: the broker may delete the message. Kokaq confirms; with the others this only means that it was sent."""
        self._settle(Action.ACK)

    def requeue(self, ttl: float = 0) -> None:
        """Move it to the end of its queue with a new time to live in seconds (0 never expires)."""
        self._settle(Action.REQUEUE, ttl)

    def reject(self) -> None:
        """Move it to the queue's dead letters."""
        self._settle(Action.REJECT)

    def release(self) -> None:
        """Return it to its place in the queue, for any consumer."""
        self._settle(Action.RELEASE)

    def renew(self, lock: float | None = None) -> None:
        """Extend its lock to ``lock`` seconds from now (None: the queue's default)."""
        assert self.loop is not None
        self.loop.run(self._hold.renew(lock))

    def _settle(self, action: Action, ttl: float | None = None) -> None:
        assert self.loop is not None
        self.loop.run(self._hold.settle(action, ttl))

    @property
    def _hold(self) -> Hold:
        assert self.hold is not None
        return self.hold


class Consumer(Iterator[Message]):
    """An iterator over messages. See :class:`penstock.client.consumer.Consumer`."""

    def __init__(self, deliveries: DeliveryStream, loop: _Loop) -> None:
        self._deliveries = deliveries
        self._loop = loop

    def __next__(self) -> Message:
        message = _message(self._loop.run(self._deliveries.next()), self._loop)
        if message is None:
            self.close()
            raise StopIteration
        return message

    def close(self) -> None:
        """Stop consuming. Messages already received can still be settled."""
        self._loop.soon(self._deliveries)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _message(delivery: Delivery | None, loop: _Loop) -> Message | None:
    return None if delivery is None else Message(**asdict(delivery.received), hold=delivery.hold, loop=loop)


def connect(url: str, **settings: Unpack[ClientSettings]) -> Client:
    """Connect to a broker. See :func:`penstock.client.aio.connect`; close the client, or use it in ``with``."""
    connecting = connect_async(url, **settings)
    loop = _Loop()

    async def opened() -> AsyncClient:
        return await connecting

    try:
        return Client(loop.run(opened()), loop)
    except BaseException:
        loop.close()
        raise


class Client:
    """One connection to a broker. Made by :func:`connect`. Any number of threads may use it.

    It has the methods of :class:`~penstock.client.aio.AsyncClient`, which documents them.
    """

    def __init__(self, client: AsyncClient, loop: _Loop) -> None:
        self._client = client
        self._loop = loop

    @property
    def address(self) -> Address:
        """The host that was connected to last."""
        return self._client.address

    @property
    def protocol(self) -> str:
        """Its name, as in "PHPMQ"."""
        return self._client.protocol

    def can(self, operation: str) -> bool:
        """Whether the protocol has an operation, or a property of messages: see docs/client.md."""
        return self._client.can(operation)

    def publish(
        self, message: Outgoing | bytes | str, *, queue: str | None = None, **details: Unpack[Details]
    ) -> Published:
        """Publish one message."""
        return self._loop.run(self._client.publish(outgoing(message, details), queue=queue))

    def publish_many(
        self, messages: Iterable[Outgoing | bytes | str], *, queue: str | None = None, **details: Unpack[Details]
    ) -> Published:
        """Publish any number of messages, pipelined. The iterator is read here, in the caller's thread."""
        publisher = self._client._publisher(queue)
        for batch in in_batches(messages, details):
            self._loop.run(publisher.add(batch))
        return self._loop.run(publisher.finish())

    def consume(
        self,
        queue: str | None = None,
        *,
        window: int = DEFAULT_WINDOW,
        idle: float | None = None,
        lock: float | None = None,
        poll: float = DEFAULT_POLL,
    ) -> Consumer:
        """Consume a queue: ``for message in client.consume()``."""
        wanted = ConsumerRequest(queue=queue, window=window, lock=lock, poll=poll)
        return Consumer(self._client._deliveries(wanted, idle), self._loop)

    def dead_letters(self, *, idle: float | None = None) -> Consumer:
        """SSPQ: consume the queue's dead letters."""
        return Consumer(self._client._dead(idle), self._loop)

    def receive(
        self, queue: str | None = None, *, timeout: float | None = None, lock: float | None = None
    ) -> Message | None:
        """One message; None if none came within ``timeout`` seconds."""
        return _message(self._loop.run(self._client._one(queue, timeout, lock)), self._loop)

    def ack_many(self, messages: Iterable[Message]) -> None:
        """Acknowledge several messages. Kokaq waits once for all answers."""
        self._loop.run(self._client._ack_all([message._hold for message in messages]))

    def lock(self, queue: str | None = None, *, lock: float | None = None) -> Message | None:
        """Kokaq: lock the head of the queue for ``lock`` seconds; None if the queue is empty."""
        return _message(self._loop.run(self._client._locked(queue, lock)), self._loop)

    def pop(self, queue: str | None = None) -> Received | None:
        """Kokaq: remove the head of the queue; None if it is empty."""
        return self._loop.run(self._client.pop(queue))

    def peek(self, queue: str | None = None) -> Received | None:
        """Kokaq: the next message, left in the queue; None if the queue is empty."""
        return self._loop.run(self._client.peek(queue))

    def get(self, message_id: str, queue: str | None = None) -> Received | None:
        """Kokaq: the message with this ID; None if there is none."""
        return self._loop.run(self._client.get(message_id, queue))

    def queue_info(self, queue: str | None = None) -> QueueInfo:
        """Kokaq: the broker's description of a queue."""
        return self._loop.run(self._client.queue_info(queue))

    def create_queue(
        self,
        queue: str | None = None,
        *,
        ttl: int | None = None,
        lock: float | None = None,
        max_deliveries: int | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Kokaq: create a queue with these defaults."""
        return self._loop.run(
            self._client.create_queue(queue, ttl=ttl, lock=lock, max_deliveries=max_deliveries, exist_ok=exist_ok)
        )

    def create_namespace(self, namespace: str, *, exist_ok: bool = False) -> bool:
        """Kokaq: create a namespace."""
        return self._loop.run(self._client.create_namespace(namespace, exist_ok=exist_ok))

    def delete_queue(self, queue: str | None = None) -> None:
        """Kokaq: delete a queue that is empty."""
        self._loop.run(self._client.delete_queue(queue))

    def delete_namespace(self, namespace: str) -> None:
        """Kokaq: delete a namespace that is empty."""
        self._loop.run(self._client.delete_namespace(namespace))

    def ping(self) -> None:
        """Kokaq: ping the broker and wait for its answer."""
        self._loop.run(self._client.ping())

    def health(self) -> str | None:
        """Kokaq: why the broker is unhealthy; None if it is healthy."""
        return self._loop.run(self._client.health())

    def counters(self) -> dict[str, int | str]:
        """Kokaq: the broker's own counters."""
        return self._loop.run(self._client.counters())

    def check(self) -> None:
        """Raise the reason why the connection ended, if it did. Sends nothing to the broker."""
        self._client.check()

    def why_closed(self) -> str:
        """The likely reasons why the broker closed a connection that published."""
        return self._loop.run(self._client.why_closed())

    def refusal(self) -> str:
        """Which published messages the broker can't have accepted, according to itself."""
        return self._loop.run(self._client.refusal())

    def close(self) -> None:
        """Flush and close the connection. Unsettled messages go back to their queues."""
        try:
            self._loop.run(self._client.close())
        except Closed:
            return
        self._loop.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
