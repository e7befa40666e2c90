"""What Kokaq answers tell: messages with their metadata, facts about queues and about the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.lane import Item
from penstock.core.policy import SECOND
from penstock.core.publishing import Published
from penstock.core.queue import Out, Queue
from penstock.schema import Reason as Why
from penstock.wire import kokaq
from penstock.wire.kokaq import Metadata, Reason, Request, Response, Status

if TYPE_CHECKING:
    from penstock.server.runtime import Runtime

_MOST = 2**32 - 1


class Answers:
    """Puts answers into words."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def pushed(self, frame: kokaq.Pushes, done: Published, queue: Queue) -> kokaq.Pushed:
        """The messages were taken: their UUIDs."""
        count, raw = done.accepted, self._runtime.ids.raw
        uuids = tuple(raw(queue, position) for position in range(done.first, done.first + count))
        return kokaq.Pushed(frame.message_type, frame.opaques[:count], frame.op_opaques[:count], uuids)

    def message(
        self, request: Request, queue: Queue, item: Item, deliveries: int, began: int, lock: Out | None = None
    ) -> Callable[[], list[kokaq.KokaqResponse]]:
        """A message with its metadata, in as many pieces as it takes."""
        lock_ends = lock.deadline if lock is not None else 0

        def words() -> list[kokaq.KokaqResponse]:
            metadata, payload = self._metadata(queue, item, deliveries, began, lock_ends)
            if lock is not None:
                lock.shown = True
            names = queue.namespace, queue.name
            outcome = request.opcode, Status.SUCCESS, Reason.OK, request.op_opaque
            return [
                *kokaq.in_pieces(Response(request.message_type, request.opaque, *outcome, metadata, *names, payload))
            ]

        return words

    def queue_facts(self, queue: Queue) -> Metadata:
        """What a queue says of itself: how many messages are ready, since when it is there, and its rules."""
        policy = queue.policy
        return Metadata(
            created_at=queue.created_at // SECOND,
            depth=queue.ready,
            time_to_live=min(policy.default_ttl // SECOND, _MOST) or None,
            max_deliveries=policy.max_deliveries or None,
            lock_duration=min(policy.lock_duration // 1000, _MOST),
        )

    def broker_facts(self) -> Metadata:
        """What the broker says of itself: how many messages are ready in all, since when it runs, and its counters."""
        runtime = self._runtime
        broker = runtime.broker
        totals = {"connections": len(runtime.sessions), "queues": len(broker.queues)}
        for queue in broker.queues.values():
            for name in ("published", "acknowledged"):
                totals[name] = totals.get(name, 0) + getattr(queue.counters, name)
        told = " ".join(f"{name}={value}" for name, value in totals.items())
        ready = sum(queue.ready for queue in broker.queues.values())
        return Metadata(created_at=runtime.started_at // SECOND, depth=ready, source=told)

    def _metadata(
        self, queue: Queue, item: Item, deliveries: int, began: int, lock_ends: int
    ) -> tuple[Metadata, bytes]:
        (message,) = self._runtime.engine.messages([item.position])
        now = self._runtime.now()
        published = message.published_at or message.at
        ends = lock_ends or item.expires
        metadata = Metadata(
            time_to_live=min(max(1, -((now - item.expires) // SECOND)), _MOST) if item.expires else None,
            version=deliveries + 1,
            created_at=published // SECOND,
            expires_at=min(-(-ends // SECOND), _MOST) if ends else None,
            uuid=message.asked_id or self._runtime.ids.raw(queue, item.position),  # popped: only the log knows it
            source=(message.carried_source or message.source).decode("utf-8", "replace")[:80],
            modified_at=message.at * 1000,
            request_id=message.request_id or None,
            correlation_id=message.correlation_id or None,
            handling_time=max(0, min(now - began, _MOST)),
            priority=item.priority or None,
            dead_reason=Why(item.reason).name.lower() if item.reason else None,
        )
        return metadata, message.payload
