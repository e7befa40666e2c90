"""What Kokaq answers tell: messages with their metadata, facts about queues and about the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.commands.publish import PublishResult
from penstock.core.policy import SECOND
from penstock.core.queue import Out, Queue
from penstock.core.structures.lane import Item
from penstock.journal.errors import UNREADABLE
from penstock.journal.format.rows import MessageRow
from penstock.schema import Reason as Why
from penstock.wire import kokaq
from penstock.wire.kokaq import Metadata, Reason, Request, Response, Status

if TYPE_CHECKING:
    from penstock.server.runtime import Runtime

_MOST = 2**32 - 1
#: About what a message has beside its payload.
METADATA = 256


class Answers:
    """Puts answers into words."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def pushed(self, frame: kokaq.Pushes, done: PublishResult, queue: Queue) -> kokaq.Pushed:
        """The messages were taken: their UUIDs."""
        count, raw = done.accepted, self._runtime.ids.raw
        uuids = tuple(raw(queue, position) for position in range(done.first, done.first + count))
        return kokaq.Pushed(frame.message_type, frame.opaques[:count], frame.op_opaques[:count], uuids)

    def message(
        self, request: Request, queue: Queue, item: Item, deliveries: int, began: int, lock: Out | None = None
    ) -> MessageAnswer:
        """A message with its metadata, in as many pieces as it takes."""
        return MessageAnswer(self._runtime, request, queue, item, deliveries, began, lock)

    def queue_facts(self, queue: Queue) -> Metadata:
        """What a queue says of itself: how many messages are ready, since when it is there, and its rules."""
        policy = queue.policy
        return Metadata(
            created_at=min(queue.created_at // SECOND, _MOST),
            depth=queue.ready,
            time_to_live=min(policy.default_ttl // SECOND, _MOST) or None,
            max_deliveries=policy.max_deliveries or None,
            lock_duration=min(policy.lock_duration // 1000, _MOST),
            source=_limits(queue),
        )

    def broker_facts(self) -> Metadata:
        """What the broker says of itself: how many messages are ready in all, since when it runs, and its counters."""
        runtime = self._runtime
        broker = runtime.broker
        totals = {"connections": len(runtime.sessions), "queues": len(broker.queues)}
        for queue in broker.queues.values():
            for name in ("published", "acknowledged"):
                totals[name] = totals.get(name, 0) + getattr(queue.counters, name)
        if broker.damaged:
            totals["damaged"] = broker.damaged
        totals["max_payload"] = runtime.options.limits.payload_bytes
        told = " ".join(f"{name}={value}" for name, value in totals.items())
        ready = sum(queue.ready for queue in broker.queues.values())
        return Metadata(created_at=min(runtime.started_at // SECOND, _MOST), depth=ready, source=told)


class MessageAnswer:
    """A message for who asked for it, read from the log when the answer's turn has come."""

    def __init__(
        self,
        runtime: Runtime,
        request: Request,
        queue: Queue,
        item: Item,
        deliveries: int,
        began: int,
        lock: Out | None,
    ) -> None:
        self.position = item.position
        self._runtime = runtime
        self._request = request
        self._queue = queue
        self._item = item
        self._deliveries = deliveries
        self._began = began
        self._lock = lock
        self._lock_ends = lock.deadline if lock is not None else 0
        self._message: MessageRow | None = None
        self._is_damaged = False

    @property
    def size(self) -> int:
        """About how many bytes the answer has."""
        return METADATA + self._item.size

    @property
    def kept_bytes(self) -> int:
        """What it has read before its turn."""
        return 0 if self._message is None else self.size

    def keep(self) -> None:
        """The log will not have the message much longer: read it now."""
        if self._message is None and not self._is_damaged:
            try:
                (self._message,) = self._runtime.engine.messages([self.position])
            except UNREADABLE as error:  # it could be when it was taken
                self._is_damaged = True
                if not self._runtime.set_aside(self._queue, self._runtime.engine.damage([self.position])):
                    facts = {"queue": self._queue.full_name, "position": self.position}
                    self._runtime.log.error("a message can not be shown", **facts, reason=str(error))

    def __call__(self) -> list[kokaq.KokaqResponse]:
        """The answer, in as many pieces as it takes."""
        self.keep()
        if self._message is None:
            told = self._request
            failed = told.opcode, Status.FAIL, Reason.INFRA, told.op_opaque
            return [Response(told.message_type, told.opaque, *failed, None)]
        metadata = self._metadata(self._message)
        if self._lock is not None:
            self._lock.shown = True
        request, names = self._request, (self._queue.namespace, self._queue.name)
        outcome = request.opcode, Status.SUCCESS, Reason.OK, request.op_opaque
        response = Response(request.message_type, request.opaque, *outcome, metadata, *names, self._message.payload)
        return [*kokaq.in_pieces(response)]

    def _metadata(self, message: MessageRow) -> Metadata:
        item, deliveries = self._item, self._deliveries
        now = self._runtime.now()
        published = message.published_at or message.at
        ends = self._lock_ends or item.expires
        return Metadata(
            time_to_live=min(max(1, -((now - item.expires) // SECOND)), _MOST) if item.expires else None,
            version=deliveries + 1,
            created_at=min(published // SECOND, _MOST),
            expires_at=min(-(-ends // SECOND), _MOST) if ends else None,
            uuid=message.asked_id or self._runtime.ids.raw(self._queue, item.position),  # popped: only the log knows it
            source=_source(message),
            modified_at=message.at * 1000,
            request_id=message.request_id or None,
            correlation_id=message.correlation_id or None,
            handling_time=max(0, min(now - self._began, _MOST)),
            priority=item.priority or None,
            dead_reason=Why(item.reason).name.lower() if item.reason else None,
        )


def _source(message: MessageRow) -> str:
    """What the publisher said of itself, if it did; else its protocol, address and client."""
    if message.source_info:
        return message.source_info.decode("utf-8", "replace")
    return (message.carried_source or message.source).decode("utf-8", "replace")[:80]


def _limits(queue: Queue) -> str | None:
    """What a queue may hold, and how many bytes it has, if it is limited at all."""
    policy = queue.policy
    told = {"max_depth": policy.max_depth, "max_bytes": policy.max_bytes}
    found = {name: value for name, value in told.items() if value}
    return " ".join(f"{name}={value}" for name, value in {**found, "bytes": queue.bytes}.items()) if found else None
