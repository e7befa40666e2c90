"""Kokaq sessions. docs/protocols/kokaq.md has the rules.

A frame is a run of Pushes, a run of like requests, or a single request. A single request that could come in a run is
handled as a run of one. Requests about messages and about queues have objects of their own (``message_requests``,
``queue_requests``); answers wait for their turn in ``pending``.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from typing_extensions import override

from penstock.core.commands.dispatch import TryAgain
from penstock.core.commands.publish import PublishRefusal, PublishResult
from penstock.core.policy import MILLISECOND, SECOND
from penstock.core.properties import PLAIN, Properties
from penstock.core.queue import Queue
from penstock.server.network.runtime import Runtime
from penstock.server.network.session import Session
from penstock.server.protocols.kokaq.listener import KokaqListener
from penstock.server.protocols.kokaq.message_requests import MessageRequests, run_of_one
from penstock.server.protocols.kokaq.pending import PendingAnswers
from penstock.server.protocols.kokaq.queue_requests import NO_METADATA, Missing, NotAllowed, QueueRequests
from penstock.wire import kokaq
from penstock.wire.kokaq import Metadata, Opcode, Pushed, Pushes, Reason, Request, Requests
from penstock.wire.kokaq.frames import RUN_OPCODES

#: Known client IDs, from 0.
CLIENTS: Final = ("ProxyHttp", "ProxyAmqp", "QueueService", "StorageService", "HealthService")
#: Requests of a run that count as one frame.
RUN_EFFORT: Final = 5
#: How a refused push is answered. A full disk or memory is the broker's fault, everything else the sender's.
REFUSALS: Final = {
    PublishRefusal.EXISTS: Reason.EXISTS,
    PublishRefusal.DISK: Reason.INFRA,
    PublishRefusal.MEMORY: Reason.INFRA,
    PublishRefusal.DRAINING: Reason.INFRA,
    PublishRefusal.STOPPED: Reason.INFRA,
}
# A member of an enumeration is looked up in many steps.
_NOP: Final = Opcode.NOP
_CREATE: Final = Opcode.CREATE
_DELETE: Final = Opcode.DELETE
_GET: Final = Opcode.GET
_PEEK: Final = Opcode.PEEK
_POP: Final = Opcode.POP
_PUSH: Final = Opcode.PUSH
_ACQUIRE: Final = Opcode.ACQUIRE_PEEK_LOCK
_RELEASE: Final = Opcode.RELEASE_PEEK_LOCK


class KokaqSession(Session[kokaq.KokaqRequest]):
    """A Kokaq client."""

    protocol = "kokaq"

    def __init__(self, runtime: Runtime, listener: KokaqListener) -> None:
        most = min(runtime.options.limits.payload_bytes, kokaq.WIRE_MAX_PAYLOAD)
        self._wire = kokaq.ServerDecoder(most)
        super().__init__(runtime, self._wire)
        self._answers = PendingAnswers(runtime)
        self._queues = QueueRequests(runtime, self._answers, create_on_push=listener.create_queues)
        self._messages = MessageRequests(runtime, self._answers, self._queues)
        self._client = -1

    @override
    def may_work(self) -> bool:
        # Stop reading from a peer that neither waits for its answers nor reads them.
        runtime = self.runtime
        return not runtime.memory.congested and self._answers.requests < runtime.requests_share and self.room > 0

    @override
    def handle(self, frame: kokaq.KokaqRequest) -> bool:
        self._learn(frame)
        try:
            done = self._handle(frame)
        except TryAgain:
            return self._go_on_later()
        except Missing:
            self._answers.refuse(frame, Reason.BAD)
            done = True
        except NotAllowed:
            self._deny(frame)
            done = True
        if self._answers.due:
            self.runtime.output.await_answers(self)
        return done

    @property
    @override
    def answers_due(self) -> bool:
        return self._answers.due

    @override
    def after_loss(self, frame: kokaq.KokaqRequest) -> kokaq.KokaqRequest | None:
        # Only one-way requests count from now on, and those take no messages.
        if isinstance(frame, Requests):
            return replace(frame, first=replace(frame.first, two_way=False))
        return replace(frame, two_way=False)

    @override
    def release(self, committed: int) -> None:
        self._answers.release(self, self._wire.variant, committed)

    @override
    def keep(self, before: int) -> None:
        self._answers.keep(self, before)

    @property
    @override
    def starved(self) -> bool:
        return self._answers.starved or super().starved

    def _handle(self, frame: kokaq.KokaqRequest) -> bool:
        if isinstance(frame, Pushes):
            return self._push_run(frame)
        if isinstance(frame, Requests):
            return self._handle_run(frame)
        if frame.problem is not None or frame.operation is None:
            self.runtime.count("bad_requests")
            self._answers.fail(frame, Reason.BAD)
            return True
        if frame.opcode == _PUSH:
            return self._push(frame, frame.metadata or NO_METADATA)
        named = frame.metadata is not None and frame.metadata.uuid is not None
        if RUN_OPCODES.get(frame.opcode) is named:
            return self._handle_run(run_of_one(frame))
        self._handle_single(frame, frame.operation)
        return True

    def _handle_run(self, requests: Requests) -> bool:
        """Handle a run of like requests; what does not fit into this turn is left in the inbox."""
        count = len(requests.opaques)
        if requests.first.opcode == _DELETE:
            done = self._messages.settle(self, requests)
        elif requests.first.two_way:
            done = self._messages.take(self, requests)
        else:
            done = count  # a one-way request has no answer that could carry a message
        self.effort += done // RUN_EFFORT
        if done >= count:
            return True
        self.inbox.replace_first(requests.part(done))
        return self._go_on_later()

    def _handle_single(self, request: Request, operation: Opcode) -> None:
        """Handle a request that never comes in runs. One-way requests to see a message or facts have no effect."""
        uuid = request.metadata.uuid if request.metadata is not None else None
        if operation is _NOP:
            self._queues.check_health(request)
        elif operation is _CREATE:
            self._queues.create(self, request)
        elif operation is _DELETE:
            self._queues.delete(self, request)
        elif operation is _RELEASE:
            self._messages.release_lock(self, request)
        elif not request.two_way:
            return
        elif operation is _PEEK:
            self._messages.peek(self, request)
        elif operation is _ACQUIRE and uuid is not None:
            self._messages.renew(self, request, uuid)
        elif uuid is not None:
            self._messages.get(self, request, uuid)
        else:
            self._queues.describe(self, request)

    def _go_on_later(self) -> bool:
        """Handle the frame again behind the broker's next tick. Returns what ``handle`` should."""
        self.runtime.turns.work_later(self)
        return False

    def _deny(self, frame: kokaq.KokaqRequest) -> None:
        two_way = frame.first.two_way if isinstance(frame, Requests) else frame.two_way
        if not two_way:
            self.end()
        self._answers.refuse(frame, Reason.NOT_ALLOWED)

    # Pushing

    def _push_run(self, frame: Pushes) -> bool:
        """Publish a run of messages to one queue. Each that is refused has an answer of its own."""
        queue = self._queues.find_or_create(self, frame.namespace, frame.queue)
        if not frame.two_way:
            return self.publish(queue, frame.payloads, PLAIN, lambda taken: _after(frame, taken))
        runtime = self.runtime
        done = runtime.broker.publish(self.connection, queue, frame.payloads, runtime.now())
        if done.accepted:
            self._answers.add(
                lambda: [self._pushed(frame, done, queue)], runtime.broker.log.next_position, done.accepted
            )
        if done.refusal is not None:
            reason = REFUSALS.get(done.refusal, Reason.NOT_ALLOWED)
            self._answers.refuse(_after(frame, done.accepted), reason)
        return True

    def _pushed(self, frame: Pushes, done: PublishResult, queue: Queue) -> Pushed:
        """The UUIDs of the messages that were accepted."""
        count = done.accepted
        uuids = self.runtime.ids.raws(queue, range(done.first, done.first + count))
        return Pushed(frame.message_type, frame.opaques[:count], frame.op_opaques[:count], uuids)

    def _push(self, request: Request, metadata: Metadata) -> bool:
        """Publish one message with metadata."""
        queue = self._queues.find_or_create(self, request.namespace, request.queue)
        asked = metadata.uuid or b""
        if asked and self.runtime.ids.is_ours(asked):
            self._answers.fail(request, Reason.BAD)  # such UUIDs contain the position of their message
            return True
        payload = request.payload or b""
        properties = _properties(metadata)
        done = self.runtime.broker.publish(self.connection, queue, [payload], self.runtime.now(), properties)
        if done.refusal is not None:
            if not request.two_way and done.refusal is not PublishRefusal.EXISTS:
                return self.refused(done, queue, len(payload))
            self._answers.fail(request, REFUSALS.get(done.refusal, Reason.NOT_ALLOWED))
            return True
        given = done.asked_id if done.duplicate else asked
        self._answers.succeed(request, Metadata(uuid=given or self.runtime.ids.own_raw(done.first)))
        return True

    # What a peer reveals about itself

    def _learn(self, frame: kokaq.KokaqRequest) -> None:
        """Note the peer's client ID and how it tags components."""
        request = frame.first if isinstance(frame, Requests) else frame
        if request.client != self._client:
            self._note_client(request.client)
        if isinstance(request, Pushes) or request.payload is not None:
            self._answers.learn_tags(request.tags)

    def _note_client(self, client: int) -> None:
        """Make the client ID part of the source of published messages."""
        self._client = client
        name = CLIENTS[client] if client < len(CLIENTS) else str(client)
        base = b" ".join(self.connection.source.split(b" ")[:2])
        self.connection.source = base + b" " + name.encode()


def _after(run: Pushes, taken: int) -> Pushes:
    """A run without its first messages."""
    return replace(run, opaques=run.opaques[taken:], op_opaques=run.op_opaques[taken:], payloads=run.payloads[taken:])


def _properties(metadata: Metadata) -> Properties:
    return Properties(
        ttl=None if metadata.time_to_live is None else metadata.time_to_live * SECOND,
        expires_at=(metadata.expires_at or 0) * SECOND,
        priority=metadata.priority or 0,
        delay=(metadata.delay or 0) * MILLISECOND,
        correlation_id=metadata.correlation_id or b"",
        request_id=metadata.request_id or b"",
        asked_id=metadata.uuid or b"",
        source_info=(metadata.source or "").encode(),
    )
