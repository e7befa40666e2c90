"""Copy live messages to the end of the log, so that the space of their old rows can be freed.

Nothing about a carried message changes but the place of its payload. Its row contains everything known of it, so that
the journal alone is enough to start from, whatever happens to the checkpoints.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from penstock.core.events import Values
from penstock.core.queue import Queue
from penstock.core.state import BROKER_SOURCE, BrokerState
from penstock.core.structures.item import Item
from penstock.schema import Kind


class StoredMessage(Protocol):
    """A message row as the journal returns it."""

    @property
    def position(self) -> int:
        """The position of the row."""

    @property
    def original(self) -> int:
        """The message's own position, if the row is a copy; else 0."""

    @property
    def at(self) -> int:
        """When the row was written."""

    @property
    def published_at(self) -> int:
        """When the message was published, if the row is a copy; else 0."""

    @property
    def queue(self) -> int:
        """The queue it was in when the row was written."""

    @property
    def source(self) -> bytes:
        """The source that wrote the row."""

    @property
    def carried_source(self) -> bytes:
        """The source that published the message, if the row is a copy."""

    @property
    def payload(self) -> bytes:
        """The payload."""

    @property
    def expires_at(self) -> int:
        """As published."""

    @property
    def retries(self) -> int:
        """As published."""

    @property
    def not_before(self) -> int:
        """As published."""

    @property
    def correlation_id(self) -> bytes:
        """As published."""

    @property
    def request_id(self) -> bytes:
        """As published."""

    @property
    def asked_id(self) -> bytes:
        """As published."""

    @property
    def with_ttl(self) -> int:
        """As published."""

    @property
    def source_info(self) -> bytes:
        """As published."""


class FoundMessage(NamedTuple):
    """A live message and its state."""

    queue: Queue
    item: Item
    deliveries: int
    state: str  # ready, out, delayed or dead


def find(queue: Queue, positions: Iterable[int]) -> dict[int, FoundMessage]:
    """Those of the messages that are in the queue, in whatever state. None of them requires a search."""
    return {position: found for position in positions if (found := _find(queue, position)) is not None}


def lowest_position(state: BrokerState) -> int:
    """No live message is below this position."""
    lowest = [state.log.next_position]
    for queue in state.queues.values():
        lowest += [lane.first_rank for lane in queue.ready.lanes.values()]
        # A message that was put at the end has a rank above its position.
        for noted in (queue.moved, queue.out, queue.damaged):
            lowest.append(min(noted, default=state.log.next_position))
        for lowest_of in (queue.delayed.lowest(), queue.dead.lowest()):
            lowest += [] if lowest_of is None else [lowest_of]
    return min(lowest)


def carry(state: BrokerState, messages: Sequence[StoredMessage], queues: Sequence[int], now: int) -> dict[int, int]:
    """Copy those of the messages that are alive to the end of the log. Returns original -> new position.

    ``queues`` names, for each message, a queue that it was in at some moment since this broker started.
    """
    by_queue: dict[int, dict[int, StoredMessage]] = {}
    for message, number in zip(messages, queues, strict=True):
        position = message.original or message.position
        by_queue.setdefault(state.moved_to.get(position, number), {})[position] = message
    places: dict[int, int] = {}
    for number, wanted in by_queue.items():
        queue = state.queues.get(number)
        found = find(queue, wanted) if queue is not None else {}
        if found:
            pairs = [(wanted[position], each) for position, each in found.items()]
            payloads = [message.payload for message, _ in pairs]
            first = state.log.messages(now, number, BROKER_SOURCE, payloads, _columns(pairs), Kind.CARRIED)
            places |= zip(found, range(first, first + len(found)), strict=True)
    return places


def _find(queue: Queue, position: int) -> FoundMessage | None:
    out = queue.out.get(position)
    if out is not None:
        return FoundMessage(queue, out.item, out.deliveries, "out")
    if (aside := queue.damaged.get(position)) is not None:
        return FoundMessage(queue, aside.item, queue.deliveries.get(position, 0), aside.state)
    state, item = "ready", queue.find_ready(position)
    if item is None:
        state, item = "dead", queue.dead.find(position)
    if item is None:
        state, item = "delayed", queue.delayed.find(position)
    return None if item is None else FoundMessage(queue, item, queue.deliveries.get(position, 0), state)


def _columns(pairs: Sequence[tuple[StoredMessage, FoundMessage]]) -> dict[str, Values]:
    """All columns of carried messages."""
    messages = [message for message, _ in pairs]
    items = [found.item for _, found in pairs]
    delayed = [found.state == "delayed" for _, found in pairs]
    return {
        "expires_at": array("q", [message.expires_at for message in messages]),
        "priority": array("Q", [item.priority for item in items]),
        "retries": array("B", [found.queue.retries_as_published(found.item) for _, found in pairs]),
        "not_before": array("q", [m.not_before if wait else 0 for m, wait in zip(messages, delayed, strict=True)]),
        "correlation_id": [message.correlation_id for message in messages],
        "request_id": [message.request_id for message in messages],
        "asked_id": [message.asked_id for message in messages],
        "original": array("Q", [item.position for item in items]),
        "published_at": array("q", [message.published_at or message.at for message in messages]),
        "carried_source": [message.carried_source or message.source for message in messages],
        "carried_rank": array("Q", [0 if wait else item.rank for item, wait in zip(items, delayed, strict=True)]),
        "carried_deliveries": array("I", [found.deliveries for _, found in pairs]),
        "carried_retries": array("B", [item.retries for item in items]),
        "carried_expires_at": array("q", [item.expires for item in items]),
        "carried_dead": array("B", [item.reason for item in items]),
        "with_ttl": array("B", [message.with_ttl for message in messages]),
        "source_info": [message.source_info for message in messages],
    }
