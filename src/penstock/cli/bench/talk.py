"""The three protocols as a load generator speaks them: no client, no object per message, bytes made once.

A *producer* is asked to send so many messages, and tells how many more it may. A *consumer* takes and acknowledges what
it is given, as fast as it comes. Messages start with the time they were made at, in nanoseconds of the clock that all
processes of a machine share, so that a consumer knows how long each was under way.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, cast

from penstock.client.urls import Address, split_name
from penstock.wire import kokaq, phpmq, sspq
from penstock.wire.kokaq import MessageType, Metadata, Opcode, Request
from penstock.wire.stream import StreamDecoder

STAMP = Struct(">Q")
#: A message must have room for its time.
LEAST = STAMP.size
#: One message of so many is looked at for its latency. Taken evenly, whatever the size of the reads.
EVERY = 8


class Talk(asyncio.Protocol):
    """One connection."""

    def __init__(self, decoder: StreamDecoder[Any]) -> None:
        self.decoder = decoder
        self.transport: asyncio.Transport
        self.writable = True
        self.lost: Exception | None = None
        self.ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(256 * 1024)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio. The end before the end is an error."""
        if not self.ending:
            self.lost = exc or ConnectionError("the broker closed the connection")

    def pause_writing(self) -> None:
        """See asyncio."""
        self.writable = False

    def resume_writing(self) -> None:
        """See asyncio."""
        self.writable = True

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        frames = self.decoder.feed(data)
        if self.decoder.error is not None:
            self.lost = self.decoder.error
            self.transport.abort()
        self.take(frames)

    @abstractmethod
    def take(self, frames: Sequence[Any]) -> None:
        """What came in."""

    def close(self) -> None:
        """The end."""
        self.ending = True
        self.transport.close()


class Producer(Talk):
    """Sends. ``latencies`` has the nanoseconds until each message was confirmed, where the protocol does that."""

    def __init__(self, decoder: StreamDecoder[Any], address: Address, size: int, window: int) -> None:
        super().__init__(decoder)
        self.address = address
        self.filler = bytes(size - LEAST)
        self.window = window
        self.latencies: list[int] = []

    def room(self) -> int:
        """How many messages may be sent now."""
        return self.window if self.writable else 0

    def payload(self) -> bytes:
        """A message of now."""
        return STAMP.pack(time.monotonic_ns()) + self.filler

    @abstractmethod
    def send(self, count: int) -> None:
        """Send so many messages."""

    def take(self, frames: Sequence[Any]) -> None:
        """PHPMQ and SSPQ answer nothing."""


class PhpmqProducer(Producer):
    """Publishes, and hears nothing."""

    def __init__(self, address: Address, size: int, window: int) -> None:
        super().__init__(phpmq.ClientDecoder(), address, size, window)

    def send(self, count: int) -> None:
        """See :meth:`Producer.send`."""
        assert self.address.queue is not None
        frame = phpmq.Publish(self.address.queue, (self.payload(),) * count, None)
        self.transport.write(phpmq.encode([frame], self.address.style))


class SspqProducer(Producer):
    """Sends, and hears nothing."""

    def __init__(self, address: Address, size: int, window: int) -> None:
        super().__init__(sspq.Decoder(), address, size, window)

    def send(self, count: int) -> None:
        """See :meth:`Producer.send`."""
        self.transport.write(sspq.encode([sspq.Send(sspq.FOREVER, (self.payload(),) * count)]))


