"""Commands that bring messages in."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import Enum
from itertools import accumulate
from typing import NamedTuple

from penstock.core.delivering import Delivering
from penstock.core.events import Values
from penstock.core.lane import Item
from penstock.core.queue import REQUEST_SLACK, Connection, Queue
from penstock.schema import FOREVER, Reason


class Refusal(Enum):
    """Why a message was not taken. Nothing of it is kept."""

    FULL = "the queue is full"
    TOO_LARGE = "the message is larger than its queue may be"
    EXISTS = "a message with the ID asked for is alive"
    DISK = "there is not enough free space on the disk"
    DRAINING = "the broker is shutting down"


class Published(NamedTuple):
    """The first ``accepted`` messages were taken, at positions from ``first``; the others were refused for ``refusal``.

    A message whose request ID is remembered has ``duplicate`` set: ``first`` is where it was published before.
    """

    first: int
    accepted: int
    refusal: Refusal | None = None
    duplicate: bool = False


class Publishing(Delivering):
    """The ways into a queue."""

    #: Set while the disk is too full to take more; consuming goes on.
    disk_full = False
    #: Bytes that may be staged before it is. Whoever takes what is staged counts again.
    disk_room = 2**62

    def publish(
        self,
        connection: Connection,
        queue: Queue,
        payloads: Sequence[bytes],
        now: int,
        *,
        ttl: int | None = None,
        expires_at: int = 0,
        priority: int = 0,
        delay: int = 0,
        retries: int = FOREVER,
        correlation_id: bytes = b"",
        request_id: bytes = b"",
        asked_id: bytes = b"",
        with_ttl: bool = False,
        source_info: bytes = b"",
    ) -> Published:
        """Add messages at the end of their priority, in order, all with the same properties.

        ``ttl`` and ``delay`` are microseconds from now; with ``expires_at`` too, the earlier end counts. A ``ttl`` of 0
        is for ever; without ``ttl`` and ``expires_at`` the queue's default holds. A request ID or an asked-for ID
        belongs to one message, so they go with a single payload. ``with_ttl`` and ``source_info`` are only kept.
        """
        known = self._remembered(queue, request_id, now)
        if known is not None:
            return Published(known, 1, duplicate=True)
        if asked_id and asked_id in self.asked:
            return Published(0, 0, Refusal.EXISTS)
        sizes = list(map(len, payloads))
        accepted, refusal = self._admit(queue, sizes, bool(delay))
        if accepted < len(sizes):
            sizes = sizes[:accepted]
            payloads = payloads[:accepted]
        if not accepted:
            return Published(0, 0, refusal)
        expires = _expires(queue, now, ttl, expires_at)
        due = now + delay if delay else 0
        columns = _columns(accepted, expires, priority, retries, due)
        if with_ttl:
            columns["with_ttl"] = array("B", (1,)) * accepted
        if correlation_id or request_id or asked_id or source_info:
            columns |= _texts(accepted, correlation_id, request_id, asked_id, source_info)
        first = self.log.messages(now, queue.id, connection.source, payloads, columns)
        queue.counters.published += accepted
        if request_id:
            queue.requests[request_id] = (first, now + queue.policy.deduplication)
            if len(queue.requests) > queue.request_limit:
                self._sweep_requests(queue, now)
        if asked_id:
            self.asked[asked_id] = (queue, first)
            queue.asked[first] = asked_id
        if due:
            for offset, size in enumerate(sizes):
                queue.delayed.insert(delayed_item(first + offset, size, expires, retries, priority, due))
        else:
            queue.append_run(first, sizes, priority, expires, retries)
        if expires or due:
            self._schedule(queue, min(expires or due, due or expires))
        self._dispatch(queue, now)
        self._make_room(queue, now)
        return Published(first, accepted, refusal)

    def _remembered(self, queue: Queue, request_id: bytes, now: int) -> int | None:
        """The position of the message that this request has published already."""
        if not request_id:
            return None
        while queue.requests:
            oldest = next(iter(queue.requests))
            if queue.requests[oldest][1] > now:
                break
            del queue.requests[oldest]
        found = queue.requests.get(request_id)
        return found[0] if found is not None and found[1] > now else None

    def _sweep_requests(self, queue: Queue, now: int) -> None:
        """Forget what is over behind one that is not: the window was made shorter, or the clock was put back."""
        queue.requests = {key: value for key, value in queue.requests.items() if value[1] > now}
        queue.request_limit = 2 * len(queue.requests) + REQUEST_SLACK

    def _admit(self, queue: Queue, sizes: Sequence[int], delayed: bool) -> tuple[int, Refusal | None]:
        """How many of the messages may come in, and why not the rest."""
        if self.draining:
            return 0, Refusal.DRAINING
        if self.disk_full or self.log.size + sum(sizes) > self.disk_room:
            return 0, Refusal.DISK
        policy = queue.policy
        count = fitting = len(sizes)
        if policy.max_bytes:
            fitting = next((i for i, size in enumerate(sizes) if size > policy.max_bytes), count)
        count = min(fitting, _room(queue, sizes, delayed))
        if count < fitting:
            return count, Refusal.FULL
        return count, None if count == len(sizes) else Refusal.TOO_LARGE

    def _make_room(self, queue: Queue, now: int) -> None:
        """A queue that is over its limits lets its oldest ready messages go."""
        policy = queue.policy
        if policy.on_full != "drop-oldest":
            return
        victims: list[Item] = []
        while (policy.max_depth and queue.depth > policy.max_depth) or (
            policy.max_bytes and queue.bytes > policy.max_bytes
        ):
            oldest = queue.oldest()
            if oldest is None:
                break
            queue.remove_ready(oldest.priority, oldest.rank)
            victims.append(oldest)
        if victims:
            self._bury(queue, victims, Reason.OVERFLOW, now)
            self._dispatch_dead(queue, now)


def _room(queue: Queue, sizes: Sequence[int], delayed: bool) -> int:
    """How many of the messages the queue has room for.

    A queue that drops its oldest can drop ready messages only: a new one has room if it fits beside the delayed ones.
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


def _expires(queue: Queue, now: int, ttl: int | None, expires_at: int) -> int:
    """When a message published now expires; 0 = never."""
    if ttl is None and not expires_at:
        ttl = queue.policy.default_ttl
    return min((end for end in (now + ttl if ttl else 0, expires_at) if end), default=0)


def delayed_item(position: int, size: int, expires: int, retries: int, priority: int, due: int) -> Item:
    """How a delayed message stands in its lane: by the time at which something happens to it next."""
    return Item(min(due, expires) if expires else due, position, size, expires, retries, priority)


def _columns(count: int, expires: int, priority: int, retries: int, due: int) -> dict[str, Values]:
    """The journal's columns of these messages; those that say nothing are left out."""
    columns: dict[str, Values] = {}
    if expires:
        columns["expires_at"] = array("q", (expires,)) * count
    if priority:
        columns["priority"] = array("Q", (priority,)) * count
    if retries != FOREVER:
        columns["retries"] = array("B", (retries,)) * count
    if due:
        columns["not_before"] = array("q", (due,)) * count
    return columns


def _texts(
    count: int, correlation_id: bytes, request_id: bytes, asked_id: bytes, source_info: bytes
) -> dict[str, Values]:
    """The same for those of any length."""
    told = {
        "correlation_id": correlation_id,
        "request_id": request_id,
        "asked_id": asked_id,
        "source_info": source_info,
    }
    return {name: [value] * count for name, value in told.items() if value}
