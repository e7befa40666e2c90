"""A protocol as a load generator speaks it: no client, no object per message, bytes made once.

A *producer* is asked to send so many messages, and tells how many more it may. A *consumer* takes and acknowledges what
it is given, as fast as it comes. Messages start with the time they were made at, in nanoseconds of the clock that all
processes of a machine share, so that a consumer knows how long each was under way.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, cast

from penstock.client.urls import Address
from penstock.protocols import ProtocolError, protocols
from penstock.wire.stream import StreamDecoder

STAMP = Struct(">Q")
#: A message must have room for its time.
LEAST = STAMP.size
#: One message of so many is looked at for its latency. Taken evenly, whatever the size of the reads.
EVERY = 8


class LoadConnection(asyncio.Protocol):
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


class LoadProducer(LoadConnection):
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
        """What is answered; protocols that don't confirm answer nothing."""


class LoadConsumer(LoadConnection):
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


@dataclass(frozen=True, kw_only=True)
class Load:
    """How load of a protocol is made; the table of protocols names it as the part ``load``."""

    #: From an address, the size of a message, and how many may be unanswered.
    producer: Callable[[Address, int, int], LoadProducer]
    #: From an address, and how many messages may be unsettled.
    consumer: Callable[[Address, int], LoadConsumer]
    #: Default limit of published messages that are not yet consumed.
    in_flight: int = 1000
    #: Default window of a consumer, by the number of consumers.
    window: Callable[[int], int] = lambda consumers: 1000


def load_of(protocol: str) -> Load:
    """How load of the protocol of this name is made. Raises ProtocolError."""
    found = protocols()[protocol].part("load")
    if not isinstance(found, Load):
        raise ProtocolError(f"{protocols()[protocol].title}: {protocols()[protocol].load!r} is no Load")
    return found
