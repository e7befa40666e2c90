"""One queue: its waiting messages, those that are out, its dead letters, who waits for what, and its counters."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.expiry import Expiry
from penstock.core.lane import Item, Lane
from penstock.core.policy import Policy

#: Request IDs that are not worth a sweep.
REQUEST_SLACK = 10_000


class Miscounted(AssertionError):
    """A queue has lost or invented a message: the broker must not go on."""


class Out:
    """A message that somebody has: who, since when, and everything needed to put it back."""

    __slots__ = (
        "connection",
        "consumer",
        "dead",
        "deadline",
        "delivered_at",
        "deliveries",
        "item",
        "lock",
        "queue",
        "shown",
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
        #: Which lock that is: they are numbered, and renewing makes a new one.
        self.lock = 0
        self.consumer: Consumer | None = None
        #: The bytes were handed to the peer. Kept by whoever does that; the core does not look at it.
        self.shown = False


class Aside(NamedTuple):
    """A message that is set aside because its payload can't be read: where it was, and why."""

    item: Item
    state: str  # ready, delayed or dead
    reason: str


class Connection:
    """A peer as the core knows it. ``source`` is written down with everything it does."""

    __slots__ = ("consumers", "id", "out", "source", "spends_retries")

    def __init__(self, id: int, source: bytes, *, spends_retries: bool = False) -> None:  # noqa: A002
        self.id = id
        self.source = source
        #: A message lost with this connection is put at the end and spends a retry, instead of keeping its place.
        self.spends_retries = spends_retries
        self.out: dict[int, Out] = {}
        self.consumers: dict[tuple[int, bool], Consumer] = {}


class Consumer:
    """A connection's wish for messages of one queue: so many more. ``window`` 0 is a single receive."""

    __slots__ = ("connection", "credit", "dead", "out", "queue", "waiting", "window")

    def __init__(self, connection: Connection, queue: Queue, window: int, *, dead: bool = False) -> None:
        self.connection = connection
        self.queue = queue
        self.window = window
        self.dead = dead
        self.out = 0
        self.credit = window or 1
        #: It stands in the queue's line.
        self.waiting = False


class Counters:
    """What has come in and gone out, since the queue was made."""

    __slots__ = ("acknowledged", "dropped", "moved_in", "moved_out", "popped", "published", "purged")

    def __init__(self) -> None:
        self.published = self.moved_in = 0
        self.acknowledged = self.popped = self.dropped = self.purged = self.moved_out = 0

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def held(self) -> int:
        """How many messages must be in the queue now, in whatever state."""
        gone = self.acknowledged + self.popped + self.dropped + self.purged + self.moved_out
        return self.published + self.moved_in - gone


