"""The state that the broker's commands share, and the effects they leave behind.

Its methods keep redundant records in step: deadlines, locks, request IDs, writers' shares. Everything that happens to a
message is in :mod:`penstock.core.commands`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from penstock.core import budget
from penstock.core.events import EventLog
from penstock.core.leases import Lease
from penstock.core.queue import Connection, Out, Queue, Subscription
from penstock.core.structures.item import Item
from penstock.core.structures.ordered import Ordered
from penstock.core.writers import WriterEntry

#: The source of events that no peer caused: deadlines and limits.
BROKER_SOURCE: Final = b"penstock"
#: More messages than any connection could have.
UNLIMITED: Final = 2**62
#: Expired request IDs are searched for at full seconds, so that busy queues are not searched all the time.
REQUEST_STEP: Final = 1_000_000


class DeliveryEffect:
    """Effect: send these messages to the connection, once the log is durable up to ``after``."""

    __slots__ = ("after", "connection", "messages", "queue")

    def __init__(self, connection: Connection, queue: Queue, messages: list[Out], after: int) -> None:
        self.connection = connection
        self.queue = queue
        self.messages = messages
        self.after = after


class WaitEnded(NamedTuple):
    """Effect: the message that the connection waits for will not come."""

    connection: Connection
    queue: Queue


Effect = DeliveryEffect | WaitEnded


@mypyc_attr(allow_interpreted_subclasses=True)  # Broker is a subclass; compiled, it takes no weak references
class BrokerState:
    """The broker's whole state. Commands are functions of it."""

    def __init__(self, next_position: int = 1) -> None:
        self.log = EventLog(next_position)
        self.effects: list[Effect] = []
        #: The log is durable below this position. The engine updates it after a commit.
        self.committed = next_position
        self.namespaces: dict[str, dict[str, Queue]] = {}
        self.queues: dict[int, Queue] = {}
        self.connections: dict[int, Connection] = {}
        self.next_queue_id = 1
        #: Requested IDs of messages that are alive.
        self.asked: dict[bytes, tuple[Queue, int]] = {}
        #: The current queue of messages that were moved since this broker started.
        self.moved_to: dict[int, int] = {}
        #: Leases by their position, in order, and their total number of messages.
        self.leases: dict[int, Lease] = {}
        self.leased = 0
        #: Messages that are out, including leased ones, and the limit for all connections together.
        self.out = 0
        self.most_out = UNLIMITED
        #: Subscriptions with credit whose connections have reached their allowance.
        self.throttled: dict[Subscription, None] = {}
        #: How many of them are still to be examined since messages came back.
        self.throttled_unchecked = 0
        self.writers: dict[str, WriterEntry] = {}
        self.partitions = 0
        #: Numbers of writers and of their partitions by owner.
        self.shares: dict[str, tuple[int, int]] = {}
        self.draining = False
        #: Nothing is accepted and everything is delivered, while an operator empties the queues.
        self.publishing_stopped = False
        #: Set while the disk is too full to accept more; consuming continues.
        self.disk_full = False
        #: The same for the memory of the queues.
        self.memory_full = False
        #: Bytes that may be staged before the disk is too full. Reset whenever staged events are taken.
        self.disk_room = UNLIMITED
        self.lease_ends: list[tuple[int, int]] = []
        #: Ends of locks: the time, a unique number, and the message.
        self.lock_ends: Ordered[tuple[int, int, Out]] = Ordered()
        self.lock_serial = 0
        #: The next time that something is due in a queue, and its number.
        self.deadlines: Ordered[tuple[int, int]] = Ordered()
        #: When request IDs of a queue are over, and its number.
        self.request_ends: Ordered[tuple[int, int]] = Ordered()
        #: Queues with messages to deliver, and departed connections with messages to return.
        self.undispatched: dict[int, Queue] = {}
        self.departed: deque[tuple[Connection, Iterator[Out]]] = deque()
        #: Queues over their limits that have more to drop.
        self.overfull: dict[int, Queue] = {}
        self.refill()

    def refill(self) -> None:
        """Begin a tick: reset the budget until the next."""
        self.hand_out_left = budget.HAND_OUT
        self.return_left = budget.GIVE_BACK
        self.expired_left = budget.COME_ACROSS

    @property
    def unfinished(self) -> bool:
        """Whether commands have left something for the next ``tick``."""
        return bool(self.undispatched or self.departed or self.overfull)

    def take_effects(self) -> list[Effect]:
        """Hand over the effects of the commands so far."""
        effects, self.effects = self.effects, []
        return effects

    @property
    def damaged(self) -> int:
        """The number of messages that are set aside, in all queues."""
        return sum(len(queue.damaged) for queue in self.queues.values())

    @property
    def allowance(self) -> int:
        """How many messages a connection may have now: as many as are left for all, but at least one.

        So n greedy connections have 1/(n + 1) of the total each, and as much is left for the rest.
        """
        return max(1, self.most_out - self.out + self.leased)

    def lock_until(self, out: Out, deadline: int) -> None:
        """Note that a message is locked, or its lock renewed."""
        if out.deadline:
            self.unlock([out])
        self.lock_serial += 1
        out.deadline, out.lock = deadline, self.lock_serial
        self.lock_ends.add((deadline, self.lock_serial, out))

    def lock_new(self, outs: Sequence[Out], deadline: int) -> None:
        """Note new locks of messages that had none, all until the same time."""
        serial = self.lock_serial
        self.lock_serial += len(outs)
        for number, out in enumerate(outs, serial + 1):
            out.deadline, out.lock = deadline, number
        self.lock_ends.add_run([(deadline, out.lock, out) for out in outs])

    def unlock(self, outs: Sequence[Out]) -> None:
        """Drop the locks of messages. They had one."""
        self.lock_ends.remove_many([(out.deadline, out.lock, out) for out in outs])

    def count_writer(self, entry: WriterEntry, by: int = 1) -> None:
        """Count a writer in (1) or out (-1), with its current partitions."""
        writers, partitions = self.shares.get(entry.owner, (0, 0))
        self.shares[entry.owner] = (writers + by, partitions + by * len(entry.chunks))
        self.partitions += by * len(entry.chunks)
        if self.shares[entry.owner] == (0, 0):
            del self.shares[entry.owner]

    def holders(self) -> Iterator[Connection]:
        """All connections with messages, without leases, including departed ones that are not fully returned."""
        yield from self.connections.values()
        for connection, _ in self.departed:
            yield connection

    def schedule(self, queue: Queue) -> None:
        """Note the queue's next deadline, if it is earlier than the one noted."""
        self.schedule_at(queue, queue.next_deadline())

    def schedule_for(self, queue: Queue, items: Iterable[Item]) -> None:
        """Note when the first of the messages that came to a queue expires; its other deadlines are noted already."""
        self.schedule_at(queue, min((item.expires for item in items if item.expires), default=None))

    def schedule_at(self, queue: Queue, deadline: int | None) -> None:
        """Note a deadline of the queue, if it is earlier than the one noted."""
        if deadline is not None and (not queue.scheduled or deadline < queue.scheduled):
            self.unschedule(queue)
            queue.scheduled = deadline
            self.deadlines.add((deadline, queue.id))

    def unschedule(self, queue: Queue) -> None:
        """Forget the deadline that is noted for the queue."""
        if queue.scheduled:
            self.deadlines.remove((queue.scheduled, queue.id))
            queue.scheduled = 0

    def schedule_requests(self, queue: Queue) -> None:
        """Note when the first request ID of the queue is over, if that is earlier than the noted time."""
        ends, noted = queue.requests.next_end, queue.requests.scheduled
        if ends is not None and (not noted or ends < noted - REQUEST_STEP):
            self.unschedule_requests(queue)
            queue.requests.scheduled = (ends // REQUEST_STEP + 1) * REQUEST_STEP
            self.request_ends.add((queue.requests.scheduled, queue.id))

    def unschedule_requests(self, queue: Queue) -> None:
        """Forget when the first request ID of the queue is over."""
        if queue.requests.scheduled:
            self.request_ends.remove((queue.requests.scheduled, queue.id))
            queue.requests.scheduled = 0

    def forget_message(self, queue: Queue, position: int) -> None:
        """Drop the notes about a message that has left for good."""
        queue.forget(position)
        if self.moved_to:
            self.moved_to.pop(position, None)
        if queue.asked:
            asked = queue.asked.pop(position, None)
            if asked is not None:
                del self.asked[asked]
