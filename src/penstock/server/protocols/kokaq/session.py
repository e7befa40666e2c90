"""Kokaq sessions. docs/protocols/kokaq.md has the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace
from mypy_extensions import mypyc_attr

from penstock.core.commands.carry import FoundMessage
from penstock.core.commands.dispatch import TryAgain
from penstock.core.commands.publish import PublishRefusal, PublishResult
from penstock.core.policy import MILLISECOND, SECOND, Policy
from penstock.core.properties import PLAIN, Properties
from penstock.core.queue import Out, Queue
from penstock.core.structures.lane import Item
from penstock.endpoint.rights import Right
from penstock.server.network.runtime import Runtime
from penstock.server.network.session import EFFORT, Session
from penstock.server.protocols.kokaq.answers import METADATA, Answers
from penstock.server.protocols.kokaq.listener import KokaqListener
from penstock.server.protocols.kokaq.pending import AnyResponse, PendingAnswers
from penstock.wire import kokaq
from penstock.wire.kokaq import (
    MessageType,
    Metadata,
    Opcode,
    Pushes,
    Reason,
    Request,
    Requests,
    Response,
    Status,
    Tags,
)

NO_METADATA: Final = Metadata()
#: The namespace of a queue that is named without one.
DEFAULT_NAMESPACE: Final = "default"
#: Queues that are asked for a message of which only the ID is known, before others have their turn: 1 millisecond.
SEARCHED_QUEUES: Final = 200
CLIENTS: Final = ("ProxyHttp", "ProxyAmqp", "QueueService", "StorageService", "HealthService")
#: Requests of a run that are worked on before others have their turn, how many of them count as a frame, and bytes of
#: messages that are put into words at a time.
RUN: Final = 500
RUN_EFFORT: Final = 5
GIVE_BYTES: Final = 64 * 1024
#: What a refused push is answered with. A full disk or memory is our trouble, all else the sender's.
REFUSALS: Final = {
    PublishRefusal.EXISTS: Reason.EXISTS,
    PublishRefusal.DISK: Reason.INFRA,
    PublishRefusal.MEMORY: Reason.INFRA,
    PublishRefusal.DRAINING: Reason.INFRA,
    PublishRefusal.STOPPED: Reason.INFRA,
}


@mypyc_attr(native_class=False)
class Missing(Exception):
    """The queue or namespace that a request names does not exist, or it names none."""


@mypyc_attr(native_class=False)
class NotAllowed(Exception):
    """The peer may not do this."""


class KokaqSession(Session[kokaq.KokaqRequest]):
    """A Kokaq client."""

    protocol = "kokaq"

    def __init__(self, runtime: Runtime, listener: KokaqListener) -> None:
        most = min(runtime.options.limits.payload_bytes, kokaq.WIRE_MAX_PAYLOAD)
        self._wire = kokaq.ServerDecoder(most)
        super().__init__(runtime, self._wire)
        self.create_queues = listener.create_queues
        self.answers = Answers(runtime)
        self._pending = PendingAnswers()
        self._client = -1
        #: How the peer's first payload component was tagged; None until one came.
        self._tags: Tags | None = None
        self._told_of_pops = False
        #: The request for which a message is searched, and the numbers of the queues that were not asked yet.
        self._search: tuple[Request, deque[int]] | None = None

    def may_work(self) -> bool:
        """See Session. A peer that does not wait for its answers, or does not read them, has to."""
        runtime = self.runtime
        return not runtime.congested and self._pending.requests < runtime.requests_share and self.room > 0

    def handle(self, frame: kokaq.KokaqRequest) -> bool:
        """See Session."""
        if isinstance(frame, Pushes):
            self._learn(frame)
            return self._push_run(frame)
        if isinstance(frame, Requests):
            self._learn(frame.first)
            return self._run(frame)
        self._learn(frame)
        operation = frame.operation
        if frame.problem is not None or operation is None:
            self.runtime.count("bad_requests")
            self._fail(frame, Reason.BAD)
            return True
        try:
            if operation is Opcode.PUSH:
                return self._push(frame, frame.metadata or NO_METADATA)
            if frame.two_way or operation not in (Opcode.GET, Opcode.PEEK, Opcode.POP, Opcode.ACQUIRE_PEEK_LOCK):
                OPERATIONS[operation](self, frame, frame.metadata or NO_METADATA)
        except TryAgain:
            self.runtime.work_later(self)  # behind the tick that goes on with it
            return False
        except Missing:
            self._fail(frame, Reason.BAD)
        except NotAllowed:
            if not frame.two_way:
                self.end()
            self._fail(frame, Reason.NOT_ALLOWED)
        return True

    @property
    def answers_due(self) -> bool:
        """See Session."""
        return self._pending.due

    def after_loss(self, frame: kokaq.KokaqRequest) -> kokaq.KokaqRequest | None:
        """See Session. Whoever can't be answered has sent one-way requests: nothing is taken out for him."""
        if isinstance(frame, Requests):
            return replace(frame, first=replace(frame.first, two_way=False))
        return replace(frame, two_way=False)

    def release(self, committed: int) -> None:
        """See Session."""
        self._pending.release(self, self._wire.variant, committed)

    def keep(self, before: int) -> None:
        """See Session."""
        self._pending.keep(self, before)

    @property
    def starved(self) -> bool:
        """See Session."""
        return self._pending.starved or super().starved

    # Answers

    def _answer(self, request: Request, words: Callable[[], Sequence[AnyResponse]], after: int = 0) -> None:
        """Answer a request in its turn, once the log is durable up to ``after``. One-way requests get none."""
        if request.two_way:
            self._await(words, after)

    def _await(self, words: Callable[[], Sequence[AnyResponse]], after: int, requests: int = 1) -> None:
        self._pending.add(words, after, requests, self._tags or Tags.DRAWN)
        self.runtime.awaiting[self] = None

    def _fail(self, request: Request, reason: Reason) -> None:
        self._answer(request, lambda: [_response(request, Status.FAIL, reason)])

    def _succeed(self, request: Request, metadata: Metadata | None = None) -> None:
        """Success, once everything that happened so far is durable."""
        after = self.runtime.broker.log.next_position
        self._answer(request, lambda: [_response(request, Status.SUCCESS, Reason.OK, metadata)], after)

    def _answer_run(self, requests: Requests, status: Status, reason: Reason, after: int = 0) -> None:
        """The same answer to each of them, in their turn. One-way requests get none."""
        if requests.opaques and requests.first.two_way:
            first = _response(requests.first, status, reason)
            words = kokaq.Responses(first, requests.opaques, requests.op_opaques)
            self._await(lambda: [words], after, len(requests.opaques))

    def _give(
        self,
        requests: Requests,
        queue: Queue,
        items: Sequence[Item],
        deliveries: Sequence[int],
        now: int,
        *,
        locks: Sequence[Out] = (),
        after: int = 0,
    ) -> None:
        """Messages are the answers, some at a time, each once it is durable, and the log is so up to ``after``."""
        committed, most = self.runtime.broker.committed, min(GIVE_BYTES, self.runtime.output_share)
        positions = [item.position for item in items]
        start = size = 0
        for number, position in enumerate(positions):
            size += METADATA + items[number].size
            stop = number + 1
            if stop == len(items) or size >= most or (position < committed) != (positions[stop] < committed):
                of = slice(start, stop)
                words = self.answers.messages(
                    requests.part(start, stop), queue, items[of], deliveries[of], now, locks[of]
                )
                self._await(words, max(after, max(positions[of]) + 1), stop - start)
                start, size = stop, 0

    # Runs

    def _run(self, requests: Requests) -> bool:
        """Requests that are alike: so many at a time, then others have their turn."""
        first, now = requests.first, self.runtime.now()
        try:
            if first.opcode == Opcode.DELETE:
                done = self._delete_run(requests, now)
            elif not first.two_way:
                done = len(requests.opaques)
            else:
                done = self._take_run(requests, now)
        except TryAgain:
            done = 0
        except (Missing, NotAllowed) as error:
            self._answer_run(requests, Status.FAIL, Reason.NOT_ALLOWED if isinstance(error, NotAllowed) else Reason.BAD)
            return True
        self.effort += done // RUN_EFFORT
        if done >= len(requests.opaques):
            return True
        self.inbox[0] = requests.part(done)
        self.runtime.work_later(self)  # behind the tick that goes on with it
        return False

    def _take_run(self, requests: Requests, now: int) -> int:
        """Lock or pop messages for as many of them as may be done now. Returns how many are answered."""
        first, broker = requests.first, self.runtime.broker
        queue = self._queue(first, "consume")
        self.runtime.pollers.note(self.connection, queue, self.active_at)
        wanted = min(len(requests.opaques), RUN, max(1, self.runtime.requests_share - self._pending.requests))
        locking = first.opcode == Opcode.ACQUIRE_PEEK_LOCK
        most = min(wanted, self._locks_left()) if locking else wanted
        allowed = self.runtime.cold_reads.sound_heads(self, queue, now, most)
        if most and not allowed:
            return 0
        if locking:
            duration = (first.metadata.lock_duration or 0) * MILLISECOND if first.metadata else 0
            outs = broker.lock_run(self.connection, queue, allowed, now, duration)
            taken = len(outs)
            items, deliveries = [out.item for out in outs], [out.deliveries for out in outs]
            self._give(requests, queue, items, deliveries, now, locks=outs)
        else:
            self._warn_of_pops(first)
            items, deliveries = broker.pop_run(self.connection, queue, allowed, now)
            taken = len(items)
            self._give(requests, queue, items, deliveries, now, after=broker.log.next_position)
        if taken < allowed and queue.ready and not queue.policy.paused and not broker.draining:
            return taken  # others, which have expired, stand before the next
        if allowed < most:
            return taken  # what comes next has to be read first
        reason = Reason.OK if taken < allowed else Reason.NOT_ALLOWED
        self._answer_run(requests.part(taken, wanted), Status.FAIL, reason)
        return wanted

    def _locks_left(self) -> int:
        """How many messages more this connection may lock: each that it has leaves fewer for all."""
        held, allowance = len(self.connection.out), self.runtime.broker.allowance
        return max(0, min(self.limits.messages_out - held, -(-(allowance - held) // 2)))

    def _delete_run(self, requests: Requests, now: int) -> int:
        """Settle the messages that are held. Returns how many requests are answered."""
        count = min(len(requests.opaques), RUN) if requests.first.two_way else len(requests.opaques)
        part = requests.part(0, count)
        positions = self.runtime.ids.raw_positions(part.uuids)
        held = self.connection.out
        outs = [held.get(position) for position in positions]
        queue = outs[0].queue if outs[0] is not None else None
        if queue is None or len(set(positions)) < count or any(out is None or out.queue is not queue for out in outs):
            for request in kokaq.singles([part]):
                self._delete(request, request.metadata or NO_METADATA)
            return count
        self.runtime.broker.acknowledge(self.connection, queue, positions, now)
        self._answer_run(part, Status.SUCCESS, Reason.OK, self.runtime.broker.log.next_position)
        return count

    # Pushing

    def _push_run(self, frame: Pushes) -> bool:
        """Many pushes to one queue; those that are refused are answered so, one by one."""
        try:
            queue = self._queue_to_push_to(frame.namespace, frame.queue)
        except (Missing, NotAllowed) as error:
            reason = Reason.NOT_ALLOWED if isinstance(error, NotAllowed) else Reason.BAD
            if isinstance(error, NotAllowed) and not frame.two_way:
                self.end()
            for request in kokaq.singles([frame]):
                self._fail(request, reason)
            return True
        if not frame.two_way:
            return self.publish(queue, frame.payloads, PLAIN, lambda taken: _after(frame, taken))
        runtime = self.runtime
        done = runtime.broker.publish(self.connection, queue, frame.payloads, runtime.now())
        if done.accepted:
            after = runtime.broker.log.next_position
            self._await(lambda: [self.answers.pushed(frame, done, queue)], after, done.accepted)
        if done.refusal is not None:
            reason = REFUSALS.get(done.refusal, Reason.NOT_ALLOWED)
            for request in list(kokaq.singles([frame]))[done.accepted :]:
                self._fail(request, reason)
        return True

    def _push(self, request: Request, metadata: Metadata) -> bool:
        """One push with metadata."""
        if request.namespace is None or request.queue is None:
            raise Missing
        queue = self._queue_to_push_to(request.namespace, request.queue)
        asked = metadata.uuid or b""
        if asked and self.runtime.ids.is_ours(asked):
            self._fail(request, Reason.BAD)  # it would name a message that it is not
            return True
        done = self._publish(queue, request, metadata, asked)
        if done.refusal is not None:
            if not request.two_way and done.refusal is not PublishRefusal.EXISTS:
                return self.refused(done, queue, len(request.payload or b""))
            self._fail(request, REFUSALS.get(done.refusal, Reason.NOT_ALLOWED))
            return True
        given = done.asked_id if done.duplicate else asked
        self._succeed(request, Metadata(uuid=given or self.runtime.ids.own_raw(done.first)))
        return True

    def _publish(self, queue: Queue, request: Request, metadata: Metadata, asked: bytes) -> PublishResult:
        ttl = None if metadata.time_to_live is None else metadata.time_to_live * SECOND
        return self.runtime.broker.publish(
            self.connection,
            queue,
            [request.payload or b""],
            self.runtime.now(),
            Properties(
                ttl=ttl,
                expires_at=(metadata.expires_at or 0) * SECOND,
                priority=metadata.priority or 0,
                delay=(metadata.delay or 0) * MILLISECOND,
                correlation_id=metadata.correlation_id or b"",
                request_id=metadata.request_id or b"",
                asked_id=asked,
                source_info=(metadata.source or "").encode(),
            ),
        )

    # Taking

    def _peek(self, request: Request, metadata: Metadata) -> None:
        queue = self._queue(request, "consume")
        if not self.runtime.cold_reads.sound_heads(self, queue, self.runtime.now()):
            self._fail(request, Reason.INFRA)
            return
        item = self.runtime.broker.peek(queue, self.runtime.now())
        if item is None:
            self._fail(request, Reason.OK)
            return
        deliveries = queue.deliveries.get(item.position, 0)
        self._give(_alone(request), queue, [item], [deliveries], self.runtime.now())

    def _pop(self, request: Request, metadata: Metadata) -> None:
        queue = self._queue(request, "consume")
        self.runtime.pollers.note(self.connection, queue, self.active_at)
        self._warn_of_pops(request)
        if not self.runtime.cold_reads.sound_heads(self, queue, self.runtime.now()):
            self._fail(request, Reason.INFRA)
            return
        taken = self.runtime.broker.pop(self.connection, queue, self.runtime.now())
        if taken is None:
            self._fail(request, Reason.OK)
            return
        item, deliveries = taken
        after = self.runtime.broker.log.next_position
        self._give(_alone(request), queue, [item], [deliveries], self.runtime.now(), after=after)

    def _warn_of_pops(self, request: Request) -> None:
        """Who holds locks may mean ReleasePeekLock by 0x05, as the protocol's document numbers it: say what it is."""
        if self.connection.out and not self._told_of_pops:
            self._told_of_pops = True
            self.runtime.log.warning(
                "a peer that holds locks pops: 0x05 takes a message for good, and releases a lock only with its UUID",
                **self.facts(), queue=f"{request.namespace}/{request.queue}",
            )  # fmt: skip

    def _acquire(self, request: Request, metadata: Metadata) -> None:
        """Lock the head, or renew a lock that the UUID names."""
        broker, now = self.runtime.broker, self.runtime.now()
        duration = (metadata.lock_duration or 0) * MILLISECOND
        if metadata.uuid is not None:
            out = broker.renew(self.connection, self.runtime.ids.position(metadata.uuid) or 0, now, duration)
            if out is None:
                self._fail(request, Reason.BAD)
            else:
                told = Metadata(uuid=metadata.uuid, expires_at=min(-(-out.deadline // SECOND), 2**32 - 1))
                self._answer(request, lambda: [_response(request, Status.SUCCESS, Reason.OK, told)])
            return
        queue = self._queue(request, "consume")
        self.runtime.pollers.note(self.connection, queue, self.active_at)
        if not self._locks_left():
            self._fail(request, Reason.NOT_ALLOWED)
            return
        if not self.runtime.cold_reads.sound_heads(self, queue, now):
            self._fail(request, Reason.INFRA)
            return
        out = broker.lock(self.connection, queue, now, duration)
        if out is None:
            self._fail(request, Reason.OK)
            return
        self._give(_alone(request), queue, [out.item], [out.deliveries], now, locks=[out])

    def _release_lock(self, request: Request, metadata: Metadata) -> None:
        out = self._held(metadata)
        if out is None:
            self._fail(request, Reason.BAD)
            return
        self.runtime.broker.release(self.connection, out.queue, out.item.position, self.runtime.now())
        self._succeed(request)

    def _held(self, metadata: Metadata) -> Out | None:
        """The message that this connection holds the lock of, by its UUID."""
        position = self.runtime.ids.position(metadata.uuid) if metadata.uuid else None
        return self.connection.out.get(position) if position is not None else None

    # Queues and namespaces

    def _nop(self, request: Request, metadata: Metadata) -> None:
        trouble = self.runtime.trouble() if request.message_type is MessageType.CONTROL else ""
        if trouble:
            # The text takes the place of a second opaque byte: who has sent one gets that back, and no text.
            told = Metadata(source=trouble) if not request.nop_opaque else None
            self._answer(request, lambda: [_response(request, Status.FAIL, Reason.INFRA, told)])
        else:
            self._answer(request, lambda: [_response(request, Status.SUCCESS, Reason.OK)])

    def _create(self, request: Request, metadata: Metadata) -> None:
        namespace, name = _names(request)
        self._require("administer", namespace, name)
        runtime = self.runtime
        broker, now = runtime.broker, runtime.now()
        if not name:
            if namespace in broker.namespaces:
                self._fail(request, Reason.EXISTS)
            elif runtime.creation.why_no_queue(namespace):
                self._fail(request, Reason.NOT_ALLOWED)
            else:
                broker.create_namespace(namespace, now, self.connection.source)
                self._succeed(request)
            return
        if broker.queue(namespace, name) is not None:
            self._fail(request, Reason.EXISTS)
        elif runtime.creation.make_queue(namespace, name, self, policy=_policy(metadata)) is None:
            self._fail(request, Reason.NOT_ALLOWED)
        else:
            self._succeed(request)

    def _delete(self, request: Request, metadata: Metadata) -> None:
        """Settle a message that is held, or delete a queue or a namespace that is empty."""
        broker, now = self.runtime.broker, self.runtime.now()
        if metadata.uuid is not None:
            out = self._held(metadata)
            if out is None:
                self._fail(request, Reason.BAD)
            else:
                broker.acknowledge(self.connection, out.queue, (out.item.position,), now)
                self._succeed(request)
            return
        namespace, name = _names(request)
        self._require("administer", namespace, name)
        if name:
            queue = broker.queue(namespace, name)
            if queue is None:
                raise Missing
            done = broker.delete_queue(queue, now, self.connection.source)
        elif namespace in broker.namespaces:
            done = broker.delete_namespace(namespace, now, self.connection.source)
        else:
            raise Missing
        if done:
            self._succeed(request)
        else:
            self._fail(request, Reason.NOT_ALLOWED)

    def _get(self, request: Request, metadata: Metadata) -> None:
        """A message by its UUID, a queue's facts, or the broker's."""
        if metadata.uuid is not None:
            self._get_message(request, metadata.uuid)
            return
        if request.namespace is None and request.message_type is MessageType.CONTROL:
            if not self.rights.allow_everywhere("consume", "administer"):  # it tells of all queues
                raise NotAllowed
            self.effort += len(self.runtime.broker.queues) // EFFORT
            told = self.answers.broker_facts()
        else:
            told = self.answers.queue_facts(self._queue(request, "consume"))
        self._answer(request, lambda: [_response(request, Status.SUCCESS, Reason.OK, told)])

    def _get_message(self, request: Request, uuid: bytes) -> None:
        if not self.rights.allow_somewhere("consume"):
            raise NotAllowed
        position = self.runtime.ids.position(uuid)
        found = self._find(request, position) if position is not None else None
        # One of a queue that is not the peer's to see is answered as one that does not exist.
        if found is None or not self.allowed("consume", found.queue.namespace, found.queue.name):
            self._fail(request, Reason.BAD)
            return
        self._give(_alone(request), found.queue, [found.item], [found.deliveries], self.runtime.now())

    def _find(self, request: Request, position: int) -> FoundMessage | None:
        """A message in the queue that the request names, or in any, a few at a time. Or TryAgain: there are more."""
        broker = self.runtime.broker
        if request.namespace is not None:
            return broker.find(self._queue(request, "consume"), [position]).get(position)
        if self._search is None or self._search[0] is not request:
            self._search = request, deque(broker.queues)
        left = self._search[1]
        for _ in range(min(SEARCHED_QUEUES, len(left))):
            queue = broker.queues.get(left.popleft())
            found = broker.find(queue, [position]).get(position) if queue is not None else None
            if found is not None:
                self._search = None
                return found
        if left:
            raise TryAgain
        self._search = None
        return None

    # Small steps

    def _learn(self, frame: Request | Pushes) -> None:
        """Who the peer says that it is, and how it writes."""
        if frame.client != self._client:
            self._note_client(frame.client)
        if self._tags is None and (isinstance(frame, Pushes) or frame.payload is not None):
            self._tags = frame.tags

    def _note_client(self, client: int) -> None:
        """The client ID is part of who published a message."""
        self._client = client
        name = CLIENTS[client] if client < len(CLIENTS) else str(client)
        base = b" ".join(self.connection.source.split(b" ")[:2])
        self.connection.source = base + b" " + name.encode()

    def _require(self, right: Right, namespace: str, name: str) -> None:
        if not (self.rights.allow(right, namespace, name) or self.allowed(right, namespace, name)):
            raise NotAllowed

    def _queue(self, request: Request, right: Right) -> Queue:
        """The queue that a request names. Raises Missing or NotAllowed."""
        namespace, name = _names(request)
        self._require(right, namespace, name)
        queue = self.runtime.broker.queue(namespace, name)
        if queue is None:
            raise Missing
        return queue

    def _queue_to_push_to(self, namespace: str, name: str) -> Queue:
        namespace = namespace or DEFAULT_NAMESPACE
        if not self.rights.open:
            self._require("publish", namespace, name)
        queue = self.runtime.broker.queue(namespace, name)
        if queue is not None:
            return queue
        if not (self.create_queues and name):
            raise Missing
        queue = self.runtime.creation.make_queue(namespace, name, self)
        if queue is None:
            raise NotAllowed
        return queue


def _after(run: Pushes, taken: int) -> Pushes:
    """What is left of a run without its first messages."""
    return replace(run, opaques=run.opaques[taken:], op_opaques=run.op_opaques[taken:], payloads=run.payloads[taken:])


#: What is done for a request that is no run. (A table of each session's own methods would refer back to it.)
OPERATIONS: Mapping[Opcode, Callable[[KokaqSession, Request, Metadata], None]] = {
    Opcode.NOP: KokaqSession._nop,
    Opcode.CREATE: KokaqSession._create,
    Opcode.DELETE: KokaqSession._delete,
    Opcode.GET: KokaqSession._get,
    Opcode.PEEK: KokaqSession._peek,
    Opcode.POP: KokaqSession._pop,
    Opcode.ACQUIRE_PEEK_LOCK: KokaqSession._acquire,
    Opcode.RELEASE_PEEK_LOCK: KokaqSession._release_lock,
}


def _alone(request: Request) -> Requests:
    """A run of one."""
    return Requests(request, (request.opaque,), bytes((request.op_opaque,)))


def _names(request: Request) -> tuple[str, str]:
    """The namespace and the queue; an empty namespace is the default one, an empty queue is the namespace itself."""
    if request.namespace is None or request.queue is None:
        raise Missing
    return request.namespace or DEFAULT_NAMESPACE, request.queue


def _policy(metadata: Metadata) -> Policy:
    """The rules that a Create brings along."""
    standard = Policy()
    return Policy(
        default_ttl=(metadata.time_to_live or 0) * SECOND,
        max_deliveries=metadata.max_deliveries or 0,
        lock=(metadata.lock_duration or 0) * MILLISECOND or standard.lock,
    )


def _response(request: Request, status: Status, reason: Reason, metadata: Metadata | None = None) -> Response:
    return Response(
        request.message_type, request.opaque, request.opcode, status, reason, request.op_opaque, metadata,
        nop_opaque=request.nop_opaque,
    )  # fmt: skip
