"""Finds the lane with a queue's oldest message: for queues that drop it when they are full."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.structures.item import Item
from penstock.core.structures.lane import Lane
from penstock.core.structures.ordered import Ordered


class Heads:
    """Each lane's rank of its first message, or a lower one: departing messages are not tracked."""

    __slots__ = ("_order", "_ranks")

    def __init__(self, lanes: Mapping[int, Lane]) -> None:
        self._ranks = {priority: lane.first_rank for priority, lane in lanes.items()}
        self._order = Ordered((rank, priority) for priority, rank in self._ranks.items())

    def note(self, priority: int, rank: int) -> None:
        """A message of this rank was added to a lane."""
        known = self._ranks.get(priority)
        if known is not None:
            if known <= rank:
                return
            self.forget(priority)
        self._ranks[priority] = rank
        self._order.add((rank, priority))

    def forget(self, priority: int) -> None:
        """A lane was removed."""
        self._order.remove((self._ranks.pop(priority), priority))

    def oldest(self, lanes: Mapping[int, Lane]) -> Item | None:
        """The message of the lowest rank."""
        while (head := self._order.head) is not None:
            rank, priority = head
            lane = lanes[priority]
            if lane.first_rank == rank:
                return lane.head()
            self.forget(priority)
            self.note(priority, lane.first_rank)
        return None
