"""When the messages of a queue's lanes expire.

Every chunk with messages that expire is noted once, with the earliest of their times or an earlier one: departing
messages are not tracked. When that time comes the chunk is searched, and noted again. So deadlines cost almost nothing,
whatever comes and goes, and leave nothing to clear away.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from penstock.core.structures.ordered import Ordered

if TYPE_CHECKING:
    from penstock.core.structures.chunk import Chunk
    from penstock.core.structures.lane import Lane

#: No message of the chunk expires before this time. The second number distinguishes chunks with the same time.
Deadline: TypeAlias = "tuple[int, int, Lane, Chunk]"

_serials = count()


class Deadlines(Ordered["Deadline"]):
    """A deadline for each chunk, earliest first."""

    __slots__ = ()

    def note(self, expires: int, lane: Lane, chunk: Chunk) -> Deadline:
        """Add the deadline of a chunk that has none."""
        deadline = (expires, next(_serials), lane, chunk)
        self.add(deadline)
        return deadline
