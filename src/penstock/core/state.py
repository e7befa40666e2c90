"""The state that the broker's commands share, the effects they leave behind, and the steps they have in common."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.core import budget
from penstock.core.events import EventLog
from penstock.core.held import Lease, WriterEntry
from penstock.core.lane import Item
from penstock.core.ordered import Ordered
from penstock.core.queue import Connection, Consumer, Out, Queue
from penstock.schema import Kind, Reason

#: Who did it, when nobody did: deadlines and limits.
NOBODY = b"penstock"
#: As many as anybody could have.
UNLIMITED = 2**62
#: Request IDs that are over are looked for at full seconds, so that busy queues are not looked at all the time.
REQUEST_STEP = 1_000_000


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
        #: How many of them are still to be looked at since messages came back.
        self._unlooked = 0
        self.writers: dict[str, WriterEntry] = {}
        self.partitions = 0
        #: How many writers each owner has, and partitions of them.
        self.shares: dict[str, tuple[int, int]] = {}
        self.draining = False
        self._lease_ends: list[tuple[int, int]] = []
        #: Ends of locks: when, a number that tells them apart, and the message.
        self._locks: Ordered[tuple[int, int, Out]] = Ordered()
        self._lock_serial = 0
        #: When something is due in a queue, and its number.
        self._deadlines: Ordered[tuple[int, int]] = Ordered()
        #: When request IDs of a queue are over, and its number.
        self._request_ends: Ordered[tuple[int, int]] = Ordered()
        #: Queues with messages to give out, and connections that are gone with messages to put back: see ``go_on``.
        self._undispatched: dict[int, Queue] = {}
        self._gone: deque[tuple[Connection, Iterator[Out]]] = deque()
        #: Queues that are over their limits, and have more to let go.
        self._crowded: dict[int, Queue] = {}
        self._refill()

    def _refill(self) -> None:
        """A tick begins: so much may be done until the next."""
        self._hand_out_left = budget.HAND_OUT
        self._give_back_left = budget.GIVE_BACK
        self._expired_left = budget.COME_ACROSS

    @property
    def unfinished(self) -> bool:
        """Whether commands so far have left something for the next ``tick``."""
        return bool(self._undispatched or self._gone or self._crowded)

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

    def holders(self) -> Iterator[Connection]:
        """Everybody who has messages, leases apart; also those who are gone, while some of theirs are not put back."""
        yield from self.connections.values()
        for connection, _ in self._gone:
            yield connection

    def schedule(self, queue: Queue) -> None:
        """Note the queue's next deadline, if it is earlier than the one noted."""
        self._schedule(queue, queue.next_deadline())

    def _schedule_for(self, queue: Queue, items: Iterable[Item]) -> None:
        """Messages have come to a queue whose other deadlines are noted: note when the first of them expires."""
        self._schedule(queue, min((item.expires for item in items if item.expires), default=None))

    def _schedule(self, queue: Queue, deadline: int | None) -> None:
        if deadline is not None and (not queue.scheduled or deadline < queue.scheduled):
            self._unschedule(queue)
            queue.scheduled = deadline
            self._deadlines.add((deadline, queue.id))

    def _unschedule(self, queue: Queue) -> None:
        if queue.scheduled:
            self._deadlines.remove((queue.scheduled, queue.id))
            queue.scheduled = 0

    def schedule_requests(self, queue: Queue) -> None:
        """Note when the first request ID of the queue is over, if that is earlier than what is noted."""
        ends, noted = queue.requests.next_end, queue.requests.scheduled
        if ends is not None and (not noted or ends < noted - REQUEST_STEP):
            self._unschedule_requests(queue)
            queue.requests.scheduled = (ends // REQUEST_STEP + 1) * REQUEST_STEP
            self._request_ends.add((queue.requests.scheduled, queue.id))

    def _unschedule_requests(self, queue: Queue) -> None:
        if queue.requests.scheduled:
            self._request_ends.remove((queue.requests.scheduled, queue.id))
            queue.requests.scheduled = 0

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
