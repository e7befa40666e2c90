"""One waiting message, and the columns in which a lane keeps its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from penstock.schema import FOREVER


class Item(NamedTuple):
    """One waiting message."""

    rank: int
    position: int
    size: int
    expires: int = 0
    retries: int = FOREVER
    priority: int = 0
    reason: int = 0


#: Like ``Item._make``, but without a Python call for each.
make_item: Final[Callable[[Iterable[int]], Item]] = partial(tuple.__new__, Item)

#: Columns by their index in an Item.
RANK: Final = 0
POSITION: Final = 1
SIZE: Final = 2
EXPIRES: Final = 3
RETRIES: Final = 4
PRIORITY: Final = 5
REASON: Final = 6
#: Their types as arrays, and the usual values of those that are omitted where all have it.
TYPES: Final = "QQIqBQB"
DEFAULTS: Final = (0, 0, 0, 0, FOREVER, 0, 0)
#: Columns that may be omitted. The usual position is the rank, the usual priority that of the lane.
OPTIONAL: Final = (POSITION, EXPIRES, RETRIES, PRIORITY, REASON)
