"""One queue: its waiting messages, those that are out, its dead letters, its subscriptions, and its counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from penstock.core.policy import Policy
from penstock.core.ready import ReadyMessages
from penstock.core.structures.indexed_lanes import DeadLane, RankedLane
from penstock.core.structures.item import Item
from penstock.core.structures.request_ids import RequestIds


@mypyc_attr(native_class=False)
class Miscounted(AssertionError):
    """A queue has lost or invented a message: the broker must not continue."""


class Out:
    """A message that a connection has, with everything needed to return it."""

    __slots__ = (
        "connection",
        "counted",
        "dead",
        "deadline",
        "delivered_at",
        "deliveries",
        "ended",
        "item",
        "lock",
        "queue",
        "shown",
        "single",
    )

    def __init__(
        self,
        queue: Queue,
        item: Item,
        connection: Connection,
        delivered_at: int,
        deliveries: int,
        *,
        dead: bool = False,
    ) -> None:
        self.queue = queue
        self.item = item
        self.connection = connection
        self.delivered_at = delivered_at
        #: Deliveries that ended before this one.
        self.deliveries = deliveries
        #: It is a dead letter.
        self.dead = dead
        #: When its lock ends; 0 = with the connection.
        self.deadline = 0
        #: The number of that lock; renewing makes a new one.
        self.lock = 0
        #: The connection does not have it any more.
        self.ended = False
        #: It counts towards the connection's window on its queue.
        self.counted = False
        #: It was delivered to a single receive, without a window.
        self.single = False
        #: The bytes were handed to the peer. Set by the network side; the core does not read it.
        self.shown = False


class DamagedMessage(NamedTuple):
    """A message that is set aside because its payload can't be read: its place, and the reason."""

    item: Item
    state: str  # ready, delayed or dead
    reason: str


class Connection:
    """A peer in the core. ``source`` is recorded with everything it does."""

    __slots__ = ("given", "id", "out", "source", "spends_retries", "subscriptions", "unshown")

    def __init__(self, id: int, source: bytes, *, spends_retries: bool = False) -> None:  # noqa: A002
        self.id = id
        self.source = source
        #: A message lost with this connection is put at the end and spends a retry, instead of keeping its place.
        self.spends_retries = spends_retries
        self.out: dict[int, Out] = {}
        self.subscriptions: dict[tuple[int, bool], Subscription] = {}
        #: By queue: messages that count towards a window, whether there is one now or not.
        self.given: dict[int, int] = {}
        #: Set when the connection is gone: the messages that never left for the peer.
        self.unshown: Callable[[Out], bool] | None = None


class Subscription:
    """A connection's demand for messages of one queue. ``window`` 0 is a single receive."""

    __slots__ = ("connection", "credit", "dead", "queue", "waiting", "window")

    def __init__(self, connection: Connection, queue: Queue, window: int, *, dead: bool = False) -> None:
        self.connection = connection
        self.queue = queue
        self.window = window
        self.dead = dead
        self.credit = window or 1
        #: Whether it waits in the queue's line.
        self.waiting = False

    @property
    def out(self) -> int:
        """The connection's messages that count towards this window, including those from before it began."""
        return self.connection.given.get(self.queue.id, 0)


COUNTERS: Final = ("acknowledged", "dropped", "moved_in", "moved_out", "popped", "published", "purged")


class QueueCounters:
    """Counts of messages that came in and went out, since the queue was created."""

    __slots__ = COUNTERS

    def __init__(self) -> None:
        self.published = self.moved_in = 0
        self.acknowledged = self.popped = self.dropped = self.purged = self.moved_out = 0

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return {name: getattr(self, name) for name in COUNTERS}

    @property
    def balance(self) -> int:
        """The number of messages that must be in the queue now, in whatever state."""
        gone = self.acknowledged + self.popped + self.dropped + self.purged + self.moved_out
        return self.published + self.moved_in - gone


