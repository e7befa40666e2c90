"""The state that the broker's commands share, the effects they leave behind, and the steps they have in common."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from heapq import heappush
from typing import NamedTuple

from penstock.core.events import EventLog
from penstock.core.held import Lease, WriterEntry
from penstock.core.lane import Item
from penstock.core.queue import Connection, Consumer, Out, Queue
from penstock.schema import Kind, Reason

#: Who did it, when nobody did: deadlines and limits.
NOBODY = b"penstock"
#: As many as anybody could have.
UNLIMITED = 2**62
#: Noted ends of locks that were settled or renewed since, which are not worth clearing away.
LOCK_SLACK = 10_000


class Delivery(NamedTuple):
    """Effect: give these messages to the connection, once the log is durable up to ``after``."""

    connection: Connection
    queue: Queue
    messages: list[Out]
    after: int


class NoMessage(NamedTuple):
    """Effect: tell the connection that the message it waits for will not come."""

    connection: Connection
    queue: Queue


Effect = Delivery | NoMessage


def lock_holds(out: Out, lock: int) -> bool:
    """Whether the message is still out on this lock, and not on one renewed since."""
    return out.lock == lock and out.connection.out.get(out.item.position) is out


class State:
    """Everything the broker knows. Commands are methods of the classes that build on this one."""

    def __init__(self, next_position: int = 1) -> None:
        self.log = EventLog(next_position)
        self.effects: list[Effect] = []
        #: The log is durable below this position. Kept up to date by whoever commits.
        self.committed = next_position
        self.namespaces: dict[str, dict[str, Queue]] = {}
        self.queues: dict[int, Queue] = {}
        self.connections: dict[int, Connection] = {}
        self.next_queue_id = 1
        #: IDs that publishers asked for, of messages that are alive.
        self.asked: dict[bytes, tuple[Queue, int]] = {}
        #: The queue of messages that were moved to another one since this broker started.
        self.homes: dict[int, int] = {}
        #: Leases by their position, in order, and how many messages they have.
        self.leases: dict[int, Lease] = {}
        self.leased = 0
        #: Messages that are out, those of leases included, and how many connections may have together.
        self.out = 0
        self.most_out = UNLIMITED
        #: Consumers with credit that have as much as they may while so many are out.
        self.held_back: dict[Consumer, None] = {}
        self.writers: dict[str, WriterEntry] = {}
        self.partitions = 0
        #: How many writers each owner has, and partitions of them.
        self.shares: dict[str, tuple[int, int]] = {}
        self.draining = False
        self._lease_ends: list[tuple[int, int]] = []
        self._locks: list[tuple[int, int, Out]] = []
        self._lock_serial = 0
        self._lock_limit = LOCK_SLACK
        self._deadlines: list[tuple[int, int]] = []

    def take_effects(self) -> list[Effect]:
        """Hand over the effects of the commands so far."""
        effects, self.effects = self.effects, []
        return effects

    @property
    def locks(self) -> int:
        """Ends of locks that are noted, those of locks that were settled since included."""
        return len(self._locks)

    @property
    def allowance(self) -> int:
        """How many messages a connection may have now: as many as are left for all, and one in any case.

        So n connections that take all they can get have an n + 1st of the total each, and as much is left for others.
        """
        return max(1, self.most_out - self.out + self.leased)

    def count_writer(self, entry: WriterEntry, by: int = 1) -> None:
        """A writer is there (1), or no longer (-1), with the partitions it has now."""
        writers, partitions = self.shares.get(entry.owner, (0, 0))
        self.shares[entry.owner] = (writers + by, partitions + by * len(entry.chunks))
        self.partitions += by * len(entry.chunks)
        if self.shares[entry.owner] == (0, 0):
            del self.shares[entry.owner]

    def schedule(self, queue: Queue) -> None:
        """Note the queue's next deadline, if it is earlier than the one noted. Looks at all of its priorities."""
        self._schedule(queue, queue.next_deadline())

    def _schedule_for(self, queue: Queue, items: Iterable[Item]) -> None:
        """Messages have come to a queue whose other deadlines are noted: note when the first of them expires."""
        self._schedule(queue, min((item.expires for item in items if item.expires), default=None))

    def _schedule(self, queue: Queue, deadline: int | None) -> None:
        if deadline is not None and (not queue.scheduled or deadline < queue.scheduled):
            queue.scheduled = deadline
            heappush(self._deadlines, (deadline, queue.id))

    def _forget(self, queue: Queue, position: int) -> None:
        """A message has left for good."""
        queue.forget(position)
        if self.homes:
            self.homes.pop(position, None)
        if queue.asked:
            asked = queue.asked.pop(position, None)
            if asked is not None:
                del self.asked[asked]

    def _bury(
        self,
        queue: Queue,
        items: Sequence[Item],
        reason: Reason,
        now: int,
        *,
        source: bytes = NOBODY,
        deliveries: Sequence[int] = (),
        delivered_at: Sequence[int] = (),
    ) -> None:
        """Send messages to the dead letters, or drop them where the queue says so. They are in no lane any more.

        ``deliveries`` and ``delivered_at`` are given for messages that were out.
        """
        counts = list(deliveries) or [queue.deliveries.get(item.position, 0) for item in items]
        policy = queue.policy
        drop = not policy.dead_letters or (reason is Reason.EXPIRED and policy.on_expiry == "drop")
        first = self.log.others(
            Kind.DROPPED if drop else Kind.DEAD,
            now,
            queue.id,
            source,
            len(items),
            {
                "message": array("Q", [item.position for item in items]),
                "deliveries": array("I", counts),
                "delivered_at": array("q", list(delivered_at) or [0] * len(items)),
                "reason": array("B", (reason,)) * len(items),
                "retries_left": array("B", [item.retries for item in items]),
            },
        )
        if drop:
            queue.counters.dropped += len(items)
            for item in items:
                self._forget(queue, item.position)
            return
        dead = [
            Item(first + offset, item.position, item.size, 0, item.retries, item.priority, reason)
            for offset, item in enumerate(items)
        ]
        queue.dead.extend(dead)
        for item, count in zip(dead, counts, strict=True):
            queue.note(item, count)
