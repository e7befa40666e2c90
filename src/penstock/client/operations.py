"""What only some protocols can do: looking at messages, queues and the broker itself."""

from __future__ import annotations

from penstock.client.abilities import unsupported
from penstock.client.messages import Delivery, Hold, QueueInfo, Received
from penstock.client.protocol import Abilities


class Operations:
    """The part of a session that most protocols don't have. A session has a method of its own for each ability."""

    abilities: Abilities

    async def renew(self, hold: Hold, lock: float | None) -> None:
        """Keep a message locked for longer."""
        raise unsupported(self.abilities, "renew")

    async def acquire(self, queue: str | None, lock: float | None) -> Delivery | None:
        """Lock the head of the queue, if there is one."""
        raise unsupported(self.abilities, "lock")

    async def pop(self, queue: str | None) -> Received | None:
        """Take the head of the queue for good."""
        raise unsupported(self.abilities, "pop")

    async def peek(self, queue: str | None) -> Received | None:
        """The message that would come next."""
        raise unsupported(self.abilities, "peek")

    async def get(self, message_id: str, queue: str | None) -> Received | None:
        """The message with this ID."""
        raise unsupported(self.abilities, "get")

    async def queue_info(self, queue: str | None) -> QueueInfo:
        """What the broker tells about a queue."""
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
        """Ask for a sign of life, and wait for it."""
        raise unsupported(self.abilities, "ping")

    async def health(self) -> str | None:
        """What ails the broker; None if it is well."""
        raise unsupported(self.abilities, "health")

    async def counters(self) -> dict[str, int | str]:
        """The broker's own counters."""
        raise unsupported(self.abilities, "counters")
