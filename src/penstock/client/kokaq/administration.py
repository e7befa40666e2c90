"""Browsing messages and managing queues over Kokaq."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from penstock.client.errors import Refused
from penstock.client.kokaq.answers import found, milliseconds, received
from penstock.client.kokaq.requests import Answer
from penstock.client.messages import QueueInfo, Received
from penstock.client.session import ClientSession
from penstock.wire.kokaq import MessageType, Metadata, Opcode, Reason, Response, Status

_FIELDS = [
    name for name in Metadata.__struct_fields__ if name not in ("others", "uuid", "request_id", "correlation_id")
]


class KokaqAdministration(ClientSession):
    """The operations of a Kokaq session on messages, queues and the broker."""

    @abstractmethod
    async def ask(
        self, opcode: Opcode, name: str | None = None, metadata: Metadata | None = None,
        kind: MessageType = MessageType.OPERATIONAL, keep: Callable[[Answer], None] | None = None,
    ) -> Response:  # fmt: skip
        """Send one request and wait for its answer, whatever its status."""

    @abstractmethod
    async def succeed(
        self, what: str, opcode: Opcode, name: str | None = None, metadata: Metadata | None = None,
        kind: MessageType = MessageType.OPERATIONAL,
    ) -> Response:  # fmt: skip
        """Send one request, wait for its answer, and raise :class:`Refused` unless it is a success."""

    async def peek(self, queue: str | None) -> Received | None:
        """The next message, left in the queue; None if the queue is empty."""
        name = self.name(queue)
        answer = found(await self.ask(Opcode.PEEK, name), f"peek at {name!r}")
        return None if answer is None else received(answer)

    async def get(self, message_id: str, queue: str | None) -> Received | None:
        """The message with this ID, wherever it is in its queue; None if there is none."""
        metadata = Metadata(uuid=bytes.fromhex(message_id))
        answer = await self.ask(Opcode.GET, queue, metadata)
        if answer.status == Status.FAIL and answer.reason == Reason.BAD:
            return None
        answer_found = found(answer, f"get message {message_id}")
        return None if answer_found is None else received(answer_found)

    async def queue_info(self, queue: str | None) -> QueueInfo:
        """The broker's description of a queue."""
        name = self.name(queue)
        metadata = (await self.succeed(f"describe {name!r}", Opcode.GET, name)).metadata or Metadata()
        lock = None if metadata.lock_duration is None else metadata.lock_duration / 1000
        return QueueInfo(
            name, metadata.depth, metadata.created_at, metadata.time_to_live, lock, metadata.max_deliveries,
            metadata.source or "",
        )  # fmt: skip

    async def create_queue(
        self,
        queue: str | None,
        *,
        ttl: int | None,
        lock: float | None,
        max_deliveries: int | None,
        exist_ok: bool,
    ) -> bool:
        """Create a queue with these defaults. False if it existed and ``exist_ok`` allows that."""
        metadata = Metadata(time_to_live=ttl, lock_duration=milliseconds(lock), max_deliveries=max_deliveries)
        return await self._create(self.name(queue), metadata, exist_ok)

    async def create_namespace(self, namespace: str, *, exist_ok: bool) -> bool:
        """Create a namespace. False if it existed and ``exist_ok`` allows that."""
        return await self._create(f"{namespace}/", Metadata(), exist_ok)

    async def delete_queue(self, queue: str | None) -> None:
        """Delete a queue. Refused ("not_allowed") unless it is empty."""
        name = self.name(queue)
        await self.succeed(f"delete {name!r}", Opcode.DELETE, name, kind=MessageType.ADMIN)

    async def delete_namespace(self, namespace: str) -> None:
        """Delete a namespace. Refused ("not_allowed") unless it is empty."""
        what = f"delete the namespace {namespace!r}"
        await self.succeed(what, Opcode.DELETE, f"{namespace}/", kind=MessageType.ADMIN)

    async def ping(self) -> None:
        """Ping the broker and wait for its answer."""
        await self.succeed("answer a ping", Opcode.NOP)

    async def health(self) -> str | None:
        """Why the broker is unhealthy; None if it is healthy."""
        answer = await self.ask(Opcode.NOP, kind=MessageType.CONTROL)
        return None if answer.status == Status.SUCCESS else _problem(answer)

    async def counters(self) -> dict[str, int | str]:
        """The broker's counters by name, whichever it sends (docs/protocols/kokaq.md)."""
        answer = await self.succeed("report its counters", Opcode.GET, kind=MessageType.CONTROL)
        metadata = answer.metadata or Metadata()
        named = {name: getattr(metadata, name) for name in _FIELDS if getattr(metadata, name) is not None}
        unnamed = {f"field_0x{field.tag:02x}": int.from_bytes(field.value, "big") for field in metadata.others}
        return {**named, **unnamed}

    async def _create(self, name: str, metadata: Metadata, exist_ok: bool) -> bool:
        defaults = metadata if metadata != Metadata() else None
        try:
            await self.succeed(f"create {name!r}", Opcode.CREATE, name, defaults, MessageType.ADMIN)
        except Refused as refusal:
            if not exist_ok or refusal.reason != "exists":
                raise
            return False
        return True


def _problem(answer: Response) -> str:
    return (answer.metadata.source if answer.metadata else None) or "the broker gives no reason"
