"""Operations that only some protocols have: browsing messages, managing queues, asking about the broker."""

from __future__ import annotations

from penstock.client.abilities import unsupported
from penstock.client.messages import Delivery, Hold, QueueInfo, Received
from penstock.client.protocol import Abilities


class Operations:
    """Defaults that raise Unsupported. A session overrides one method per ability."""

    abilities: Abilities

    async def renew(self, hold: Hold, lock: float | None) -> None:
        """Extend the lock of a message."""
        raise unsupported(self.abilities, "renew")

    async def acquire(self, queue: str | None, lock: float | None) -> Delivery | None:
        """Lock the head of the queue, if there is one."""
        raise unsupported(self.abilities, "lock")

    async def pop(self, queue: str | None) -> Received | None:
        """Remove the head of the queue."""
        raise unsupported(self.abilities, "pop")

    async def peek(self, queue: str | None) -> Received | None:
        """The next message, left in the queue."""
        raise unsupported(self.abilities, "peek")

    async def get(self, message_id: str, queue: str | None) -> Received | None:
        """The message with this ID."""
        raise unsupported(self.abilities, "get")

    async def queue_info(self, queue: str | None) -> QueueInfo:
        """The broker's description of a queue."""
        raise unsupported(self.abilities, "queue_info")

    async def create_queue(
        self, queue: str | None, *, ttl: int | None, lock: float | None, max_deliveries: int | None, exist_ok: bool
    ) -> bool:
        """Create a queue."""
        raise unsupported(self.abilities, "create_queue")

    async def create_namespace(self, namespace: str, *, exist_ok: bool) -> bool:
        """Create a namespace."""
        raise unsupported(self.abilities, "create_namespace")

    async def delete_queue(self, queue: str | None) -> None:
        """Delete a queue that is empty."""
        raise unsupported(self.abilities, "delete_queue")

    async def delete_namespace(self, namespace: str) -> None:
        """Delete a namespace that is empty."""
        raise unsupported(self.abilities, "delete_namespace")

    async def ping(self) -> None:
        """Ping the broker and wait for its answer."""
        raise unsupported(self.abilities, "ping")

    async def health(self) -> str | None:
        """Why the broker is unhealthy; None if it is healthy."""
        raise unsupported(self.abilities, "health")

    async def counters(self) -> dict[str, int | str]:
        """The broker's own counters."""
        raise unsupported(self.abilities, "counters")
