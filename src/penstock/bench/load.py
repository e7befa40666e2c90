"""Generates load with the codecs alone: no client, no object per message, bytes encoded once.

A *producer* sends a number of messages on request, and reports its room for more. A *consumer* takes and acknowledges
messages as fast as they arrive. A message begins with the time of its creation, in nanoseconds of the clock that all
processes of a machine share, so that a consumer can measure its latency.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, cast

from typing_extensions import override

from penstock.client.urls import Address
from penstock.protocols import ProtocolError, protocols
from penstock.wire.stream import StreamDecoder

STAMP = Struct(">Q")
#: Bytes of the smallest message: its timestamp.
LEAST = STAMP.size
#: Latency is sampled from every eighth message, whatever the size of the reads.
EVERY = 8


class LoadConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, decoder: StreamDecoder[Any]) -> None:
        self.decoder = decoder
        self.transport: asyncio.Transport
        self.writable = True
        self.lost: Exception | None = None
        self.ending = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(256 * 1024)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ending:
            self.lost = exc or ConnectionError("the broker closed the connection")

    @override
    def pause_writing(self) -> None:
        self.writable = False

    @override
    def resume_writing(self) -> None:
        self.writable = True

    @override
    def data_received(self, data: bytes) -> None:
        frames = self.decoder.feed(data)
        if self.decoder.error is not None:
            self.lost = self.decoder.error
            self.transport.abort()
        self.take(frames)

    @abstractmethod
    def take(self, frames: Sequence[Any]) -> None:
        """Handle received frames."""

    def close(self) -> None:
        """Close the connection."""
        self.ending = True
        self.transport.close()


class LoadProducer(LoadConnection):
    """Sends. ``latencies`` are the nanoseconds until each message was confirmed, if the protocol confirms."""

    def __init__(self, decoder: StreamDecoder[Any], address: Address, size: int, window: int) -> None:
        super().__init__(decoder)
        self.address = address
        self.filler = bytes(size - LEAST)
        self.window = window
        self.latencies: list[int] = []

    def room(self) -> int:
        """The number of messages that may be sent now."""
        return self.window if self.writable else 0

    def payload(self) -> bytes:
        """A message with the current time."""
        return STAMP.pack(time.monotonic_ns()) + self.filler

    @abstractmethod
    def send(self, count: int) -> None:
        """Send this number of messages."""

    @override
    def take(self, frames: Sequence[Any]) -> None:
        """Ignore answers, for protocols that do not confirm."""


class LoadConsumer(LoadConnection):
    """Takes and acknowledges. ``latencies`` are the nanoseconds end to end of sampled messages."""

    def __init__(self, decoder: StreamDecoder[Any], address: Address, window: int) -> None:
        super().__init__(decoder)
        self.address = address
        self.window = window
        self.received = 0
        self.latencies: list[int] = []
        self._skip = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Request the first messages."""

    def note(self, payloads: Sequence[bytes]) -> None:
        """Count messages, and sample their latency."""
        now = time.monotonic_ns()
        self.received += len(payloads)
        for payload in payloads[self._skip :: EVERY]:
            self.latencies.append(now - STAMP.unpack_from(payload)[0])
        self._skip = (self._skip - len(payloads)) % EVERY


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load generator of a protocol: the part ``load`` in the table of protocols."""

    #: From an address, the size of a message, and the limit of unanswered messages.
    producer: Callable[[Address, int, int], LoadProducer]
    #: From an address, and the limit of unsettled messages.
    consumer: Callable[[Address, int], LoadConsumer]
    #: Default limit of published messages that are not yet consumed.
    in_flight: int = 1000
    #: Default window of a consumer, by the number of consumers.
    window: Callable[[int], int] = lambda consumers: 1000


def load_of(protocol: str) -> Load:
    """The load of the protocol with this name. Raises ProtocolError."""
    found = protocols()[protocol].part("load")
    if not isinstance(found, Load):
        raise ProtocolError(f"{protocols()[protocol].title}: {protocols()[protocol].load!r} is not a Load")
    return found
