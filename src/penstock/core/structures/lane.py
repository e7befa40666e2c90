"""A lane: waiting messages in order, as arrays instead of objects.

A lane is sorted by *rank*. A message's rank is its own position, until it is put at the end again: then it is the
position of the event that did so. New ranks are always higher than old ones, so adding is appending; returning a
message to its old place is inserting by rank.

::

    Lane -> chunk  ranks      [  7   8   9  12 … ]   array('Q')
                   positions  [  7   8   9   3 … ]   array('Q')   only where one differs: 3 was put at the end at 12
                   sizes      [100 100  80 100 … ]   array('I')
                   expires    None                   array('q')   only in chunks where a message expires
                   retries    None                   array('B')   only where one has a counter
                   priorities None                   array('Q')   only where one differs from the lane's own
                   reasons    None                   array('B')   only for dead letters
         -> chunk …

That is 12 bytes for a plain waiting message. Full chunks are packed until they are changed (``packed_column``): 6 bytes
for most messages, and almost nothing for runs of equal ones. Chunks are small, so that inserting or removing anywhere
moves little. Taking the first moves nothing: a chunk counts the rows at its front that are gone, and drops them when
they are many, or when something else is done with it.

A lane whose messages expire has an :class:`Ordered` of deadlines, which it shares with the other lanes of its queue.
Every chunk with such messages is noted there once, with the earliest of their times or an earlier one: departing
messages are not tracked. When that time comes the chunk is searched, and noted again. So deadlines cost almost nothing,
whatever comes and goes, and nothing about them has to be cleared away.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, repeat
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.core.structures.ordered import Ordered
from penstock.core.structures.packed_column import PackedColumn, pack, unpack
from penstock.schema import FOREVER

#: Entries in a full chunk. Measured: larger ones make single removals slow, smaller ones cost memory.
CHUNK = 2048
#: Rows at the front of a chunk that are gone are dropped once they are half of it, which moves no more than was taken:
#: at least GONE of them, and when GONE_AT_ONCE were taken at once, since only then does an array free memory.
GONE = 128
GONE_AT_ONCE: Final = 16
#: From this number of messages on, they are added as arrays.
MANY: Final = 50


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
_make_item: Final[Callable[[Iterable[int]], Item]] = partial(tuple.__new__, Item)

_TYPES: Final = "QQIqBQB"
#: Columns that every chunk has. Positions are omitted if they equal the ranks, all others if they are the default.
_ALWAYS: Final = (0, 2)
_POSITION: Final = 1
_COLUMNS: Final = len(_TYPES)
#: The values of omitted columns, without a priority.
_PLAIN: Final = (0, 0, 0, 0, FOREVER, 0, 0)
#: The columns after the sizes if all are omitted. They never end, and have no state.
_PLAIN_REST: Final = tuple(repeat(value) for value in _PLAIN[3:])
#: Distinguishes chunks that are noted for the same time.
_serials = count()


class _Chunk:
    __slots__ = ("_columns", "_packed", "deadline", "gone")

    def __init__(self) -> None:
        #: Rows at the front that are still in the columns but not in the lane.
        self.gone = 0
        #: The entry among the deadlines.
        self.deadline: Deadline | None = None
        self._columns: list[array[int] | None] = [array("Q"), None, array("I"), None, None, None, None]
        self._packed: tuple[PackedColumn | None, ...] = ()

    def __len__(self) -> int:
        return self.rows - self.gone

    @property
    def rows(self) -> int:
        """Rows of the columns, including those that are gone."""
        if not self._packed:
            return len(self._columns[0])  # type: ignore[arg-type]  # it has ranks
        ranks = self._packed[0]
        assert ranks is not None
        return ranks.length

    @property
    def columns(self) -> list[array[int] | None]:
        """The columns, for changes."""
        if self.gone:
            self.drop_gone()
        return self.front

    @property
    def front(self) -> list[array[int] | None]:
        """The columns as they are, for taking from the front or adding at the end: the first rows may be gone."""
        if self._packed:
            self._columns, self._packed = self.look(), ()
        return self._columns

    def leave(self, count: int) -> None:
        """Mark the next rows at the front as gone, but not all."""
        self.gone += count
        if 2 * self.gone >= self.rows and (self.gone >= GONE or count >= GONE_AT_ONCE):
            self.drop_gone()

    def drop_gone(self) -> None:
        """Remove the rows at the front that are gone."""
        for column in self._columns:
            if column is not None:
                del column[: self.gone]
        self.gone = 0

    @property
    def ranks(self) -> array[int]:
        ranks = self.columns[0]
        assert ranks is not None
        return ranks

    @property
    def last_rank(self) -> int:
        if not self._packed:
            return self._columns[0][-1]  # type: ignore[index]  # it has ranks
        ranks = self._packed[0]
        assert ranks is not None
        return ranks.base + (ranks.distances[-1] if ranks.distances is not None else 0)

    def look(self) -> list[array[int] | None]:
        """The columns, for reading: a packed chunk stays packed."""
        if not self._packed:
            return self.columns
        return [None if each is None else unpack(each, code) for each, code in zip(self._packed, _TYPES, strict=True)]

    @property
    def positions(self) -> array[int]:
        positions = self.columns[_POSITION]
        return self.ranks if positions is None else positions

    @property
    def last_place(self) -> tuple[int, int]:
        if not self._packed:
            ranks, positions = self._columns[0], self._columns[_POSITION]
            assert ranks is not None
            return ranks[-1], ranks[-1] if positions is None else positions[-1]
        packed = self._packed[_POSITION]
        if packed is None:
            return self.last_rank, self.last_rank
        return self.last_rank, packed.base + (packed.distances[-1] if packed.distances is not None else 0)

    def column(self, index: int, default: int) -> array[int]:
        """The column, created if the chunk does not have it."""
        columns = self.front
        column = columns[index]
        if column is None:
            ranks = columns[0]
            assert ranks is not None
            column = ranks[:] if index == _POSITION else array(_TYPES[index], (default,)) * len(ranks)
            columns[index] = column
        return column

    def pack(self) -> None:
        """Pack an idle chunk into as few bytes as possible."""
        if not self._packed:
            self._packed = tuple(None if column is None else pack(column) for column in self.columns)
            self._columns = []


#: No message of the chunk expires before this time.
Deadline: TypeAlias = "tuple[int, int, Lane, _Chunk]"


def _last_rank(chunk: _Chunk) -> int:
    return chunk.last_rank


def _last_place(chunk: _Chunk) -> tuple[int, int]:
    return chunk.last_place


class Lane:
    """Waiting messages sorted by rank."""

    __slots__ = ("_chunks", "_deadlines", "_defaults", "_is_plain", "_length", "bytes")

    def __init__(self, priority: int = 0, deadlines: Ordered[Deadline] | None = None) -> None:
        self._chunks: list[_Chunk] = []
        self._deadlines = deadlines
        self._is_plain = not priority
        self._defaults = (0, 0, 0, 0, FOREVER, priority, 0) if priority else _PLAIN
        self._length = 0
        #: Sum of the sizes.
        self.bytes = 0

    def __len__(self) -> int:
        return self._length

    @property
    def priority(self) -> int:
        """The lane's priority; single messages may have their own."""
        return self._defaults[5]

    @property
    def first_rank(self) -> int:
        """The rank of the first message. There must be one."""
        chunk = self._chunks[0]
        return chunk.front[0][chunk.gone]  # type: ignore[index]  # it has ranks

    def __iter__(self) -> Iterator[Item]:
        for chunk in self._chunks:
            yield from map(_make_item, self._rows(chunk.look(), 0, len(chunk)))

    def after(self, place: tuple[int, int], limit: int) -> list[Item]:
        """Messages after a rank and position, left in place. Packed chunks stay packed."""
        found: list[Item] = []
        number = bisect_right(self._chunks, place, key=_last_place)
        for chunk in self._chunks[number:]:
            columns = chunk.look()
            ranks, positions = columns[0], columns[1]
            assert ranks is not None
            low, high = bisect_left(ranks, place[0]), bisect_right(ranks, place[0])
            start = bisect_right(ranks if positions is None else positions, place[1], low, high)
            stop = min(len(ranks), start + limit - len(found))
            found += map(_make_item, self._rows(columns, start, stop))
            if len(found) >= limit:
                break
        return found

    def append_run(self, first: int, sizes: Sequence[int], expires: int = 0, retries: int = FOREVER) -> None:
        """Add messages at the end whose positions, and ranks, are ``first``, ``first + 1`` and so on."""
        start = 0
        while start < len(sizes):
            chunk = self._open_chunk()
            columns = chunk.front
            ranks, its_sizes = columns[0], columns[2]
            assert ranks is not None
            assert its_sizes is not None
            bare = _is_bare(columns)
            if bare and len(sizes) == 1 and not expires and retries == FOREVER:
                size = sizes[0]  # most runs have one message
                ranks.append(first)
                its_sizes.append(size)
                self._length += 1
                self.bytes += size
                return
            part = sizes[start : start + CHUNK - len(ranks)]
            count = len(part)
            run = range(first + start, first + start + count)
            if count < MANY:
                ranks.extend(run)
                its_sizes.extend(part)
            else:
                ranks.frombytes(np.arange(first + start, first + start + count, dtype=np.uint64).tobytes())
                its_sizes.extend(_as_array(part))
            if expires or retries != FOREVER or not bare:
                self._append_optional(chunk, run, expires, retries)
            start += count
        self._length += len(sizes)
        self.bytes += sum(sizes)

    def _append_optional(self, chunk: _Chunk, run: range, expires: int, retries: int) -> None:
        """The same for the columns that a chunk need not have. Ranks and sizes are there already."""
        columns = chunk.front
        positions = columns[_POSITION]
        if positions is not None:
            positions.extend(run)
        for index, value in ((3, expires), (4, retries), (5, self._defaults[5]), (6, 0)):
            if columns[index] is not None or value != self._defaults[index]:
                self._extend_optional(chunk, index, value, len(run))
        if expires:
            self._note_deadline(chunk, expires)

    def insert(self, item: Item) -> None:
        """Add one message at the place of its rank (after others of the same rank)."""
        chunk, at = self._place(item.rank)
        # Ranks last: a column created now gets as many values as there are ranks.
        for index in reversed(range(_COLUMNS)):
            value = item[index]
            default = item.rank if index == _POSITION else self._defaults[index]
            if index in _ALWAYS or value != default or chunk.columns[index] is not None:
                chunk.column(index, default).insert(at, value)
        self._length += 1
        self.bytes += item.size
        self._note_deadline(chunk, item.expires)
        if len(chunk.ranks) > 2 * CHUNK:
            self._split(chunk)

    def insert_many(self, items: Iterable[Item]) -> None:
        """Add messages at the places of their ranks. Neighbours go together, in one step."""
        ordered = sorted(items)
        done = 0
        while done < len(ordered):
            chunk, at = self._place(ordered[done].rank)
            # Nothing follows the end of a chunk: see _place.
            stop = bisect_left(ordered, (chunk.ranks[at],), done) if at < len(chunk.ranks) else len(ordered)
            part = ordered[done : min(stop, done + CHUNK)]
            self._insert_part(chunk, at, part)
            done += len(part)

    def extend(self, items: Sequence[Item]) -> None:
        """Add messages at the end; their ranks ascend and are above all others."""
        start = 0
        while start < len(items):
            chunk = self._open_chunk()
            part = items[start : start + CHUNK - len(chunk.ranks)]
            columns = list(zip(*part, strict=True))
            for index, values in enumerate(columns):
                default = self._defaults[index]
                plain = values == columns[0] if index == _POSITION else all(value == default for value in values)
                if index in _ALWAYS or chunk.columns[index] is not None or not plain:
                    column = chunk.column(index, default)
                    del column[len(chunk.ranks) - (len(part) if index else 0) :]
                    column.extend(values)
            self._note_deadline(chunk, min((item.expires for item in part if item.expires), default=0))
            start += len(part)
        self._length += len(items)
        self.bytes += sum(item.size for item in items)

    def take(self, count: int) -> list[Item]:
        """Remove and return the first ``count`` messages, or as many as there are."""
        taken: list[Item] = []
        while len(taken) < count and self._chunks:
            chunk = self._chunks[0]
            columns, start = chunk.front, chunk.gone
            sizes = columns[2]
            assert sizes is not None
            there = len(sizes) - start
            part = min(count - len(taken), there)
            if part == 1:
                taken.append(self._row(columns, start))
                self.bytes -= sizes[start]
            else:
                taken += map(_make_item, self._rows(columns, start, start + part))
                self.bytes -= sum(sizes[start : start + part])
            self._length -= part
            if part == there:
                self._drop_chunk(0)
            else:
                chunk.leave(part)
        return taken

    def count_up_to(self, rank: int, most: int) -> int:
        """How many messages, up to ``most``, have this rank or a lower one."""
        found = 0
        for chunk in self._chunks:
            here = bisect_right(chunk.ranks, rank)
            found += here
            if here < len(chunk.ranks) or found >= most:
                break
        return min(found, most)

    def head(self) -> Item | None:
        """The first message, left in place."""
        if not self._chunks:
            return None
        chunk = self._chunks[0]
        return self._row(chunk.front, chunk.gone)

    def positions(self, count: int) -> list[int]:
        """The positions of the first ``count`` messages, or as many as there are, left in place."""
        found: list[int] = []
        for chunk in self._chunks:
            if len(found) >= count:
                break
            columns, start = chunk.front, chunk.gone
            positions = columns[0] if columns[_POSITION] is None else columns[_POSITION]
            assert positions is not None
            found += positions[start : start + count - len(found)]
        return found

    def get(self, rank: int) -> Item | None:
        """The message of this rank, left in place."""
        found = self._find(rank)
        return None if found is None else self._item(*found)

    def get_at(self, rank: int, position: int) -> Item | None:
        """The message of this rank and position, left in place. For lanes in which ranks are not unique.

        Messages of one rank must have come in the order of their positions.
        """
        found = self._find_at(rank, position)
        return None if found is None else self._item(*found)

    def remove(self, rank: int, position: int | None = None) -> Item | None:
        """Remove and return the message of this rank. ``position`` identifies it if ranks are not unique."""
        found = self._find(rank) if position is None else self._find_at(rank, position)
        if found is None:
            return None
        item = self._item(*found)
        self._delete(found[0], found[1], found[1] + 1)
        return item

    def take_expired(self, chunk: _Chunk, now: int, limit: int) -> list[Item]:
        """Remove and return up to ``limit`` expired messages of a chunk, and note it again."""
        at, following = _due(chunk.look()[3], now, limit)
        number = bisect_left(self._chunks, chunk.last_rank, key=_last_rank)
        items = [self._item(number, each) for each in at]
        if chunk.deadline is not None:
            self._forget_deadline(chunk)
        self._note_deadline(chunk, following)
        for start, stop in reversed(_runs(at)):
            self._delete(number, start, stop)
        return items

    def remove_many(self, ranks: Sequence[int]) -> list[Item]:
        """Remove and return those messages of these ranks that are there. Neighbours go together, in one step."""
        wanted = sorted(ranks)
        removed: list[Item] = []
        done = 0
        while done < len(wanted):
            found = self._find(wanted[done])
            if found is None:
                done += 1
                continue
            number, start = found
            chunk = self._chunks[number]
            stop = start
            while done < len(wanted) and stop < len(chunk.ranks) and chunk.ranks[stop] == wanted[done]:
                stop += 1
                done += 1
            removed += map(_make_item, self._rows(chunk.columns, start, stop))
            self._delete(number, start, stop)
        return removed

    def columns(self, start: int = 0, count: int | None = None) -> list[NDArray[np.generic]]:
        """Entries ``start`` to ``start + count`` as seven arrays, in the order of :class:`Item`. They are copies."""
        parts: list[list[NDArray[np.generic]]] = [[] for _ in _TYPES]
        stop = self._length if count is None else min(self._length, start + count)
        seen = 0
        for chunk in self._chunks:
            length = len(chunk)
            low, high = max(start - seen, 0), min(stop - seen, length)
            if low < high:
                ranks, positions, *others = chunk.look()
                for index, column in enumerate((ranks, ranks if positions is None else positions, *others)):
                    parts[index].append(self._copy(index, column, low, high))
            seen += length
        empty: list[NDArray[np.generic]] = [np.empty(0, _TYPES[index]) for index in range(_COLUMNS)]
        return [np.concatenate(part) if part else empty[index] for index, part in enumerate(parts)]

    def fill(self, columns: Sequence[NDArray[np.generic]]) -> None:
        """Take these entries, which must be sorted by rank, into an empty lane. The arrays are those of ``columns``."""
        total = len(columns[0])
        plain = {
            index
            for index in range(3, _COLUMNS)
            if columns[index].strides == (0,) and (columns[index][:1] == self._defaults[index]).all()
        }
        for start in range(0, total, CHUNK):
            chunk = _Chunk()
            for index in set(range(_COLUMNS)) - plain:
                part = np.ascontiguousarray(columns[index][start : start + CHUNK], dtype=_TYPES[index])
                default = columns[0][start : start + CHUNK] if index == _POSITION else self._defaults[index]
                if index in _ALWAYS or (part != default).any():
                    chunk.columns[index] = array(_TYPES[index], part.tobytes())
            self._chunks.append(chunk)
            self._note_deadline(chunk, _due(chunk.columns[3], 0, 0)[1])
            if start + CHUNK < total:
                chunk.pack()
        self._length = total
        self.bytes = int(np.sum(columns[2], dtype=np.uint64))

    def _copy(self, index: int, column: array[int] | None, low: int, high: int) -> NDArray[np.generic]:
        if column is None:
            return np.full(high - low, self._defaults[index], dtype=_TYPES[index])
        return np.array(column[low:high], dtype=_TYPES[index])

    def _open_chunk(self) -> _Chunk:
        """The last chunk, with room for at least one row."""
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is not None and chunk.rows >= CHUNK and 8 * chunk.gone >= chunk.rows:
            chunk.drop_gone()
        if chunk is None or chunk.rows >= CHUNK:
            if chunk is not None:
                chunk.pack()
            chunk = _Chunk()
            self._chunks.append(chunk)
        return chunk

    def _extend_optional(self, chunk: _Chunk, index: int, value: int, count: int) -> None:
        """Add a value ``count`` times to a column, which is omitted while everything in it is the default.

        The rows of the other columns are there already, so a column created now has to be cut back first.
        """
        column = chunk.front[index]
        if column is None:
            column = chunk.column(index, self._defaults[index])
            del column[len(column) - count :]
        column.extend(array(_TYPES[index], (value,)) * count)

    def _rows(self, columns: list[array[int] | None], start: int, stop: int) -> Iterator[tuple[int, ...]]:
        ranks, sizes = columns[0], columns[2]
        assert ranks is not None
        ranked = ranks[start:stop].tolist()  # a position that equals the rank is the same object: messages out are many
        if self._is_plain and _is_bare(columns):
            assert sizes is not None
            return zip(ranked, ranked, sizes[start:stop], *_PLAIN_REST, strict=False)
        _, positions, *others = columns
        return zip(
            ranked,
            ranked if positions is None else positions[start:stop],
            *(
                repeat(default, stop - start) if column is None else column[start:stop]
                for column, default in zip(others, self._defaults[2:], strict=True)
            ),
            strict=False,
        )

    def _item(self, number: int, at: int) -> Item:
        return self._row(self._chunks[number].columns, at)

    def _row(self, columns: list[array[int] | None], at: int) -> Item:
        ranks, sizes = columns[0], columns[2]
        assert ranks is not None
        assert sizes is not None
        rank = ranks[at]
        if self._is_plain and _is_bare(columns):
            return _make_item((rank, rank, sizes[at], 0, FOREVER, 0, 0))
        _, positions, _, expires, retries, priorities, reasons = columns
        return Item(
            rank,
            rank if positions is None else positions[at],
            sizes[at],
            0 if expires is None else expires[at],
            FOREVER if retries is None else retries[at],
            self._defaults[5] if priorities is None else priorities[at],
            0 if reasons is None else reasons[at],
        )

    def _find(self, rank: int) -> tuple[int, int] | None:
        """Chunk and index of the first entry with this rank."""
        number = bisect_left(self._chunks, rank, key=_last_rank)
        if number == len(self._chunks):
            return None
        ranks = self._chunks[number].ranks
        at = bisect_left(ranks, rank)
        return (number, at) if ranks[at] == rank else None

    def _find_at(self, rank: int, position: int) -> tuple[int, int] | None:
        """Chunk and index of the entry with this rank and position."""
        number = bisect_left(self._chunks, (rank, position), key=_last_place)
        if number == len(self._chunks):
            return None
        ranks, positions = self._chunks[number].ranks, self._chunks[number].positions
        low, high = bisect_left(ranks, rank), bisect_right(ranks, rank)
        at = bisect_left(positions, position, low, high)
        return (number, at) if at < high and positions[at] == position else None

    def _place(self, rank: int) -> tuple[_Chunk, int]:
        """Where an entry of this rank goes: a chunk, and the index in it."""
        if not self._chunks or self._chunks[-1].last_rank <= rank:
            chunk = self._open_chunk()
            return chunk, len(chunk.ranks)
        number = bisect_left(self._chunks, rank + 1, key=_last_rank)
        chunk = self._chunks[number]
        return chunk, bisect_left(chunk.ranks, rank + 1)

    def _delete(self, number: int, start: int, stop: int) -> None:
        chunk = self._chunks[number]
        columns = chunk.columns
        sizes = columns[2]
        assert sizes is not None
        self.bytes -= sizes[start] if stop - start == 1 else sum(sizes[start:stop])
        self._length -= stop - start
        if stop - start == len(sizes):
            self._drop_chunk(number)
            return
        for column in columns:
            if column is not None:
                del column[start:stop]

    def _drop_chunk(self, number: int) -> None:
        """Remove an empty chunk."""
        chunk = self._chunks[number]
        if chunk.deadline is not None:
            self._forget_deadline(chunk)
        del self._chunks[number]

    def _split(self, chunk: _Chunk) -> None:
        half = len(chunk.ranks) // 2
        upper = _Chunk()
        for index, column in enumerate(chunk.columns):
            if column is not None:
                upper.columns[index] = column[half:]
                del column[half:]
        self._chunks.insert(self._chunks.index(chunk) + 1, upper)
        if chunk.deadline is not None:
            self._note_deadline(upper, chunk.deadline[0])

    def _insert_part(self, chunk: _Chunk, at: int, part: Sequence[Item]) -> None:
        """Add messages to a chunk, side by side."""
        for index in reversed(range(_COLUMNS)):  # ranks last, as in ``insert``
            values = [item[index] for item in part]
            default = self._defaults[index]
            if index == _POSITION:
                plain = all(item.rank == item.position for item in part)
            else:
                plain = all(value == default for value in values)
            if index in _ALWAYS or chunk.columns[index] is not None or not plain:
                chunk.column(index, default)[at:at] = array(_TYPES[index], values)
        self._length += len(part)
        self.bytes += sum(item.size for item in part)
        self._note_deadline(chunk, min((item.expires for item in part if item.expires), default=0))
        if len(chunk.ranks) > 2 * CHUNK:
            self._split(chunk)

    def _note_deadline(self, chunk: _Chunk, expires: int) -> None:
        """Note that a message of the chunk expires then; 0 = none does."""
        if not expires or self._deadlines is None:
            return
        if chunk.deadline is not None:
            if chunk.deadline[0] <= expires:
                return
            self._forget_deadline(chunk)
        chunk.deadline = (expires, next(_serials), self, chunk)
        self._deadlines.add(chunk.deadline)

    def _forget_deadline(self, chunk: _Chunk) -> None:
        assert self._deadlines is not None
        assert chunk.deadline is not None
        self._deadlines.remove(chunk.deadline)
        chunk.deadline = None


def _is_bare(columns: list[array[int] | None]) -> bool:
    """Whether all optional columns are omitted."""
    if columns[_POSITION] is not None:
        return False
    return columns[3] is None and columns[4] is None and columns[5] is None and columns[6] is None


def _as_array(sizes: Sequence[int]) -> array[int]:
    """As an array; mostly it is one already."""
    if sizes.count(sizes[0]) == len(sizes):
        return array("I", (sizes[0],)) * len(sizes)
    return array("I", sizes)


def _due(column: array[int] | None, now: int, limit: int) -> tuple[list[int], int]:
    """The indexes of up to ``limit`` times that have come, and the earliest of the others; 0 = there is none."""
    if column is None:
        return [], 0
    times = np.frombuffer(column, np.int64)
    due = np.flatnonzero((times > 0) & (times <= now))[:limit]
    later = times > 0
    later[due] = False
    return due.tolist(), int(times[later].min(initial=2**63 - 1)) if later.any() else 0


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs of neighbours: first, and the exclusive end."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs
