"""The same client for code without an event loop. The asynchronous one runs behind it, in a thread of its own."""

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
        """Do the work over there and wait for it here. Ctrl-C cancels it."""
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
        """End a consumer, without waiting; also from a finalizer, which may run in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(deliveries.close)

    def close(self) -> None:
        """Stop the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class Message(Received, frozen=True):
    """A message to work on, and then to settle with one of the first four methods."""

    #: Not for callers.
    hold: Hold | None = None
    loop: _Loop | None = None

    def ack(self) -> None:
        """Done: the broker may forget the message. Kokaq answers; with the others this says only that it was sent."""
        self._settle(Action.ACK)

    def requeue(self, ttl: float = 0) -> None:
        """To the end of its queue, with a new time to live in seconds (0 is for ever)."""
        self._settle(Action.REQUEUE, ttl)

    def reject(self) -> None:
        """To the queue's dead letters."""
        self._settle(Action.REJECT)

    def release(self) -> None:
        """Back to its old place in the queue, for anybody to take."""
        self._settle(Action.RELEASE)

    def renew(self, lock: float | None = None) -> None:
        """Keep it locked for another ``lock`` seconds from now (None: as long as the queue's default)."""
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
    """Messages, as they come. See :class:`penstock.client.consumer.Consumer`."""

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
        """Ask for no more messages. Those given out can still be settled."""
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

    The methods are those of :class:`~penstock.client.aio.AsyncClient`, and explained there.
    """

    def __init__(self, client: AsyncClient, loop: _Loop) -> None:
        self._client = client
        self._loop = loop

    @property
    def address(self) -> Address:
        """Where the broker is."""
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
        """The queue's messages, as they come: ``for message in client.consume()``."""
        wanted = ConsumerRequest(queue=queue, window=window, lock=lock, poll=poll)
        return Consumer(self._client._deliveries(wanted, idle), self._loop)

    def dead_letters(self, *, idle: float | None = None) -> Consumer:
        """SSPQ: the dead letters of the queue, as they come."""
        return Consumer(self._client._dead(idle), self._loop)

    def receive(
        self, queue: str | None = None, *, timeout: float | None = None, lock: float | None = None
    ) -> Message | None:
        """One message; None if none came within ``timeout`` seconds."""
        return _message(self._loop.run(self._client._one(queue, timeout, lock)), self._loop)

    def ack_many(self, messages: Iterable[Message]) -> None:
        """Acknowledge several messages: with Kokaq one wait for all answers, not one each."""
        self._loop.run(self._client._ack_all([message._hold for message in messages]))

    def lock(self, queue: str | None = None, *, lock: float | None = None) -> Message | None:
        """Kokaq: the head of the queue, locked for ``lock`` seconds; None if there is nothing now."""
        return _message(self._loop.run(self._client._locked(queue, lock)), self._loop)

    def pop(self, queue: str | None = None) -> Received | None:
        """Kokaq: take the head of the queue for good; None if there is nothing now."""
        return self._loop.run(self._client.pop(queue))

    def peek(self, queue: str | None = None) -> Received | None:
        """Kokaq: the message that would come next, left where it is; None if there is nothing now."""
        return self._loop.run(self._client.peek(queue))

    def get(self, message_id: str, queue: str | None = None) -> Received | None:
        """Kokaq: the message with this ID; None if there is none."""
        return self._loop.run(self._client.get(message_id, queue))

    def queue_info(self, queue: str | None = None) -> QueueInfo:
        """Kokaq: what the broker tells about a queue."""
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
        """Kokaq: create a queue, with these as its defaults."""
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
        """Kokaq: ask for a sign of life, and wait for it."""
        self._loop.run(self._client.ping())

    def health(self) -> str | None:
        """Kokaq: what ails the broker; None if it is well."""
        return self._loop.run(self._client.health())

    def counters(self) -> dict[str, int | str]:
        """Kokaq: the broker's own counters."""
        return self._loop.run(self._client.counters())

    def check(self) -> None:
        """Raise the reason why the connection is over, if it is. A look, not a question to the broker."""
        self._client.check()

    def why_closed(self) -> str:
        """What can be known of why the broker has closed a connection over which was published."""
        return self._loop.run(self._client.why_closed())

    def refusal(self) -> str:
        """Which of the messages that were published the broker can't have taken, as far as asking it tells."""
        return self._loop.run(self._client.refusal())

    def close(self) -> None:
        """Send what is left and end the connection. What was not settled goes back to its queue."""
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
