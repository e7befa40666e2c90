"""Dead letters: a lane in the order of their deaths, and where each of them stands in it.

A dead letter's rank is the position of the event that killed it, which nothing else tells. So that one can be found
without looking at all, they are noted a second time, sorted by position: another 20 bytes for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.core.lane import Item, Lane


class DeadLane(Lane):
    """Dead letters sorted by the event that killed them."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        super().__init__()
        #: Position -> rank.
        self._places = Lane()

    @staticmethod
    def restored(columns: Sequence[NDArray[np.generic]]) -> DeadLane:
        """Dead letters with these entries, as ``Lane.from_columns`` takes them."""
        lane = DeadLane()
        lane._adopt(Lane.from_columns(columns))
        ranks, positions, *rest = columns
        order = np.argsort(positions)
        none = [np.zeros(len(ranks), column.dtype) for column in rest]
        lane._places = Lane.from_columns([positions[order], ranks[order], *none])
        return lane

    def find(self, position: int) -> Item | None:
        """The dead letter with this position, left where it is."""
        place = self._places.get(position)
        return None if place is None else self.get(place.position)

    def lowest(self) -> int | None:
        """See Lane."""
        return self._places.first_rank if self._places else None

    def insert(self, item: Item) -> None:
        """See Lane."""
        super().insert(item)
        self._places.insert(_place(item))

    def insert_many(self, items: Iterable[Item]) -> None:
        """See Lane."""
        many = list(items)
        super().insert_many(many)
        self._places.insert_many(map(_place, many))

    def extend(self, items: Sequence[Item]) -> None:
        """See Lane."""
        super().extend(items)
        self._places.insert_many(map(_place, items))

    def take(self, count: int) -> list[Item]:
        """See Lane."""
        return self._gone(super().take(count))

    def remove(self, rank: int, position: int | None = None) -> Item | None:
        """See Lane."""
        item = super().remove(rank, position)
        if item is not None:
            self._gone([item])
        return item

    def remove_many(self, ranks: Sequence[int]) -> list[Item]:
        """See Lane."""
        return self._gone(super().remove_many(ranks))

    def _gone(self, items: list[Item]) -> list[Item]:
        self._places.remove_many([item.position for item in items])
        return items


def _place(item: Item) -> Item:
    return Item(item.position, item.rank, 0)
