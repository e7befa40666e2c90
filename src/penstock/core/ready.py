"""The ready messages of a queue, in a lane for each priority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.core.budget import LOOK
from penstock.core.structures.deadlines import Deadlines
from penstock.core.structures.heads import Heads
from penstock.core.structures.indexed_lanes import PriorityLane
from penstock.core.structures.item import Item
from penstock.core.structures.lane import Lane
from penstock.core.structures.ordered import Ordered

#: Priorities whose messages are not indexed: searching this many for one message takes 30 microseconds.
PLAIN_LANES: Final = 32


class ReadyMessages:
    """Messages that may be delivered: highest priority first, then by rank."""

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}
        #: When messages in the lanes expire.
        self.deadlines = Deadlines()
        #: Priorities that have a lane.
        self.priorities: Ordered[int] = Ordered()
        #: The lanes that are searched for a message, and the priorities of the messages in all others.
        self._plain: dict[int, Lane] = {}
        self._places = Lane()
        #: Only for queues that need their oldest message.
        self._heads: Heads | None = None
        self._length = 0
        #: Sum of the sizes.
        self.bytes = 0

    def __len__(self) -> int:
        return self._length

    def track_oldest(self, wanted: bool) -> None:
        """Keep track of the oldest message from now on, or stop it."""
        self._heads = Heads(self.lanes) if wanted else None

    @property
    def tracks_oldest(self) -> bool:
        """Whether ``oldest`` finds a message."""
        return self._heads is not None

    def append_run(self, first: int, sizes: list[int], priority: int, expires: int, retries: int) -> None:
        """Add new messages at the end of their priority."""
        lane = self._lane(priority)
        before = lane.bytes
        lane.append_run(first, sizes, expires, retries)
        self._length += len(sizes)
        self.bytes += lane.bytes - before
        if self._heads is not None:
            self._heads.note(priority, first)

    def insert_many(self, items: Sequence[Item]) -> None:
        """Add messages at the places of their ranks."""
        by_priority: dict[int, list[Item]] = {}
        for item in items:
            by_priority.setdefault(item.priority, []).append(item)
        for priority, several in by_priority.items():
            self._lane(priority).insert_many(several)
            if self._heads is not None:
                self._heads.note(priority, min([item.rank for item in several]))
        self._length += len(items)
        self.bytes += sum([item.size for item in items])

    def fill(self, priority: int, columns: Sequence[NDArray[np.generic]]) -> None:
        """Add all messages of a priority that has none yet, as ``Lane.fill`` takes them."""
        lane = self._lane(priority)
        lane.fill(columns)
        self._length += len(lane)
        self.bytes += lane.bytes
        if self._heads is not None:
            self._heads.note(priority, lane.first_rank)

    def take(self, count: int) -> list[Item]:
        """Remove and return the next messages."""
        taken: list[Item] = []
        while self.lanes and len(taken) < count:
            priority = self.priorities.last
            lane = self.lanes[priority]
            before = lane.bytes
            found = lane.take(count - len(taken))
            self._length -= len(found)
            self.bytes -= before - lane.bytes
            taken += found
            if not lane:
                self._close_lane(priority)
        return taken

    def head(self) -> Item | None:
        """The message that ``take`` would return."""
        return self.lanes[self.priorities.last].head() if self.lanes else None

    def next_positions(self, count: int) -> list[int]:
        """The positions of the messages that ``take`` would return."""
        found: list[int] = []
        for priority in self.priorities.down_from(None):
            found += self.lanes[priority].positions(count - len(found))
            if len(found) >= count:
                break
        return found

    def oldest(self) -> Item | None:
        """The message of the lowest rank, whatever its priority, if it is tracked."""
        return self._heads.oldest(self.lanes) if self._heads is not None else None

    @property
    def oldest_position(self) -> int | None:
        """The position of the first message of some priority. None is lower, unless messages were put at the end."""
        heads = [head.position for lane in self._plain.values() if (head := lane.head()) is not None]
        return min(heads + ([self._places.first_rank] if self._places else []), default=None)

    def find(self, position: int, rank: int) -> Item | None:
        """The message with this position, left in place."""
        place = self._places.get(position)
        for lane in self._plain.values() if place is None else (self.lanes[place.position],):
            item = lane.get(rank)
            if item is not None and item.position == position:
                return item
        return None

    def remove(self, item: Item) -> Item | None:
        """Remove one message from the middle. None if it is gone already."""
        lane = self.lanes.get(item.priority)
        if lane is None:
            return None
        removed = lane.remove(item.rank)
        if removed is not None:
            self._length -= 1
            self.bytes -= removed.size
            if not lane:
                self._close_lane(item.priority)
        return removed

    def clear(self) -> None:
        """Remove all messages."""
        self.lanes.clear()
        self.deadlines.clear()
        self.priorities.clear()
        self.track_oldest(self.tracks_oldest)
        self._plain.clear()
        self._places = Lane()
        self._length = self.bytes = 0

    def take_expired(self, now: int, budget: int) -> tuple[list[Item], int]:
        """Remove and return messages that have expired, and what is left of the budget."""
        expired: list[Item] = []
        while budget > 0 and (head := self.deadlines.head) is not None and head[0] <= now:
            _, _, lane, chunk = head
            items = lane.take_expired(chunk, now, budget)
            expired += items
            budget -= len(items) + LOOK
            if not lane:
                self._close_lane(lane.priority)
        self._length -= len(expired)
        self.bytes -= sum([item.size for item in expired])
        expired.sort(key=lambda item: (-item.priority, item.rank))
        return expired, budget

    def _lane(self, priority: int) -> Lane:
        lane = self.lanes.get(priority)
        if lane is None:
            if len(self._plain) < PLAIN_LANES:
                lane = self._plain[priority] = Lane(priority, self.deadlines)
            else:
                lane = PriorityLane(priority, self.deadlines, self._places)
            self.lanes[priority] = lane
            self.priorities.add(priority)
        return lane

    def _close_lane(self, priority: int) -> None:
        """Remove an empty lane, so that a queue costs no more than what waits in it."""
        del self.lanes[priority]
        self._plain.pop(priority, None)
        self.priorities.remove(priority)
        if self._heads is not None:
            self._heads.forget(priority)
