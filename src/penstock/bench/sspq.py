"""Load over SSPQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from penstock.bench.load import Load, LoadConsumer, LoadProducer
from penstock.client.urls import Address
from penstock.wire import sspq


class SspqProducer(LoadProducer):
    """Sends; SSPQ does not confirm."""

    def __init__(self, address: Address, size: int, window: int) -> None:
        super().__init__(sspq.Decoder(), address, size, window)

    @override
    def send(self, count: int) -> None:
        self.transport.write(sspq.encode([sspq.Send(sspq.FOREVER, (self.payload(),) * count)]))


class SspqConsumer(LoadConsumer):
    """Takes one message at a time: a confirmation and the next request share a write."""

    NEXT = sspq.encode([sspq.Confirm(), sspq.Receive()])

    def __init__(self, address: Address, window: int) -> None:
        super().__init__(sspq.Decoder(), address, window)

    @override
    def begin(self) -> None:
        self.transport.write(sspq.encode([sspq.Receive()]))

    @override
    def take(self, frames: Sequence[Any]) -> None:
        for frame in frames:
            if isinstance(frame, sspq.Send):
                self.transport.write(self.NEXT * len(frame.payloads))
                self.note(frame.payloads)


LOAD = Load(producer=SspqProducer, consumer=SspqConsumer)
