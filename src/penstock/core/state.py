"""The state that the broker's commands share, and the effects they leave behind.

Its methods keep what is noted twice in step: deadlines, locks, request IDs, writers' shares. Everything that happens to
a message is in :mod:`penstock.core.commands`.
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
from penstock.core.structures.lane import Item
from penstock.core.structures.ordered import Ordered
from penstock.core.writers import WriterEntry

#: Who did it, when nobody did: deadlines and limits.
NOBODY: Final = b"penstock"
#: As many as anybody could have.
UNLIMITED: Final = 2**62
#: Request IDs that are over are looked for at full seconds, so that busy queues are not looked at all the time.
REQUEST_STEP: Final = 1_000_000


class DeliveryEffect:
    """Effect: give these messages to the connection, once the log is durable up to ``after``."""

    __slots__ = ("after", "connection", "messages", "queue")

    def __init__(self, connection: Connection, queue: Queue, messages: list[Out], after: int) -> None:
        self.connection = connection
        self.queue = queue
        self.messages = messages
        self.after = after


class WaitEnded(NamedTuple):
    """Effect: tell the connection that the message it waits for will not come."""

    connection: Connection
    queue: Queue


Effect = DeliveryEffect | WaitEnded


@mypyc_attr(allow_interpreted_subclasses=True)  # the broker is one. Compiled, it takes no weak references
class BrokerState:
    """Everything the broker knows. Commands are functions of it."""

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
        self.moved_to: dict[int, int] = {}
        #: Leases by their position, in order, and how many messages they have.
        self.leases: dict[int, Lease] = {}
        self.leased = 0
        #: Messages that are out, those of leases included, and how many connections may have together.
        self.out = 0
        self.most_out = UNLIMITED
        #: Subscriptions with credit whose connections have as much as they may while so many messages are out.
        self.throttled: dict[Subscription, None] = {}
        #: How many of them are still to be looked at since messages came back.
        self.throttled_unchecked = 0
        self.writers: dict[str, WriterEntry] = {}
        self.partitions = 0
        #: How many writers each owner has, and partitions of them.
        self.shares: dict[str, tuple[int, int]] = {}
        self.draining = False
        #: Nothing is taken in, and everything given out: an operator lets the queues get empty.
        self.publishing_stopped = False
        #: Set while the disk is too full to take more; consuming goes on.
        self.disk_full = False
        #: The same for the memory that the queues take.
        self.memory_full = False
        #: Bytes that may be staged before the disk is too full. Whoever takes what is staged counts again.
        self.disk_room = UNLIMITED
        self.lease_ends: list[tuple[int, int]] = []
        #: Ends of locks: when, a number that tells them apart, and the message.
        self.lock_ends: Ordered[tuple[int, int, Out]] = Ordered()
        self.lock_serial = 0
        #: When something is due in a queue, and its number.
        self.deadlines: Ordered[tuple[int, int]] = Ordered()
        #: When request IDs of a queue are over, and its number.
        self.request_ends: Ordered[tuple[int, int]] = Ordered()
        #: Queues with messages to give out, and connections that are gone with messages to return.
        self.undispatched: dict[int, Queue] = {}
        self.departed: deque[tuple[Connection, Iterator[Out]]] = deque()
        #: Queues that are over their limits, and have more to drop.
        self.overfull: dict[int, Queue] = {}
        self.refill()

    def refill(self) -> None:
        """A tick begins: so much may be done until the next."""
        self.hand_out_left = budget.HAND_OUT
        self.return_left = budget.GIVE_BACK
        self.expired_left = budget.COME_ACROSS

    @property
    def unfinished(self) -> bool:
        """Whether commands so far have left something for the next ``tick``."""
        return bool(self.undispatched or self.departed or self.overfull)

    def take_effects(self) -> list[Effect]:
        """Hand over the effects of the commands so far."""
        effects, self.effects = self.effects, []
        return effects

    @property
    def damaged(self) -> int:
        """How many messages are set aside, in all queues."""
        return sum(len(queue.damaged) for queue in self.queues.values())

    @property
    def allowance(self) -> int:
        """How many messages a connection may have now: as many as are left for all, and one in any case.

        So n connections that take all they can get have an n + 1st of the total each, and as much is left for others.
        """
        return max(1, self.most_out - self.out + self.leased)

    def lock_until(self, out: Out, deadline: int) -> None:
        """A message is locked, or its lock renewed."""
        if out.deadline:
            self.unlock([out])
        self.lock_serial += 1
        out.deadline, out.lock = deadline, self.lock_serial
        self.lock_ends.add((deadline, self.lock_serial, out))

    def lock_new(self, outs: Sequence[Out], deadline: int) -> None:
        """Messages are locked that were not, all until the same time."""
        serial = self.lock_serial
        self.lock_serial += len(outs)
        for number, out in enumerate(outs, serial + 1):
            out.deadline, out.lock = deadline, number
        self.lock_ends.add_run([(deadline, out.lock, out) for out in outs])

    def unlock(self, outs: Sequence[Out]) -> None:
        """Messages have no lock any more. They had one."""
        self.lock_ends.remove_many([(out.deadline, out.lock, out) for out in outs])

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
        for connection, _ in self.departed:
            yield connection

    def schedule(self, queue: Queue) -> None:
        """Note the queue's next deadline, if it is earlier than the one noted."""
        self.schedule_at(queue, queue.next_deadline())

    def schedule_for(self, queue: Queue, items: Iterable[Item]) -> None:
        """Messages have come to a queue whose other deadlines are noted: note when the first of them expires."""
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
        """Note when the first request ID of the queue is over, if that is earlier than what is noted."""
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
        """A message has left for good."""
        queue.forget(position)
        if self.moved_to:
            self.moved_to.pop(position, None)
        if queue.asked:
            asked = queue.asked.pop(position, None)
            if asked is not None:
                del self.asked[asked]
