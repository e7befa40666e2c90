"""The command that publishes messages: admission, and the messages that a queue over its limits drops."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import Enum
from itertools import accumulate
from typing import Final

from penstock.core.budget import OVERFLOW
from penstock.core.commands.dead_letters import dead_letter
from penstock.core.commands.dispatch import dispatch, dispatch_dead
from penstock.core.events import Values
from penstock.core.properties import PLAIN, Properties
from penstock.core.queue import Connection, Queue
from penstock.core.state import BrokerState
from penstock.core.structures.item import Item
from penstock.schema import FOREVER, Reason

#: Properties of any length, which are columns of the same name.
_TEXTS: Final = ("correlation_id", "request_id", "asked_id", "source_info")


class PublishRefusal(Enum):
    """Why a message was not accepted. Nothing of it is kept."""

    FULL = "the queue is full"
    TOO_LARGE = "the message is larger than its queue may be"
    EXISTS = "a message with the ID asked for is alive"
    DISK = "there is not enough free space on the disk"
    MEMORY = "the state of all queues takes too much memory"
    DRAINING = "the broker is shutting down"
    STOPPED = "an operator lets the queues get empty: nothing is taken"


class PublishResult:
    """The first ``accepted`` messages were accepted, at positions from ``first``; the others refused for ``refusal``.

    A message whose request ID is remembered has ``duplicate`` set: ``first`` is where it was published before, and
    ``asked_id`` the ID requested then, which may differ from the one requested now.
    """

    __slots__ = ("accepted", "asked_id", "duplicate", "first", "refusal")

    def __init__(
        self,
        first: int,
        accepted: int,
        refusal: PublishRefusal | None = None,
        *,
        duplicate: bool = False,
        asked_id: bytes = b"",
    ) -> None:
        self.first = first
        self.accepted = accepted
        self.refusal = refusal
        self.duplicate = duplicate
        self.asked_id = asked_id


def publish(
    state: BrokerState,
    connection: Connection,
    queue: Queue,
    payloads: Sequence[bytes],
    now: int,
    properties: Properties = PLAIN,
) -> PublishResult:
    """Add messages at the end of their priority, in order, all with the same properties."""
    plain = properties is PLAIN and not queue.policy.default_ttl  # like most messages: no property has to be examined
    if not plain and (known := _published_before(state, queue, properties, now)) is not None:
        return known
    sizes = list(map(len, payloads))
    size = sum(sizes)
    accepted, refusal = admit(state, queue, sizes, size, delayed=not plain and properties.delay > 0)
    if not accepted:
        return PublishResult(0, 0, refusal)
    if accepted < len(sizes):
        sizes, payloads = sizes[:accepted], payloads[:accepted]
        size = sum(sizes)
    if plain:
        first = state.log.messages(now, queue.id, connection.source, payloads, {}, size=size)
        queue.ready.append_run(first, sizes, 0, 0, FOREVER)
    else:
        first = _add(state, connection, queue, payloads, sizes, now, properties)
    queue.counters.published += accepted
    if queue.waiting or queue.waiting_dead:
        dispatch(state, queue, now)
    else:
        queue.check()
    if queue.ready.tracks_oldest:
        enforce_limits(state, queue, accepted, now)
    return PublishResult(first, accepted, refusal)


def _published_before(state: BrokerState, queue: Queue, properties: Properties, now: int) -> PublishResult | None:
    """The answer if a message with this request ID is remembered, or one with the requested ID is alive."""
    request_id, asked_id = properties.request_id, properties.asked_id
    if request_id and (known := queue.requests.published(request_id, now)) is not None:
        return PublishResult(known[0], 1, duplicate=True, asked_id=known[1])
    if asked_id and asked_id in state.asked:
        return PublishResult(0, 0, PublishRefusal.EXISTS)
    return None


def _add(
    state: BrokerState,
    connection: Connection,
    queue: Queue,
    payloads: Sequence[bytes],
    sizes: list[int],
    now: int,
    properties: Properties,
) -> int:
    """Add messages that have properties. Returns the position of the first."""
    request_id, asked_id = properties.request_id, properties.asked_id
    expires = _expires(queue, now, properties)
    due = now + properties.delay if properties.delay else 0
    columns = _columns(len(payloads), properties, expires, due)
    first = state.log.messages(now, queue.id, connection.source, payloads, columns)
    if request_id and queue.policy.deduplication:
        queue.requests.add(request_id, first, now + queue.policy.deduplication, asked_id)
        state.schedule_requests(queue)
    if asked_id:
        state.asked[asked_id] = (queue, first)
        queue.asked[first] = asked_id
    if due:
        queue.delayed.insert_many(
            delayed_item(first + offset, size, expires, properties.retries, properties.priority, due)
            for offset, size in enumerate(sizes)
        )
    else:
        queue.ready.append_run(first, sizes, properties.priority, expires, properties.retries)
    if expires or due:
        state.schedule_at(queue, min(expires or due, due or expires))
    return first


def admit(
    state: BrokerState, queue: Queue, sizes: Sequence[int], size: int, *, delayed: bool
) -> tuple[int, PublishRefusal | None]:
    """How many of the messages, ``size`` bytes in all, are accepted, and why the rest is refused."""
    if state.draining:
        return 0, PublishRefusal.DRAINING
    if state.publishing_stopped:
        return 0, PublishRefusal.STOPPED
    if state.disk_full or state.log.size + size > state.disk_room:
        return 0, PublishRefusal.DISK
    if state.memory_full:
        return 0, PublishRefusal.MEMORY
    if queue.id in state.overfull:
        return 0, PublishRefusal.FULL
    policy = queue.policy
    count = fitting = len(sizes)
    if not (policy.max_bytes or policy.max_depth):
        return count, None
    if policy.max_bytes:
        fitting = next((i for i, size in enumerate(sizes) if size > policy.max_bytes), count)
    count = min(fitting, _room(queue, sizes, delayed))
    if count < fitting:
        return count, PublishRefusal.FULL
    return count, None if count == len(sizes) else PublishRefusal.TOO_LARGE


def enforce_limits(state: BrokerState, queue: Queue, added: int, now: int) -> None:
    """A queue over its limits drops its oldest ready messages.

    A large message may displace very many small ones, and so may lowered limits: the next ticks continue, and nothing
    more is accepted until there is room.
    """
    policy = queue.policy
    if policy.on_full != "drop-oldest":
        return
    dropped: list[Item] = []
    while (policy.max_depth and queue.depth > policy.max_depth) or (
        policy.max_bytes and queue.bytes > policy.max_bytes
    ):
        oldest = queue.ready.oldest()
        if oldest is None:
            break
        if len(dropped) >= added + OVERFLOW:
            state.overfull[queue.id] = queue
            break
        queue.ready.remove(oldest)
        dropped.append(oldest)
    if dropped:
        dead_letter(state, queue, dropped, Reason.OVERFLOW, now)
        dispatch_dead(state, queue, now)


def continue_overflow(state: BrokerState, now: int) -> None:
    """Continue with a queue that had to drop more messages than one step may."""
    if state.overfull:
        queue = state.overfull.pop(next(iter(state.overfull)))
        if queue.id in state.queues:
            enforce_limits(state, queue, 0, now)


def delayed_item(position: int, size: int, expires: int, retries: int, priority: int, due: int) -> Item:
    """A delayed message in its lane, sorted by the time at which something happens to it next."""
    return Item(min(due, expires) if expires else due, position, size, expires, retries, priority)


def _room(queue: Queue, sizes: Sequence[int], delayed: bool) -> int:
    """How many of the messages the queue has room for.

    A queue that drops its oldest can drop only ready messages: a new one has room if it fits beside the delayed ones.
    """
    policy = queue.policy
    count = len(sizes)
    drops = policy.on_full == "drop-oldest"
    depth, size = (len(queue.delayed), queue.delayed.bytes) if drops else (queue.depth, queue.bytes)
    one_by_one = drops and not delayed
    if policy.max_depth:
        room = max(0, policy.max_depth - depth)
        count = min(count, room) if not (one_by_one and room) else count
    if policy.max_bytes:
        totals = sizes if one_by_one else accumulate(sizes)
        room = policy.max_bytes - size
        count = min(count, next((i for i, total in enumerate(totals) if total > room), count))
    return count


def _expires(queue: Queue, now: int, properties: Properties) -> int:
    """When a message published now expires; 0 = never."""
    ttl, expires_at = properties.ttl, properties.expires_at
    if not expires_at:
        ttl = queue.policy.default_ttl if ttl is None else ttl
        return now + ttl if ttl else 0
    return min(now + ttl, expires_at) if ttl else expires_at


def _columns(count: int, properties: Properties, expires: int, due: int) -> dict[str, Values]:
    """The journal's columns of these messages, without those that have only defaults."""
    columns: dict[str, Values] = {}
    if expires:
        columns["expires_at"] = array("q", (expires,)) * count
    if properties is PLAIN:
        return columns
    if properties.priority:
        columns["priority"] = array("Q", (properties.priority,)) * count
    if properties.retries != FOREVER:
        columns["retries"] = array("B", (properties.retries,)) * count
    if due:
        columns["not_before"] = array("q", (due,)) * count
    if properties.with_ttl:
        columns["with_ttl"] = array("B", (1,)) * count
    for name in _TEXTS:
        if value := getattr(properties, name):
            columns[name] = [value] * count
    return columns
