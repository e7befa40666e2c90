"""Kokaq answers with messages and their metadata, read from the journal when they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.core.policy import SECOND
from penstock.core.queue import Out, Queue
from penstock.core.structures.item import Item
from penstock.journal.errors import UNREADABLE
from penstock.journal.format.rows import MessageRow
from penstock.schema import Reason as DeadReason
from penstock.server.engine.kept_batches import PlainMessage
from penstock.wire import kokaq
from penstock.wire.kokaq import Metadata, Reason, Requests, Response, Status
from penstock.wire.kokaq.fields import parse_fields, write_fields

if TYPE_CHECKING:
    from penstock.server.network.runtime import Runtime

#: The largest number in most fields.
MOST: Final = 2**32 - 1
#: Approximate bytes of a message beside its payload.
METADATA: Final = 256
#: From the field count on: the count, then for each field a tag and a size before its value.
_FIELD_COUNT: Final = 4
_FIELD_HEAD: Final = 2
_SHORT_FIELD: Final = _FIELD_HEAD + 4


class MessageAnswer:
    """Messages as the answers to requests, one each. Called, it reads them from the log and renders the answers."""

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
        #: Empty until they are read; None for a message that can't be.
        self._messages: list[PlainMessage | MessageRow | None] = []
        #: Approximate bytes of the answers.
        self.size = METADATA * len(items) + sum([item.size for item in items])
        self.first_position = min(self.positions)
        self.last_position = max(self.positions)

    @property
    def kept_bytes(self) -> int:
        """Bytes of messages that were read before they are sent."""
        return self.size if self._messages else 0

    def keep(self) -> None:
        """Read the messages now."""
        if not self._messages:
            try:
                self._messages = [*self._runtime.engine.plain(self.positions)]
            except UNREADABLE:  # one of them is damaged since it was taken
                self._messages = [self._read(position) for position in self.positions]

    def _read(self, position: int) -> PlainMessage | MessageRow | None:
        try:
            return self._runtime.engine.plain([position])[0]
        except UNREADABLE as error:
            if not self._runtime.damaged.set_aside(self._queue, self._runtime.engine.damage([position])):
                facts = {"queue": self._queue.full_name, "position": position}
                self._runtime.log.error("a message cannot be shown", **facts, reason=str(error))
            return None

    def __call__(self) -> list[kokaq.KokaqResponse]:
        """Render the answers. Payloads larger than a response are not split yet: see ``kokaq.response_parts``."""
        self.keep()
        for lock, message in zip(self._locks, self._messages, strict=False):
            lock.shown = lock.shown or message is not None
        payloads = [message.payload for message in self._messages if message is not None]
        if len(payloads) == len(self._messages) and max(map(len, payloads)) <= kokaq.WIRE_MAX_PAYLOAD:
            first, requests = self._requests.first, self._requests
            kind = first.message_type, first.opcode, self._queue.namespace, self._queue.name
            run = kokaq.MetadataRun(tuple(self._metadata(0, len(payloads))))
            return [kokaq.Deliveries(*kind, requests.opaques, requests.op_opaques, run, tuple(payloads))]
        return [self._one_by_one(number) for number in range(len(self._messages))]

    def _one_by_one(self, number: int) -> kokaq.Response:
        """Render one answer, of any size; Fail/Infra if the message can't be read."""
        first, message = self._requests.first, self._messages[number]
        kind = first.message_type, self._requests.opaques[number], first.opcode
        opaque = self._requests.op_opaques[number]
        if message is None:
            return Response(*kind, Status.FAIL, Reason.INFRA, opaque, None)
        (raw,) = self._metadata(number, number + 1)
        metadata, names = parse_fields(raw[4:])[0], (self._queue.namespace, self._queue.name)
        return Response(*kind, Status.SUCCESS, Reason.OK, opaque, metadata, *names, message.payload)

    def _metadata(self, start: int, stop: int) -> list[bytes]:
        """The metadata of each message, which must have been read, from the field count on.

        Plain messages of a run mostly differ only in their UUID, or in that and their time; the rest is written once
        for all of them.
        """
        now = self._runtime.now()
        handling = max(0, min(now - self._began, MOST))
        asked = self._queue.asked
        rendered: list[bytes] = []
        pattern: _Pattern | None = None
        for number in range(start, stop):
            item, message = self._items[number], self._messages[number]
            if isinstance(message, PlainMessage) and not (item.expires or item.priority or item.reason or asked):
                deliveries, lock_ends = self._deliveries[number], self._lock_ends[number]
                if pattern is None or not pattern.fits(deliveries, lock_ends, message):
                    pattern = _Pattern(self._runtime.ids.identity, deliveries, lock_ends, message, handling)
                rendered.append(pattern.filled(self.positions[number], message.at))
            else:
                assert message is not None
                fields = self._all_fields(item, self._deliveries[number], self._lock_ends[number], message, now)
                rendered.append(write_fields(fields))
        return rendered

    def _all_fields(
        self, item: Item, deliveries: int, lock_ends: int, message: PlainMessage | MessageRow, now: int
    ) -> Metadata:
        published, ends = message.at, lock_ends or item.expires
        asked = request_id = correlation_id = b""
        if isinstance(message, MessageRow):
            published, asked = (
                message.published_at or message.at,
                message.asked_id,
            )  # if it was popped, only the log has it
            request_id, correlation_id = message.request_id, message.correlation_id
        return Metadata(
            time_to_live=min(max(1, -((now - item.expires) // SECOND)), MOST) if item.expires else None,
            version=deliveries + 1,
            created_at=min(published // SECOND, MOST),
            expires_at=min(-(-ends // SECOND), MOST) if ends else None,
            uuid=asked or self._runtime.ids.raw(self._queue, item.position),
            source=_source(message),
            modified_at=message.at * 1000,
            request_id=request_id or None,
            correlation_id=correlation_id or None,
            handling_time=max(0, min(now - self._began, MOST)),
            priority=item.priority or None,
            dead_reason=DeadReason(item.reason).name.lower() if item.reason else None,
        )


class _Pattern:
    """The fields of plain messages that differ only in their UUID, and in their time within a second."""

    def __init__(self, identity: int, deliveries: int, lock_ends: int, message: PlainMessage, handling: int) -> None:
        self._deliveries, self._lock_ends = deliveries, lock_ends
        self._second, self._source = message.at // SECOND, message.source
        fields = Metadata(
            version=deliveries + 1,
            created_at=min(self._second, MOST),
            expires_at=min(-(-lock_ends // SECOND), MOST) if lock_ends else None,
            uuid=bytes(16),
            source=_source(message),
            modified_at=0,
            handling_time=handling,
        )
        raw = write_fields(fields)
        uuid_at = _FIELD_COUNT + _SHORT_FIELD * (3 if lock_ends else 2) + _FIELD_HEAD
        self._before = raw[:uuid_at] + identity.to_bytes(8, "big")
        #: The fields between the UUID and the time, and behind the time.
        self._between, self._behind = raw[uuid_at + 16 : -_SHORT_FIELD - 8], raw[-_SHORT_FIELD:]
        #: Everything behind the UUID, for messages of the time ``_at``.
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
    """The publisher's own source info, if it sent any; else its protocol, address and client."""
    if isinstance(message, PlainMessage):
        return message.source.decode("utf-8", "replace")[:80]
    if message.source_info:
        return message.source_info.decode("utf-8", "replace")
    return (message.carried_source or message.source).decode("utf-8", "replace")[:80]