class KokaqProducer(Producer):
    """Pushes, at most ``window`` of them unanswered."""

    def __init__(self, address: Address, size: int, window: int) -> None:
        super().__init__(kokaq.ClientDecoder(variant=address.variant), address, size, window)
        assert address.queue is not None
        self._names = split_name(address.queue)
        #: When what is unanswered was sent, and how many at that time. Answers come in order.
        self._sent: deque[tuple[int, int]] = deque()
        self._unanswered = 0

    def room(self) -> int:
        """See :meth:`Producer.room`."""
        return self.window - self._unanswered if self.writable else 0

    def send(self, count: int) -> None:
        """See :meth:`Producer.send`."""
        opaques, zeros = (b"\0\0\0\0",) * count, bytes(count)
        payloads = (self.payload(),) * count
        pushes = kokaq.Pushes(MessageType.OPERATIONAL, True, 0, *self._names, opaques, zeros, payloads)
        self._sent.append((time.monotonic_ns(), count))
        self._unanswered += count
        self.transport.write(kokaq.encode_requests([pushes], self.address.variant))

    def take(self, frames: Sequence[Any]) -> None:
        """Confirmations."""
        answered = 0
        for frame in frames:
            if not isinstance(frame, kokaq.Pushed):
                self.lost = RuntimeError(f"the broker refused a push (reason {getattr(frame, 'reason', '?')})")
                return
            answered += len(frame.uuids)
        self._unanswered -= answered
        now = time.monotonic_ns()
        while answered:
            at, count = self._sent.popleft()
            if count > answered:
                self._sent.appendleft((at, count - answered))
            taken = min(count, answered)
            answered -= taken
            self.latencies += [now - at] * (taken if taken < EVERY else taken // EVERY)


class Consumer(Talk):
    """Takes and acknowledges. ``latencies`` has the nanoseconds that some messages were under way, end to end."""

    def __init__(self, decoder: StreamDecoder[Any], address: Address, window: int) -> None:
        super().__init__(decoder)
        self.address = address
        self.window = window
        self.received = 0
        self.latencies: list[int] = []
        self._skip = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin at once."""
        super().connection_made(transport)
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Ask for messages."""

    def note(self, payloads: Sequence[bytes]) -> None:
        """Count messages, and look at a few."""
        now = time.monotonic_ns()
        self.received += len(payloads)
        for payload in payloads[self._skip :: EVERY]:
            self.latencies.append(now - STAMP.unpack_from(payload)[0])
        self._skip = (self._skip - len(payloads)) % EVERY


class PhpmqConsumer(Consumer):
    """A window, and an acknowledgement for each message."""

    def __init__(self, address: Address, window: int) -> None:
        super().__init__(phpmq.ClientDecoder(), address, window)

    def begin(self) -> None:
        """See :meth:`Consumer.begin`."""
        assert self.address.queue is not None
        self.transport.write(phpmq.encode([phpmq.Consume(self.address.queue, self.window)], self.address.style))

    def take(self, frames: Sequence[Any]) -> None:
        """Messages."""
        acks = [phpmq.Acknowledge(frame.queue, frame.ids) for frame in frames]
        self.transport.write(phpmq.encode(acks, self.address.style))
        for frame in frames:
            self.note(frame.payloads)


class SspqConsumer(Consumer):
    """One at a time: confirm, and ask for the next one in the same breath."""

    NEXT = sspq.encode([sspq.Confirm(), sspq.Receive()])

    def __init__(self, address: Address, window: int) -> None:
        super().__init__(sspq.Decoder(), address, window)

    def begin(self) -> None:
        """See :meth:`Consumer.begin`."""
        self.transport.write(sspq.encode([sspq.Receive()]))

    def take(self, frames: Sequence[Any]) -> None:
        """A message."""
        for frame in frames:
            if isinstance(frame, sspq.Send):
                self.transport.write(self.NEXT * len(frame.payloads))
                self.note(frame.payloads)


class KokaqConsumer(Consumer):
    """Locks up to ``window`` messages, and deletes each. An empty queue is asked again a little later."""

    PAUSE = 0.002
    _UUID = bytes(range(16))

    def __init__(self, address: Address, window: int) -> None:
        super().__init__(kokaq.ClientDecoder(variant=address.variant), address, window)
        assert address.queue is not None
        namespace, queue = split_name(address.queue)
        kind, opaque = MessageType.OPERATIONAL, b"\0\0\0\0"
        lock = Request(kind, True, opaque, Opcode.ACQUIRE_PEEK_LOCK, namespace=namespace, queue=queue, payload=b"")
        delete = Request(kind, True, opaque, Opcode.DELETE, metadata=Metadata(uuid=self._UUID))
        self._lock = kokaq.encode_requests([lock], address.variant)
        self._delete, _, self._after = kokaq.encode_requests([delete], address.variant).partition(self._UUID)
        self._empty = 0

    def begin(self) -> None:
        """See :meth:`Consumer.begin`."""
        self.transport.write(self._lock * self.window)

    def take(self, frames: Sequence[Any]) -> None:
        """Messages, answers to deletions, and the news that there is nothing."""
        parts = []
        for frame in frames:
            if isinstance(frame, kokaq.Deliveries):
                parts += [self._delete + uuid_of(raw) + self._after for raw in frame.metadata.raw]
                parts.append(self._lock * len(frame.payloads))
                self.note(frame.payloads)
            elif frame.opcode == Opcode.ACQUIRE_PEEK_LOCK:
                self._empty += 1
        if parts:
            self.transport.write(b"".join(parts))
        if self._empty and self._empty >= self.window // 2:
            self._later()

    def _later(self) -> None:
        again, self._empty = self._lock * self._empty, 0
        asyncio.get_running_loop().call_later(self.PAUSE, self._again, again)

    def _again(self, data: bytes) -> None:
        if not self.ending:
            self.transport.write(data)


def uuid_of(raw: bytes) -> bytes:
    """The UUID among the fields of one delivery: each has a tag, a size, and so many bytes."""
    at = 4
    while raw[at] != 0x05:
        at += 2 + raw[at + 1]
    return raw[at + 2 : at + 18]


PRODUCERS: dict[str, Callable[[Address, int, int], Producer]] = {
    "PHPMQ": PhpmqProducer,
    "SSPQ": SspqProducer,
    "Kokaq": KokaqProducer,
}
CONSUMERS: dict[str, Callable[[Address, int], Consumer]] = {
    "PHPMQ": PhpmqConsumer,
    "SSPQ": SspqConsumer,
    "Kokaq": KokaqConsumer,
}
