"""A chunk of a lane: its columns, packed while nothing changes them.

Taking the first messages moves nothing: a chunk counts the rows at its front that are gone. It drops them when there
are many, or before any other change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.core.structures.columns import Columns, empty_columns
from penstock.core.structures.deadlines import Deadline, Deadlines
from penstock.core.structures.item import POSITION, RANK, SIZE, TYPES
from penstock.core.structures.packed_column import PackedColumn, pack, unpack

if TYPE_CHECKING:
    from penstock.core.structures.lane import Lane

#: Rows at the front of a chunk that are gone are dropped once they are half of it, which moves no more than was taken:
#: at least GONE of them, and when GONE_AT_ONCE were taken at once, since only then does an array free memory.
GONE = 128
GONE_AT_ONCE: Final = 16


class PackedColumns:
    """The columns of an idle chunk in as few bytes as possible."""

    __slots__ = ("_extra", "_priority", "_ranks", "_sizes")

    def __init__(self, columns: Columns) -> None:
        self._priority = columns.priority
        self._ranks = pack(columns.ranks)
        self._sizes = pack(columns.sizes)
        self._extra = tuple([(index, pack(column)) for index, column in columns.extra.items()])

    def __len__(self) -> int:
        return self._ranks.length

    @property
    def last_rank(self) -> int:
        """The rank of the last message."""
        return _last(self._ranks)

    @property
    def last_position(self) -> int:
        """The position of the last message."""
        for index, column in self._extra:
            if index == POSITION:
                return _last(column)
        return _last(self._ranks)

    def unpack(self) -> Columns:
        """The columns as they were."""
        extra = {index: unpack(column, TYPES[index]) for index, column in self._extra}
        return Columns(self._priority, unpack(self._ranks, TYPES[RANK]), unpack(self._sizes, TYPES[SIZE]), extra)


class Chunk:
    """Consecutive messages of a lane, at least one."""

    __slots__ = ("_columns", "_deadline", "gone")

    def __init__(self, columns: Columns) -> None:
        self._columns: Columns | PackedColumns = columns
        #: The entry among the deadlines.
        self._deadline: Deadline | None = None
        #: The number of rows at the front that are still in the columns but no longer in the lane.
        self.gone = 0

    def __len__(self) -> int:
        return len(self._columns) - self.gone

    @property
    def rows(self) -> int:
        """Rows of the columns, including those that are gone."""
        return len(self._columns)

    @property
    def columns(self) -> Columns:
        """The columns, for changes."""
        if self.gone:
            self.drop_gone()
        return self.front

    @property
    def front(self) -> Columns:
        """The columns for taking from the front or adding at the end: the first rows may be gone."""
        columns = self._columns
        if isinstance(columns, PackedColumns):
            columns = self._columns = columns.unpack()
        return columns

    def look(self) -> Columns:
        """The columns for reading: a packed chunk stays packed."""
        columns = self._columns
        return columns.unpack() if isinstance(columns, PackedColumns) else self.columns

    @property
    def last_rank(self) -> int:
        """The rank of the last message."""
        columns = self._columns
        return columns.last_rank if isinstance(columns, PackedColumns) else columns.ranks[-1]

    @property
    def last_place(self) -> tuple[int, int]:
        """The rank and the position of the last message."""
        columns = self._columns
        if isinstance(columns, PackedColumns):
            return columns.last_rank, columns.last_position
        return columns.ranks[-1], columns.positions[-1]

    def leave(self, count: int) -> None:
        """Mark the next rows at the front as gone, but not all."""
        self.gone += count
        if 2 * self.gone >= self.rows and (self.gone >= GONE or count >= GONE_AT_ONCE):
            self.drop_gone()

    def drop_gone(self) -> None:
        """Remove the rows at the front that are gone."""
        self.front.delete(0, self.gone)
        self.gone = 0

    def pack(self) -> None:
        """Pack an idle chunk."""
        if not isinstance(self._columns, PackedColumns):
            self._columns = PackedColumns(self.columns)

    def split(self) -> Chunk:
        """Remove the upper half, and return it as a chunk without a deadline."""
        return Chunk(self.columns.split(len(self) // 2))

    @property
    def deadline(self) -> int:
        """No message expires before this time; 0 = none does."""
        return self._deadline[0] if self._deadline is not None else 0

    def note_deadline(self, expires: int, lane: Lane, deadlines: Deadlines | None) -> None:
        """Note that a message expires then; 0 = none does."""
        if not expires or deadlines is None:
            return
        if self._deadline is not None:
            if self._deadline[0] <= expires:
                return
            self.forget_deadline(deadlines)
        self._deadline = deadlines.note(expires, lane, self)

    def forget_deadline(self, deadlines: Deadlines | None) -> None:
        """Remove the entry among the deadlines, if there is one."""
        if self._deadline is not None and deadlines is not None:
            deadlines.remove(self._deadline)
            self._deadline = None


def empty_chunk(priority: int) -> Chunk:
    """A chunk to which a message is about to be added."""
    return Chunk(empty_columns(priority))


def _last(packed: PackedColumn) -> int:
    return packed.base + (packed.distances[-1] if packed.distances is not None else 0)
