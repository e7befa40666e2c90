"""SSPQ sessions. docs/protocols/sspq.md has the rules."""

from __future__ import annotations

from msgspec.structs import replace
from typing_extensions import override

from penstock.companions.rights import Right
from penstock.core.properties import PLAIN, Properties
from penstock.core.queue import Out, Queue
from penstock.server.network.runtime import Runtime
from penstock.server.network.session import Session
from penstock.server.protocols.sspq.listener import SspqListener
from penstock.wire import sspq
from penstock.wire.sspq import Confirm, DeadReceive, Receive, Send


class SspqSession(Session[sspq.SspqFrame]):
    """An SSPQ client. It has at most one request that waits, or one message that it has not confirmed."""

    protocol = "sspq"
    spends_retries = True

    def __init__(self, runtime: Runtime, listener: SspqListener) -> None:
        super().__init__(runtime, sspq.Decoder(runtime.options.limits.payload_bytes))
        self.namespace, _, self.name = listener.queue.partition("/")
        self.force_retries = listener.force_retries
        self.dead_letters = listener.dead_letters

    @override
    def may_work(self) -> bool:
        # A peer that does not read NO_RECEIVE answers may not request more of them.
        return not self.runtime.memory.congested and self.room > 0

    @override
    def handle(self, frame: sspq.SspqFrame) -> bool:
        kind = type(frame)  # a struct's isinstance() asks for more than that
        if kind is Confirm:
            self._confirm()
        elif kind is Receive:
            self._receive(dead=False)
        elif isinstance(frame, Send):
            return self._publish(frame)
        elif kind is DeadReceive:
            self._receive(dead=True)
        else:
            self.runtime.count("ignored_packages")
        return True

    @override
    def after_loss(self, frame: sspq.SspqFrame) -> sspq.SspqFrame | None:
        return None if isinstance(frame, (sspq.Receive, sspq.DeadReceive)) else frame

    @override
    def encode_deliveries(self, queue: Queue, outs: list[Out], payloads: list[bytes]) -> bytes:
        # The counter says how often the message may be delivered again.
        if len(outs) == 1:  # as a rule: a connection has one at a time
            return sspq.send_package(outs[0].item.retries, payloads[0])
        frames = [Send(out.item.retries, (payload,)) for out, payload in zip(outs, payloads, strict=True)]
        return sspq.encode(frames)

    @override
    def no_message(self, queue: Queue) -> None:
        self._decline()

    def _publish(self, frame: Send) -> bool:
        if not self.allowed("publish", self.namespace, self.name):
            self.end()
            return True
        retries = frame.retries if self.force_retries is None else self.force_retries
        properties = PLAIN if retries == sspq.FOREVER else Properties(retries=retries)
        return self.publish(
            self._queue(), frame.payloads, properties, lambda taken: replace(frame, payloads=frame.payloads[taken:])
        )

    @property
    @override
    def queue_in_hand(self) -> str:
        return f"{self.namespace}/{self.name}"

    def _receive(self, *, dead: bool) -> None:
        right: Right = "dead-letter" if dead else "consume"
        busy = bool(self.connection.out or self.connection.subscriptions)
        declined = busy or (dead and not self.dead_letters) or not self.allowed(right, self.namespace, self.name)
        if declined or not self.runtime.broker.receive(
            self.connection, queue := self._queue(), self.runtime.now(), dead=dead
        ):
            self._decline()
        else:
            self.runtime.pollers.note(self.connection, queue, self.active_at)

    def _decline(self) -> None:
        self.write(sspq.encode([sspq.NoReceive()]))

    def _confirm(self) -> None:
        """Acknowledge delivered messages. Messages that are not delivered yet stay."""
        positions = [position for position, out in self.connection.out.items() if out.shown]
        if positions:
            self.runtime.broker.acknowledge(self.connection, self._queue(), positions, self.runtime.now())
        else:
            self.runtime.count("ignored_settlements")

    def _queue(self) -> Queue:
        """The listener's queue. It exists from the start, and is created again if it was deleted."""
        queue = self.runtime.broker.queue(self.namespace, self.name)
        return queue or self.runtime.creation.make_queue(self.namespace, self.name, self, always=True)
