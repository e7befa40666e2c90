"""Load over SSPQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.bench.load import Load, LoadConsumer, LoadProducer
from penstock.client.urls import Address
from penstock.wire import sspq


class SspqProducer(LoadProducer):
    """Sends, and hears nothing."""

    def __init__(self, address: Address, size: int, window: int) -> None:
        super().__init__(sspq.Decoder(), address, size, window)

    def send(self, count: int) -> None:
        """See :meth:`LoadProducer.send`."""
        self.transport.write(sspq.encode([sspq.Send(sspq.FOREVER, (self.payload(),) * count)]))


class SspqConsumer(LoadConsumer):
    """One at a time: confirm, and ask for the next one in the same breath."""

    NEXT = sspq.encode([sspq.Confirm(), sspq.Receive()])

    def __init__(self, address: Address, window: int) -> None:
        super().__init__(sspq.Decoder(), address, window)

    def begin(self) -> None:
        """See :meth:`LoadConsumer.begin`."""
        self.transport.write(sspq.encode([sspq.Receive()]))

    def take(self, frames: Sequence[Any]) -> None:
        """A message."""
        for frame in frames:
            if isinstance(frame, sspq.Send):
                self.transport.write(self.NEXT * len(frame.payloads))
                self.note(frame.payloads)


LOAD = Load(producer=SspqProducer, consumer=SspqConsumer)
