"""What Kokaq answers tell: messages with their metadata, facts about queues and about the broker."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.core.commands.publish import PublishResult
from penstock.core.policy import SECOND
from penstock.core.queue import Out, Queue
from penstock.core.structures.lane import Item
from penstock.journal.errors import UNREADABLE
from penstock.journal.format.rows import MessageRow
from penstock.schema import Reason as Why
from penstock.server.engine.kept_batches import PlainMessage
from penstock.wire import kokaq
from penstock.wire.kokaq import Metadata, Reason, Requests, Response, Status
from penstock.wire.kokaq.fields import parse_fields, write_fields

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime

_MOST: Final = 2**32 - 1
#: About what a message has beside its payload.
METADATA: Final = 256


class Answers:
    """Puts answers into words."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def pushed(self, frame: kokaq.Pushes, done: PublishResult, queue: Queue) -> kokaq.Pushed:
        """The messages were taken: their UUIDs."""
        count = done.accepted
        uuids = self._runtime.ids.raws(queue, range(done.first, done.first + count))
        return kokaq.Pushed(frame.message_type, frame.opaques[:count], frame.op_opaques[:count], uuids)

    def messages(
        self,
        requests: Requests,
        queue: Queue,
        items: Sequence[Item],
        deliveries: Sequence[int],
        began: int,
        locks: Sequence[Out] = (),
    ) -> MessageAnswer:
        """Messages with their metadata, one for each request, in as many pieces as they take."""
        return MessageAnswer(self._runtime, requests, queue, items, deliveries, began, locks)

    def queue_facts(self, queue: Queue) -> Metadata:
        """What a queue says of itself: how many messages are ready, since when it is there, and its rules."""
        policy = queue.policy
        return Metadata(
            created_at=min(queue.created_at // SECOND, _MOST),
            depth=queue.ready,
            time_to_live=min(policy.default_ttl // SECOND, _MOST) or None,
            max_deliveries=policy.max_deliveries or None,
            lock_duration=min(policy.lock // 1000, _MOST),
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
    """Messages for who asked for them, read from the log when the answers' turn has come."""

    def __init__(
        self,
        runtime: Runtime,
        requests: Requests,
        queue: Queue,
        items: Sequence[Item],
        deliveries: Sequence[int],
        began: int,
        locks: Sequence[Out],
    ) -> None:
        self._runtime = runtime
        self._requests = requests
        self._queue = queue
        self._items = items
        self._deliveries = deliveries
        self._began = began
        self._locks = locks
        self._lock_ends = [lock.deadline for lock in locks] or [0] * len(items)
        self.positions = [item.position for item in items]
        #: What was read, None for what can't be; empty as long as nothing was.
        self._messages: list[PlainMessage | MessageRow | None] = []
        #: About how many bytes the answers have, and where the first of the messages lies.
        self.size = METADATA * len(items) + sum(item.size for item in items)
        self.position = min(self.positions)

    @property
    def kept_bytes(self) -> int:
        """What it has read before its turn."""
        return self.size if self._messages else 0

    def keep(self) -> None:
        """The log will not have the messages much longer: read them now."""
        if not self._messages:
            try:
                self._messages = [*self._runtime.engine.plain(self.positions)]
            except UNREADABLE:  # one of them, and it could be when it was taken
                self._messages = [self._read(position) for position in self.positions]

    def _read(self, position: int) -> PlainMessage | MessageRow | None:
        try:
            return self._runtime.engine.plain([position])[0]
        except UNREADABLE as error:
            if not self._runtime.damaged.set_aside(self._queue, self._runtime.engine.damage([position])):
                facts = {"queue": self._queue.full_name, "position": position}
                self._runtime.log.error("a message can not be shown", **facts, reason=str(error))
            return None

    def __call__(self) -> list[kokaq.KokaqResponse]:
        """The answers. One that is larger than a response can hold is whole: see ``kokaq.response_parts``."""
        self.keep()
        for lock, message in zip(self._locks, self._messages, strict=False):
            lock.shown = lock.shown or message is not None
        payloads = [message.payload for message in self._messages if message is not None]
        if len(payloads) == len(self._messages) and max(map(len, payloads)) <= kokaq.WIRE_MAX_PAYLOAD:
            told, requests = self._requests.first, self._requests
            kind = told.message_type, told.opcode, self._queue.namespace, self._queue.name
            run = kokaq.MetadataRun(tuple(self._metadata(0, len(payloads))))
            return [kokaq.Deliveries(*kind, requests.opaques, requests.op_opaques, run, tuple(payloads))]
        return [self._one_by_one(number) for number in range(len(self._messages))]

    def _one_by_one(self, number: int) -> kokaq.Response:
        """One of the answers, of whatever size; or that the message can't be read."""
        told, message = self._requests.first, self._messages[number]
        kind = told.message_type, self._requests.opaques[number], told.opcode
        opaque = self._requests.op_opaques[number]
        if message is None:
            return Response(*kind, Status.FAIL, Reason.INFRA, opaque, None)
        (raw,) = self._metadata(number, number + 1)
        metadata, names = parse_fields(raw[4:])[0], (self._queue.namespace, self._queue.name)
        return Response(*kind, Status.SUCCESS, Reason.OK, opaque, metadata, *names, message.payload)

    def _metadata(self, start: int, stop: int) -> list[bytes]:
        """What is told of each message, which must have been read, from the field count on.

        Plain messages of a run mostly differ in their UUID alone, or in that and their time: the rest is written once
        for all of them.
        """
        now = self._runtime.now()
        handling = max(0, min(now - self._began, _MOST))
        asked = self._queue.asked
        told: list[bytes] = []
        pattern: _Pattern | None = None
        for number in range(start, stop):
            item, message = self._items[number], self._messages[number]
            if isinstance(message, PlainMessage) and not (item.expires or item.priority or item.reason or asked):
                deliveries, lock_ends = self._deliveries[number], self._lock_ends[number]
                if pattern is None or not pattern.fits(deliveries, lock_ends, message):
                    pattern = _Pattern(self._runtime.ids.identity, deliveries, lock_ends, message, handling)
                told.append(pattern.filled(self.positions[number], message.at))
            else:
                assert message is not None
                more = self._all_fields(item, self._deliveries[number], self._lock_ends[number], message, now)
                told.append(write_fields(more))
        return told

    def _all_fields(
        self, item: Item, deliveries: int, lock_ends: int, message: PlainMessage | MessageRow, now: int
    ) -> Metadata:
        published, ends = message.at, lock_ends or item.expires
        asked = request_id = correlation_id = b""
        if isinstance(message, MessageRow):
            published, asked = message.published_at or message.at, message.asked_id  # popped: only the log knows it
            request_id, correlation_id = message.request_id, message.correlation_id
        return Metadata(
            time_to_live=min(max(1, -((now - item.expires) // SECOND)), _MOST) if item.expires else None,
            version=deliveries + 1,
            created_at=min(published // SECOND, _MOST),
            expires_at=min(-(-ends // SECOND), _MOST) if ends else None,
            uuid=asked or self._runtime.ids.raw(self._queue, item.position),
            source=_source(message),
            modified_at=message.at * 1000,
            request_id=request_id or None,
            correlation_id=correlation_id or None,
            handling_time=max(0, min(now - self._began, _MOST)),
            priority=item.priority or None,
            dead_reason=Why(item.reason).name.lower() if item.reason else None,
        )


class _Pattern:
    """The fields of plain messages that are alike but for their UUID, and their time within a second."""

    def __init__(self, identity: int, deliveries: int, lock_ends: int, message: PlainMessage, handling: int) -> None:
        self._deliveries, self._lock_ends = deliveries, lock_ends
        self._second, self._source = message.at // SECOND, message.source
        told = Metadata(
            version=deliveries + 1,
            created_at=min(self._second, _MOST),
            expires_at=min(-(-lock_ends // SECOND), _MOST) if lock_ends else None,
            uuid=bytes(16),
            source=_source(message),
            modified_at=0,
            handling_time=handling,
        )
        raw = write_fields(told)
        uuid_at = 4 + 6 * (3 if lock_ends else 2) + 2
        behind = 6
        self._before = raw[:uuid_at] + identity.to_bytes(8, "big")
        self._between, self._behind = raw[uuid_at + 16 : -behind - 8], raw[-behind:]
        #: Of which time the rest is: what comes behind the UUID.
        self._at = message.at
        self._rest = self._rest_of(message.at)
        self._pack = Struct(f">{len(self._before)}sQ{len(self._rest)}s").pack

    def _rest_of(self, at: int) -> bytes:
        return self._between + (at * 1000).to_bytes(8, "big") + self._behind

    def fits(self, deliveries: int, lock_ends: int, message: PlainMessage) -> bool:
        """Whether a message is like these."""
        if deliveries != self._deliveries or lock_ends != self._lock_ends:
            return False
        return message.at // SECOND == self._second and message.source == self._source

    def filled(self, position: int, at: int) -> bytes:
        """The fields of the message of this position and time."""
        if at != self._at:
            self._at, self._rest = at, self._rest_of(at)
        return self._pack(self._before, position, self._rest)


def _source(message: PlainMessage | MessageRow) -> str:
    """What the publisher said of itself, if it did; else its protocol, address and client."""
    if isinstance(message, PlainMessage):
        return message.source.decode("utf-8", "replace")[:80]
    if message.source_info:
        return message.source_info.decode("utf-8", "replace")
    return (message.carried_source or message.source).decode("utf-8", "replace")[:80]


def _limits(queue: Queue) -> str | None:
    """What a queue may hold, and how many bytes it has, if it is limited at all."""
    policy = queue.policy
    told = {"max_depth": policy.max_depth, "max_bytes": policy.max_bytes}
    found = {name: value for name, value in told.items() if value}
    return " ".join(f"{name}={value}" for name, value in {**found, "bytes": queue.bytes}.items()) if found else None
