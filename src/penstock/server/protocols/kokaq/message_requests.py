"""Kokaq requests that take, settle and look at messages."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from penstock.core.commands.carry import FoundMessage
from penstock.core.commands.dispatch import TryAgain
from penstock.core.policy import MILLISECOND, SECOND
from penstock.core.queue import Connection, Out
from penstock.server.network.session import Session
from penstock.server.protocols.kokaq.message_answer import MOST
from penstock.server.protocols.kokaq.pending import PendingAnswers
from penstock.server.protocols.kokaq.queue_requests import NotAllowed, QueueRequests
from penstock.wire.kokaq import Metadata, Opcode, Reason, Request, Requests, Status

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime

    AnySession = Session[Any]

#: Requests of a run that are handled before other sessions have their turn.
RUN: Final = 500
#: Queues that are searched for a UUID before other sessions have their turn: 1 millisecond.
SEARCHED_QUEUES: Final = 200
_ACQUIRE: Final = Opcode.ACQUIRE_PEEK_LOCK


class MessageRequests:
    """The requests of one session about messages. Raises TryAgain, Missing or NotAllowed."""

    def __init__(self, runtime: Runtime, answers: PendingAnswers, queues: QueueRequests) -> None:
        self._runtime = runtime
        self._answers = answers
        self._queues = queues
        self._warned_of_pops = False
        #: The request for which a message is searched, and the numbers of the queues that are left to search.
        self._search: tuple[Request, deque[int]] | None = None

    def take(self, session: AnySession, requests: Requests) -> int:
        """Lock or pop a message for each request of a run. Returns how many requests are answered so far."""
        runtime, first = self._runtime, requests.first
        broker, connection, now = runtime.broker, session.connection, runtime.now()
        queue = self._queues.find(session, first)
        runtime.pollers.note(connection, queue, session.active_at)
        wanted = min(len(requests.opaques), RUN, max(1, runtime.requests_share - self._answers.requests))
        locking = first.opcode == _ACQUIRE
        most = min(wanted, self._locks_left(session)) if locking else wanted
        readable = runtime.cold_reads.sound_heads(session, queue, now, most) if most else 0
        if most and not readable:
            return 0
        if locking:
            outs = broker.lock(connection, queue, now, _lock_duration(first), readable)
            taken = len(outs)
            items, deliveries = [out.item for out in outs], [out.deliveries for out in outs]
            self._answers.give(requests, queue, items, deliveries, now, locks=outs)
        else:
            self._warn_of_pops(session, first)
            items, deliveries = broker.pop(connection, queue, now, readable)
            taken = len(items)
            self._answers.give(requests, queue, items, deliveries, now, after=broker.log.next_position)
        if taken < readable and queue.ready and not queue.policy.paused and not broker.draining:
            return taken  # expired messages precede the next one
        if readable < most:
            return taken  # the next message has to be read first
        if taken < wanted:
            reason = Reason.OK if taken < readable else Reason.NOT_ALLOWED
            self._answers.answer_all(requests.part(taken, wanted), Status.FAIL, reason)
        return wanted

    def settle(self, session: AnySession, requests: Requests) -> int:
        """Settle the messages that a run of Deletes names. Returns how many requests are answered so far."""
        runtime, connection = self._runtime, session.connection
        count = len(requests.opaques)
        if count > RUN and requests.first.two_way:
            count = RUN
            requests = requests.part(0, count)
        positions = runtime.ids.raw_positions(requests.uuids)
        first = connection.out.get(positions[0])
        if count > 1 and not _are_alike([connection.out.get(position) for position in positions]):
            for number in range(count):
                self.settle(session, requests.part(number, number + 1))
        elif first is None:
            self._answers.answer_all(requests, Status.FAIL, Reason.BAD)
        else:
            runtime.broker.acknowledge(connection, first.queue, positions, runtime.now())
            self._answers.answer_all(requests, Status.SUCCESS, Reason.OK, runtime.broker.log.next_position)
        return count

    def renew(self, session: AnySession, request: Request, uuid: bytes) -> None:
        """Extend a lock."""
        runtime = self._runtime
        position = runtime.ids.position(uuid) or 0
        out = runtime.broker.renew(session.connection, position, runtime.now(), _lock_duration(request))
        if out is None:
            self._answers.fail(request, Reason.BAD)
        else:
            lock = Metadata(uuid=uuid, expires_at=min(-(-out.deadline // SECOND), MOST))
            self._answers.answer(request, Status.SUCCESS, Reason.OK, lock)

    def release_lock(self, session: AnySession, request: Request) -> None:
        """Return a locked message to its place."""
        runtime = self._runtime
        out = self._held(session.connection, request)
        if out is None:
            self._answers.fail(request, Reason.BAD)
            return
        runtime.broker.release(session.connection, out.queue, out.item.position, runtime.now())
        self._answers.succeed(request)

    def peek(self, session: AnySession, request: Request) -> None:
        """Show the next message and leave it in place."""
        runtime, now = self._runtime, self._runtime.now()
        queue = self._queues.find(session, request)
        if not runtime.cold_reads.sound_heads(session, queue, now):
            self._answers.fail(request, Reason.INFRA)
            return
        item = runtime.broker.peek(queue, now)
        if item is None:
            self._answers.fail(request, Reason.OK)
            return
        self._answers.give(run_of_one(request), queue, [item], [queue.deliveries.get(item.position, 0)], now)

    def get(self, session: AnySession, request: Request, uuid: bytes) -> None:
        """Show the message of this UUID, in whatever state it is."""
        if not session.rights.allow_somewhere("consume"):
            raise NotAllowed
        position = self._runtime.ids.position(uuid)
        found = self._find(session, request, position) if position is not None else None
        # The answer does not reveal whether a message exists in a queue that the peer may not consume from.
        if found is None or not session.allowed("consume", found.queue.namespace, found.queue.name):
            self._answers.fail(request, Reason.BAD)
            return
        self._answers.give(run_of_one(request), found.queue, [found.item], [found.deliveries], self._runtime.now())

    def _find(self, session: AnySession, request: Request, position: int) -> FoundMessage | None:
        """Find a message in the queue that the request names or, a few queues at a time, in any. Or TryAgain."""
        broker = self._runtime.broker
        if request.namespace is not None:
            return broker.find(self._queues.find(session, request), [position]).get(position)
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

    def _held(self, connection: Connection, request: Request) -> Out | None:
        """The message that the request names, if the connection holds it."""
        uuid = request.metadata.uuid if request.metadata is not None else None
        position = self._runtime.ids.position(uuid) if uuid else None
        return connection.out.get(position) if position is not None else None

    def _locks_left(self, session: AnySession) -> int:
        """How many messages more the connection may lock. Each that it holds leaves fewer for all."""
        held, allowance = len(session.connection.out), self._runtime.broker.allowance
        return max(0, min(session.limits.messages_out - held, -(-(allowance - held) // 2)))

    def _warn_of_pops(self, session: AnySession, request: Request) -> None:
        """A peer that holds locks may mean ReleasePeekLock by 0x05, its number in the protocol's document."""
        if session.connection.out and not self._warned_of_pops:
            self._warned_of_pops = True
            self._runtime.log.warning(
                "a peer that holds locks pops: 0x05 takes a message for good, and releases a lock only with its UUID",
                **session.facts(), queue=f"{request.namespace}/{request.queue}",
            )  # fmt: skip


def run_of_one(request: Request) -> Requests:
    """A single request as a run."""
    uuid = request.metadata.uuid if request.metadata is not None else None
    return Requests(request, (request.opaque,), bytes((request.op_opaque,)), () if uuid is None else (uuid,))


def _are_alike(outs: list[Out | None]) -> bool:
    """Whether these are different messages of one queue, all held."""
    first = outs[0]
    if first is None or len(set(outs)) < len(outs):
        return False
    return all(out is not None and out.queue is first.queue for out in outs)


def _lock_duration(request: Request) -> int:
    return (request.metadata.lock_duration or 0) * MILLISECOND if request.metadata is not None else 0
