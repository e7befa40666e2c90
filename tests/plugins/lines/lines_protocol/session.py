"""The server's side of a connection: lines become broker commands, deliveries become lines."""

from __future__ import annotations

from collections import deque

from typing_extensions import override

from lines_protocol.codec import Decoder, Line, encode
from lines_protocol.listener import LinesListener
from penstock.core.properties import Properties
from penstock.core.queue import Out, Queue
from penstock.server.network.runtime import Runtime
from penstock.server.network.session import Session


class LinesSession(Session[Line]):
    """A client of Lines."""

    protocol = "lines"

    def __init__(self, runtime: Runtime, listener: LinesListener) -> None:
        super().__init__(runtime, Decoder(runtime.options.limits.payload_bytes))
        self.namespace = listener.namespace
        #: Answers, each with the position up to which the log must be on disk before it is sent.
        self._due: deque[tuple[int, Line]] = deque()

    @override
    def handle(self, frame: Line) -> bool:
        if frame.verb == "PUT":
            return self._put(frame)
        if frame.verb == "GET":
            self._get(frame)
        elif frame.verb == "ACK":
            self._ack()
        elif frame.verb == "PING":
            self._answer(0, Line("PONG"))
        return True

    @override
    def after_loss(self, frame: Line) -> Line | None:
        return None if frame.verb == "GET" else frame

    @override
    def encode_deliveries(self, queue: Queue, outs: list[Out], payloads: list[bytes]) -> bytes:
        return encode(Line("MSG", queue.name, payload) for payload in payloads)

    @override
    def release(self, committed: int) -> None:
        while self._due and self._due[0][0] <= committed:
            self.write(encode([self._due.popleft()[1]]))
        if not self._due:
            self.runtime.output.answered(self)

    @property
    @override
    def answers_due(self) -> bool:
        return bool(self._due)

    def _answer(self, after: int, line: Line) -> None:
        """Send an answer in turn, once the log is on disk up to ``after``."""
        self._due.append((after, line))
        self.runtime.output.await_answers(self)

    def _put(self, frame: Line) -> bool:
        queue = self._queue("publish", frame.queue)
        if queue is None:
            return True
        runtime = self.runtime
        done = runtime.broker.publish(self.connection, queue, [frame.body], runtime.now(), Properties())
        if done.refusal is not None:
            return self.refused(done, queue, len(frame.body))
        self._answer(runtime.broker.log.next_position, Line("OK", body=runtime.ids.texts(queue, [done.first])[0]))
        return True

    def _get(self, frame: Line) -> None:
        queue = self._queue("consume", frame.queue)
        if queue is not None and not self.connection.out:
            self.runtime.broker.receive(self.connection, queue, self.runtime.now(), dead=False)

    def _ack(self) -> None:
        for position, out in list(self.connection.out.items()):
            self.runtime.broker.acknowledge(self.connection, out.queue, [position], self.runtime.now())

    def _queue(self, right: str, name: str) -> Queue | None:
        """Return the queue, creating it if necessary. Without permission, close the connection and return None."""
        if self.allowed("publish" if right == "publish" else "consume", self.namespace, name):
            queue = self.runtime.broker.queue(self.namespace, name)
            queue = queue or self.runtime.creation.make_queue(self.namespace, name, self)
            if queue is not None:
                return queue
        self.end()
        return None
