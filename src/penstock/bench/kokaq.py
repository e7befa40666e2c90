"""Load over Kokaq."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from penstock.bench.load import EVERY, Load, LoadConsumer, LoadProducer
from penstock.client.urls import Address, split_name
from penstock.wire import kokaq
from penstock.wire.kokaq import MessageType, Metadata, Opcode, Request


class KokaqProducer(LoadProducer):
    """Pushes, with at most ``window`` unanswered."""

    def __init__(self, address: Address, size: int, window: int) -> None:
        super().__init__(kokaq.ClientDecoder(variant=address.variant), address, size, window)
        assert address.queue is not None
        self._names = split_name(address.queue)
        #: Send time and number of unanswered messages. Answers arrive in order.
        self._sent: deque[tuple[int, int]] = deque()
        self._unanswered = 0

    @override
    def room(self) -> int:
        return self.window - self._unanswered if self.writable else 0

    @override
    def send(self, count: int) -> None:
        opaques, zeros = (b"\0\0\0\0",) * count, bytes(count)
        payloads = (self.payload(),) * count
        pushes = kokaq.Pushes(MessageType.OPERATIONAL, True, 0, *self._names, opaques, zeros, payloads)
        self._sent.append((time.monotonic_ns(), count))
        self._unanswered += count
        self.transport.write(kokaq.encode_requests([pushes], self.address.variant))

    @override
    def take(self, frames: Sequence[Any]) -> None:
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


class KokaqConsumer(LoadConsumer):
    """Locks up to ``window`` messages, and deletes each. Polls an empty queue after a pause."""

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

    @override
    def begin(self) -> None:
        self.transport.write(self._lock * self.window)

    @override
    def take(self, frames: Sequence[Any]) -> None:
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
    """The UUID of a delivery. Each field is a tag, a size and that number of bytes."""
    at = 4
    while raw[at] != 0x05:
        at += 2 + raw[at + 1]
    return raw[at + 2 : at + 18]


def _window(consumers: int) -> int:
    """The window shrinks with the number of consumers: they poll, and empty answers would be measured."""
    return max(4, 128 // max(1, consumers))


LOAD = Load(producer=KokaqProducer, consumer=KokaqConsumer, window=_window)
