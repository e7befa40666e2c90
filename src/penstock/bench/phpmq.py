"""Load over PHPMQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from penstock.bench.load import Load, LoadConsumer, LoadProducer
from penstock.client.urls import Address
from penstock.wire import phpmq


class PhpmqProducer(LoadProducer):
    """Publishes; PHPMQ does not confirm."""

    def __init__(self, address: Address, size: int, window: int) -> None:
        super().__init__(phpmq.ClientDecoder(), address, size, window)

    @override
    def send(self, count: int) -> None:
        assert self.address.queue is not None
        frame = phpmq.Publish(self.address.queue, (self.payload(),) * count, None)
        self.transport.write(phpmq.encode([frame], self.address.variant.style))


class PhpmqConsumer(LoadConsumer):
    """Consumes with a window, and acknowledges each message."""

    def __init__(self, address: Address, window: int) -> None:
        super().__init__(phpmq.ClientDecoder(), address, window)

    @override
    def begin(self) -> None:
        assert self.address.queue is not None
        self.transport.write(phpmq.encode([phpmq.Consume(self.address.queue, self.window)], self.address.variant.style))

    @override
    def take(self, frames: Sequence[Any]) -> None:
        acks = [phpmq.Acknowledge(frame.queue, frame.ids) for frame in frames]
        self.transport.write(phpmq.encode(acks, self.address.variant.style))
        for frame in frames:
            self.note(frame.payloads)


LOAD = Load(producer=PhpmqProducer, consumer=PhpmqConsumer, in_flight=10_000)