class Queue:
    """State of one queue. It changes only through the commands of the broker."""

    def __init__(self, id: int, namespace: str, name: str, policy: Policy, created_at: int) -> None:  # noqa: A002
        self.id = id
        self.namespace = namespace
        self.name = name
        self.policy = policy
        self.created_at = created_at
        self.lanes: dict[int, Lane] = {}
        self.expiries: dict[int, Expiry] = {}
        #: Priorities that have a lane, lowest first.
        self.priorities: list[int] = []
        #: Sorted by the time at which the message becomes ready, or expires if that is earlier.
        self.delayed = Lane()
        #: Sorted by the event that killed the message.
        self.dead = Lane()
        self.out: dict[int, Out] = {}
        #: Messages that can't be read, by position: see ``aside``.
        self.damaged: dict[int, Aside] = {}
        #: Deliveries that ended, of messages that came back.
        self.deliveries: dict[int, int] = {}
        #: IDs that publishers asked for, by position.
        self.asked: dict[int, bytes] = {}
        #: The retry counter as published, of messages that have spent some.
        self.published_retries: dict[int, int] = {}
        #: The rank of ready messages, and of those out, that were put at the end once. Dead letters are not here.
        self.moved: dict[int, int] = {}
        #: Request ID -> (position, until when it is remembered), oldest first.
        self.requests: dict[bytes, tuple[int, int]] = {}
        #: At so many of them, those that are over are looked for.
        self.request_limit = REQUEST_SLACK
        #: The deadline that the broker has noted for this queue; 0 = none.
        self.scheduled = 0
        self.waiting: deque[Consumer] = deque()
        self.waiting_dead: deque[Consumer] = deque()
        self.counters = Counters()
        self.ready = 0
        self.ready_bytes = 0

    @property
    def full_name(self) -> str:
        """Namespace and name, as operators write it."""
        return f"{self.namespace}/{self.name}"

    @property
    def depth(self) -> int:
        """Messages that wait: ready and delayed."""
        return self.ready + len(self.delayed)

    @property
    def bytes(self) -> int:
        """Payload bytes of the messages that wait."""
        return self.ready_bytes + self.delayed.bytes

    @property
    def empty(self) -> bool:
        """Nothing is in the queue, in whatever state."""
        return not (self.ready or self.out or self.damaged or len(self.delayed) or len(self.dead))

    def check(self) -> None:
        """The conservation law: what came in and did not go out is here."""
        here = self.ready + len(self.out) + len(self.delayed) + len(self.dead) + len(self.damaged)
        if self.counters.held != here:
            raise Miscounted(
                f"queue {self.full_name}: {self.counters.as_dict()} leaves {self.counters.held} messages, but {here} "
                f"are here ({self.ready} ready, {len(self.out)} out, {len(self.delayed)} delayed, "
                f"{len(self.dead)} dead, {len(self.damaged)} damaged)"
            )

    def append_run(self, first: int, sizes: list[int], priority: int, expires: int, retries: int) -> None:
        """New messages, ready at once, at the end of their priority."""
        lane = self._lane(priority)
        before = lane.bytes
        lane.append_run(first, sizes, expires, retries)
        self.ready += len(sizes)
        self.ready_bytes += lane.bytes - before
        if expires:
            self._note_deadline(priority, expires, range(first, first + len(sizes)))

    def put(self, item: Item) -> None:
        """A message is ready, at the place of its rank."""
        self._lane(item.priority).insert(item)
        self.ready += 1
        self.ready_bytes += item.size
        if item.expires:
            self._note_deadline(item.priority, item.expires, (item.rank,))

    def take(self, count: int) -> list[Item]:
        """Remove and return the next ready messages: highest priority first, then by rank."""
        taken: list[Item] = []
        while self.priorities and len(taken) < count:
            lane = self.lanes[self.priorities[-1]]
            before = lane.bytes
            found = lane.take(count - len(taken))
            self.ready -= len(found)
            self.ready_bytes -= before - lane.bytes
            taken += found
            if not lane:
                self._close_lane(self.priorities[-1])
        return taken

    def head(self) -> Item | None:
        """The message that ``take`` would give."""
        return self.lanes[self.priorities[-1]].head() if self.priorities else None

    def oldest(self) -> Item | None:
        """The ready message of the lowest rank, whatever its priority."""
        heads = [head for lane in self.lanes.values() if (head := lane.head()) is not None]
        return min(heads, default=None)

    def remove_ready(self, priority: int, rank: int) -> Item | None:
        """Remove one ready message from the middle."""
        lane = self.lanes.get(priority)
        item = lane.remove(rank) if lane is not None else None
        if item is not None:
            assert lane is not None
            self.ready -= 1
            self.ready_bytes -= item.size
            if not lane:
                self._close_lane(priority)
        return item

    def find_ready(self, position: int) -> Item | None:
        """The ready message with this position."""
        rank = self.moved.get(position, position)
        for lane in self.lanes.values():
            item = lane.get(rank)
            if item is not None and item.position == position:
                return item
        return None

    def clear_waiting(self) -> None:
        """Forget all ready and delayed messages."""
        self.lanes.clear()
        self.expiries.clear()
        self.priorities.clear()
        self.delayed = Lane()
        self.ready = self.ready_bytes = 0

    @property
    def has_notes(self) -> bool:
        """Whether anything is noted about single messages."""
        return bool(self.deliveries or self.published_retries or self.moved or self.asked)

    def forget(self, position: int) -> None:
        """The message is no more: drop what was noted about it."""
        if self.deliveries:
            self.deliveries.pop(position, None)
        if self.published_retries:
            self.published_retries.pop(position, None)
        if self.moved:
            self.moved.pop(position, None)

    def note(self, item: Item, deliveries: int) -> None:
        """Remember what a lane does not say of a message."""
        if deliveries:
            self.deliveries[item.position] = deliveries
        else:
            self.deliveries.pop(item.position, None)
        if item.rank != item.position and not item.reason:
            self.moved[item.position] = item.rank
        else:
            self.moved.pop(item.position, None)

    def take_expired(self, now: int, limit: int) -> list[Item]:
        """Remove and return up to ``limit`` ready messages that have expired, highest priority first."""
        expired: list[Item] = []
        for priority in sorted(self.expiries, reverse=True):
            lane, expiry = self.lanes[priority], self.expiries[priority]

            def expires_of(rank: int, lane: Lane = lane) -> int:
                item = lane.get(rank)
                return item.expires if item else 0

            items = lane.remove_many(expiry.due(now, limit - len(expired), expires_of))
            self.ready -= len(items)
            self.ready_bytes -= sum(item.size for item in items)
            expired += items
            if not lane:
                self._close_lane(priority)
            elif expiry.wants_sweep(len(lane)):
                expiry.sweep(lane.ranks())
        return expired

    def next_deadline(self) -> int | None:
        """When the next ready message expires or the next delayed one is due."""
        times = [at for expiry in self.expiries.values() if (at := expiry.next_deadline()) is not None]
        first = self.delayed.head()
        if first is not None:
            times.append(first.rank)
        return min(times, default=None)

    def retries_as_published(self, item: Item) -> int:
        """The retry counter that the message came with."""
        return self.published_retries.get(item.position, item.retries)

    def _note_deadline(self, priority: int, expires: int, ranks: Iterable[int]) -> None:
        expiry = self.expiries.get(priority)
        if expiry is None:
            expiry = self.expiries[priority] = Expiry()
        expiry.add(expires, ranks)
        lane = self.lanes[priority]
        if expiry.wants_sweep(len(lane)):
            expiry.sweep(lane.ranks())

    def _lane(self, priority: int) -> Lane:
        lane = self.lanes.get(priority)
        if lane is None:
            lane = self.lanes[priority] = Lane(priority)
            insort(self.priorities, priority)
        return lane

    def _close_lane(self, priority: int) -> None:
        """An empty lane goes, so that a queue's cost is what waits in it; left-over deadlines go with it."""
        del self.lanes[priority]
        del self.priorities[bisect_left(self.priorities, priority)]
        self.expiries.pop(priority, None)