class Queue:
    """State of one queue. It changes only through the commands of the broker."""

    def __init__(self, id: int, namespace: str, name: str, policy: Policy, created_at: int) -> None:  # noqa: A002
        self.id = id
        self.namespace = namespace
        self.name = name
        self.created_at = created_at
        self.ready = ReadyMessages()
        self.configure(policy)
        #: Sorted by the time at which the message becomes ready, or expires if that is earlier.
        self.delayed = RankedLane()
        #: Sorted by the event that made the message a dead letter.
        self.dead = DeadLane()
        self.out: dict[int, Out] = {}
        #: Messages that can't be read, by position: see ``commands/set_aside``.
        self.damaged: dict[int, DamagedMessage] = {}
        #: Ended deliveries of messages that came back.
        self.deliveries: dict[int, int] = {}
        #: IDs that publishers requested, by position.
        self.asked: dict[int, bytes] = {}
        #: Retry counters as published, of messages that have spent some.
        self.published_retries: dict[int, int] = {}
        #: The rank of ready messages, and of those out, that were once put at the end. Without dead letters.
        self.moved: dict[int, int] = {}
        self.requests = RequestIds()
        #: The deadline that the broker has noted for this queue; 0 = none.
        self.scheduled = 0
        self.waiting: deque[Subscription] = deque()
        self.waiting_dead: deque[Subscription] = deque()
        self.counters = QueueCounters()
        #: Windows and single receives in line for messages.
        self.subscribers = 0
        #: Messages delivered since the broker started, and how many of them not for the first time.
        self.delivered = 0
        self.redelivered = 0

    @property
    def full_name(self) -> str:
        """Namespace and name, for operators."""
        return f"{self.namespace}/{self.name}"

    @property
    def depth(self) -> int:
        """Messages that wait: ready and delayed."""
        return len(self.ready) + len(self.delayed)

    @property
    def bytes(self) -> int:
        """Payload bytes of the messages that wait."""
        return self.ready.bytes + self.delayed.bytes

    @property
    def empty(self) -> bool:
        """Nothing is in the queue, in whatever state."""
        return not (self.ready or self.out or self.damaged or self.delayed or self.dead)

    def check(self) -> None:
        """Check the conservation law: the messages that came in and did not go out are here."""
        here = len(self.ready) + len(self.out) + len(self.delayed) + len(self.dead) + len(self.damaged)
        came = self.counters
        gone = came.acknowledged + came.popped + came.dropped + came.purged + came.moved_out
        if came.published + came.moved_in - gone != here:
            raise Miscounted(
                f"queue {self.full_name}: {self.counters.as_dict()} leaves {self.counters.balance} messages, but "
                f"{here} are here ({len(self.ready)} ready, {len(self.out)} out, {len(self.delayed)} delayed, "
                f"{len(self.dead)} dead, {len(self.damaged)} damaged)"
            )

    def count_delivered(self, messages: int, again: int) -> None:
        """Count deliveries, ``again`` of which are not the first of their message."""
        self.delivered += messages
        self.redelivered += again

    def configure(self, policy: Policy) -> None:
        """Apply other rules from now on."""
        self.policy = policy
        self.ready.track_oldest(policy.on_full == "drop-oldest")

    def find_ready(self, position: int) -> Item | None:
        """The ready message with this position, left in place."""
        return self.ready.find(position, self.moved.get(position, position))

    def clear_waiting(self) -> None:
        """Remove all ready and delayed messages."""
        self.ready.clear()
        self.delayed = RankedLane()

    @property
    def has_notes(self) -> bool:
        """Whether there are notes about single messages."""
        return bool(self.deliveries or self.published_retries or self.moved or self.asked)

    def forget(self, position: int) -> None:
        """Drop the notes about a message that is gone."""
        if self.deliveries:
            self.deliveries.pop(position, None)
        if self.published_retries:
            self.published_retries.pop(position, None)
        if self.moved:
            self.moved.pop(position, None)

    def note(self, item: Item, deliveries: int) -> None:
        """Remember what a lane does not record about a message."""
        if deliveries:
            self.deliveries[item.position] = deliveries
        else:
            self.deliveries.pop(item.position, None)
        if item.rank != item.position and not item.reason:
            self.moved[item.position] = item.rank
        else:
            self.moved.pop(item.position, None)

    def next_deadline(self) -> int | None:
        """When the next ready message expires or the next delayed one is due, or a little earlier."""
        head = self.ready.deadlines.head
        times = [] if head is None else [head[0]]
        if self.delayed:
            times.append(self.delayed.first_rank)
        return min(times, default=None)

    def retries_as_published(self, item: Item) -> int:
        """The retry counter that the message was published with."""
        return self.published_retries.get(item.position, item.retries)
