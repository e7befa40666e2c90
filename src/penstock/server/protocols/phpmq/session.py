"""PHPMQ sessions. docs/protocols/phpmq.md has the rules."""

from __future__ import annotations

from itertools import groupby

from msgspec.structs import replace
from typing_extensions import override

from penstock.core.policy import SECOND
from penstock.core.properties import PLAIN, Properties
from penstock.core.queue import Out, Queue
from penstock.server.network.runtime import Runtime
from penstock.server.network.session import EFFORT, Session
from penstock.server.protocols.phpmq.listener import PhpmqListener
from penstock.wire import phpmq


class PhpmqSession(Session[phpmq.PhpmqFrame]):
    """A PHPMQ client."""

    protocol = "phpmq"

    def __init__(self, runtime: Runtime, listener: PhpmqListener) -> None:
        dialect = phpmq.Dialect(listener.dialect) if listener.dialect else None
        self._wire = phpmq.ServerDecoder(runtime.options.limits.payload_bytes, dialect)
        super().__init__(runtime, self._wire)
        self.namespace = listener.namespace

    @override
    def handle(self, frame: phpmq.PhpmqFrame) -> bool:
        if isinstance(frame, phpmq.Publish):
            return self._publish(frame)
        if isinstance(frame, phpmq.Consume):
            self._consume(frame)
        elif isinstance(frame, (phpmq.Acknowledge, phpmq.Requeue, phpmq.Reject)):
            self._settle(frame)
        return True

    @override
    def after_loss(self, frame: phpmq.PhpmqFrame) -> phpmq.PhpmqFrame | None:
        return None if isinstance(frame, phpmq.Consume) else frame

    @override
    def encode_deliveries(self, queue: Queue, outs: list[Out], payloads: list[bytes]) -> bytes:
        # Neighbours that all have a time to live, or all have none, make one frame.
        style = self._wire.style
        assert style is not None  # the request for deliveries had a style
        ids = self.runtime.ids.texts(queue, [out.item.position for out in outs])
        shown = self._as_sent(outs) if style.dispatch_ttl is None else [style.dispatch_ttl] * len(outs)
        if True not in shown:
            return phpmq.encode([phpmq.Dispatch(queue.name, tuple(ids), tuple(payloads), None)], style)
        frames: list[phpmq.PhpmqFrame] = []
        start = 0
        for with_ttl, alike in groupby(shown):
            run = slice(start, start + len(list(alike)))
            ttls = self._remaining(outs[run]) if with_ttl else None
            frames.append(phpmq.Dispatch(queue.name, tuple(ids[run]), tuple(payloads[run]), ttls))
            start = run.stop
        return phpmq.encode(frames, style)

    def _as_sent(self, outs: list[Out]) -> list[bool]:
        """Whether each message has a time to live, or was published with one of 0, which is none."""
        with_ttl = self.runtime.engine.numbers("with_ttl", [out.item.position for out in outs])
        return [bool(number or out.item.expires) for number, out in zip(with_ttl, outs, strict=True)]

    def _remaining(self, outs: list[Out]) -> tuple[int, ...]:
        """The rest of each time to live, in whole seconds, rounded up; 0 is unlimited."""
        now = self.runtime.now()
        return tuple(max(1, -((now - out.item.expires) // SECOND)) if out.item.expires else 0 for out in outs)

    @override
    def no_message(self, queue: Queue) -> None:
        # The queue was deleted while it was consumed: the consumer must not wait forever without notice.
        self.close("a queue that is consumed was deleted", queue=queue.name)

    def _publish(self, frame: phpmq.Publish) -> bool:
        queue = self._queue("publish", frame.queue)
        if queue is None:
            return True
        properties = PLAIN if frame.ttl is None else Properties(ttl=frame.ttl * SECOND, with_ttl=True)
        return self.publish(
            queue, frame.payloads, properties, lambda taken: replace(frame, payloads=frame.payloads[taken:])
        )

    @property
    @override
    def queue_in_hand(self) -> str:
        return f"{self.namespace}/{self._wire.queue_in_hand}" if self._wire.queue_in_hand else ""

    def _consume(self, frame: phpmq.Consume) -> None:
        queue = self._queue("consume", frame.queue)
        if queue is None:
            return
        window = min(frame.count, self.limits.window, self._room(queue))
        if window < min(frame.count, self.limits.window):
            self.runtime.count("windows_cut")
            self.runtime.log.warning(
                "window cut down: too many messages out", **self.facts(), queue=frame.queue, window=window
            )
        self.runtime.broker.subscribe(self.connection, queue, window, self.runtime.now())

    def _room(self, queue: Queue) -> int:
        """The largest window beside the messages that the connection has, and may get, from other queues."""
        self.effort += len(self.connection.subscriptions) // EFFORT
        mine = self.connection.subscriptions.get((queue.id, False))
        others = len(self.connection.out) - (mine.out if mine else 0)
        others += sum(each.credit for each in self.connection.subscriptions.values() if each is not mine)
        return max(0, self.limits.messages_out - others)

    def _settle(self, frame: phpmq.Acknowledge | phpmq.Requeue | phpmq.Reject) -> None:
        """Settle messages that are out on this connection from the queue it names; other ones are counted."""
        runtime, connection = self.runtime, self.connection
        queue = runtime.broker.queue(self.namespace, frame.queue)
        ids = frame.ids if not isinstance(frame, phpmq.Requeue) else (frame.id,)
        positions = runtime.ids.positions(ids) if queue is not None else []
        done = 0
        if queue is not None and positions:
            if isinstance(frame, phpmq.Acknowledge):
                done = runtime.broker.acknowledge(connection, queue, positions, runtime.now())
            elif isinstance(frame, phpmq.Reject):
                done = runtime.broker.reject(connection, queue, positions, runtime.now())
            else:
                ttl = frame.ttl * SECOND
                done = runtime.broker.requeue(connection, queue, positions[0], runtime.now(), ttl=ttl)
        if done < len(ids):
            runtime.count("ignored_settlements", len(ids) - done)
            runtime.log.info("settlement ignored", **self.facts(), queue=frame.queue, messages=len(ids) - done)

    def _queue(self, right: str, name: str) -> Queue | None:
        """The queue of this name, made if need be. None: the connection was closed."""
        runtime = self.runtime
        if not self.allowed("publish" if right == "publish" else "consume", self.namespace, name):
            self.end()
            return None
        queue = runtime.broker.queue(self.namespace, name) or runtime.creation.make_queue(self.namespace, name, self)
        if queue is None:
            self.end()
        return queue
