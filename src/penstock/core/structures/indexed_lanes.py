"""Lanes with an index by position.

Finding a message in a lane takes its rank. A ready message's rank is its position, or noted in its queue. But a dead
letter's rank is the position of the event that made it one, a delayed message's rank is a time, and in a queue with
very many priorities a message's lane is unknown. So these lanes have a second lane, ``places``, sorted by position:
20 bytes for each message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from penstock.core.structures.chunk import Chunk
from penstock.core.structures.deadlines import Deadlines
from penstock.core.structures.item import POSITION, REASON, Item
from penstock.core.structures.lane import Lane
from penstock.schema import FOREVER


class _NotedLane(Lane):
    """A lane whose messages are also in the index ``places``; removing a message removes it from both."""

    __slots__ = ("_places",)

    def __init__(self, places: Lane, priority: int = 0, deadlines: Deadlines | None = None) -> None:
        super().__init__(priority, deadlines)
        self._places = places

    @override
    def take(self, count: int) -> list[Item]:
        return self._forget(super().take(count))

    @override
    def remove(self, rank: int, position: int | None = None) -> Item | None:
        item = super().remove(rank, position)
        if item is not None:
            self._forget([item])
        return item

    def _forget(self, gone: list[Item]) -> list[Item]:
        """Messages have left the lane: remove them from ``places``."""
        self._places.remove_many([item.position for item in gone])
        return gone


class RankedLane(_NotedLane):
    """A lane with its own index from positions to ranks."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Lane())

    def find(self, position: int) -> Item | None:
        """The message with this position, left in place."""
        place = self._places.get(position)
        return None if place is None else self.get(place.position, position)

    def lowest(self) -> int | None:
        """The lowest position of all messages, None if there are none."""
        return self._places.first_rank if self._places else None

    @override
    def fill(self, columns: Sequence[NDArray[np.generic]]) -> None:
        super().fill(columns)
        ranks, positions, *rest = columns
        order = np.argsort(positions)
        none = [np.zeros(len(ranks), column.dtype) for column in rest]
        self._places.fill([positions[order], ranks[order], *none])

    @override
    def insert_many(self, items: Iterable[Item]) -> None:
        many = list(items)
        super().insert_many(many)
        self._places.insert_many([Item(item.position, item.rank, 0) for item in many])

    @override
    def remove_many(self, ranks: Sequence[int]) -> list[Item]:
        return self._forget(super().remove_many(ranks))


class DeadLane(RankedLane):
    """The dead letters of a queue, counted by reason."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        super().__init__()
        self.reasons: Counter[int] = Counter()

    @override
    def fill(self, columns: Sequence[NDArray[np.generic]]) -> None:
        super().fill(columns)
        for reason, count in zip(*np.unique(columns[REASON], return_counts=True), strict=True):
            self.reasons[int(reason)] += int(count)

    @override
    def insert_many(self, items: Iterable[Item]) -> None:
        many = list(items)
        super().insert_many(many)
        self.reasons.update([item.reason for item in many])

    @override
    def _forget(self, gone: list[Item]) -> list[Item]:
        self.reasons.subtract([item.reason for item in gone])
        return super()._forget(gone)


class PriorityLane(_NotedLane):
    """The lane of one of very many priorities. All lanes of the queue share ``places``, which maps to priorities.

    Its messages can expire and are never dead letters: it implements the operations on ready messages.
    """

    __slots__ = ()

    def __init__(self, priority: int, deadlines: Deadlines, places: Lane) -> None:
        super().__init__(places, priority, deadlines)

    @override
    def fill(self, columns: Sequence[NDArray[np.generic]]) -> None:
        super().fill(columns)
        self._note(columns[POSITION].tolist())

    @override
    def append_run(self, first: int, sizes: Sequence[int], expires: int = 0, retries: int = FOREVER) -> None:
        super().append_run(first, sizes, expires, retries)
        self._note(range(first, first + len(sizes)))

    @override
    def insert_many(self, items: Iterable[Item]) -> None:
        many = list(items)
        super().insert_many(many)
        self._note([item.position for item in many])

    @override
    def take_expired(self, chunk: Chunk, now: int, limit: int) -> list[Item]:
        return self._forget(super().take_expired(chunk, now, limit))

    def _note(self, positions: Iterable[int]) -> None:
        self._places.insert_many([Item(position, self.priority, 0) for position in positions])
