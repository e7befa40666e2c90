"""A lane: waiting messages in order, as arrays instead of objects.

A lane is sorted by *rank*. A message's rank is its own position, until it is put at the end again: then it is the
position of the event that did so. New ranks are always higher than old ones, so adding is appending; returning a
message to its old place is inserting by rank.

A lane is a list of chunks (``chunk``), and a chunk has a column for each field of its messages (``columns``). A plain
waiting message takes 12 bytes. Full chunks are packed until they are changed (``packed_column``): 6 bytes for most
messages, and almost nothing for runs of equal ones. Chunks are small, so that inserting or removing anywhere moves
little. A lane whose messages expire shares the queue's ``deadlines``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.core.structures.chunk import Chunk, empty_chunk
from penstock.core.structures.columns import columns_from_arrays
from penstock.core.structures.deadlines import Deadlines
from penstock.core.structures.item import RANK, SIZE, TYPES, Item
from penstock.schema import FOREVER

#: Entries in a full chunk. Measured: larger ones make single removals slow, smaller ones cost memory.
CHUNK = 2048


class Lane:
    """Waiting messages sorted by rank."""

    __slots__ = ("_chunks", "_deadlines", "_length", "bytes", "priority")

    def __init__(self, priority: int = 0, deadlines: Deadlines | None = None) -> None:
        self._chunks: list[Chunk] = []
        self._deadlines = deadlines
        self._length = 0
        #: Single messages may have their own.
        self.priority = priority
        #: Sum of the sizes.
        self.bytes = 0

    def __len__(self) -> int:
        return self._length

    @property
    def first_rank(self) -> int:
        """The rank of the first message. There must be one."""
        chunk = self._chunks[0]
        return chunk.front.ranks[chunk.gone]

    def __iter__(self) -> Iterator[Item]:
        for chunk in self._chunks:
            yield from chunk.look().items(0, len(chunk))

    def after(self, place: tuple[int, int], limit: int) -> list[Item]:
        """Messages after a rank and position, left in place. Packed chunks stay packed."""
        found: list[Item] = []
        number = bisect_right(self._chunks, place, key=_last_place)
        for chunk in self._chunks[number:]:
            columns = chunk.look()
            low, high = bisect_left(columns.ranks, place[0]), bisect_right(columns.ranks, place[0])
            start = bisect_right(columns.positions, place[1], low, high)
            found += columns.items(start, start + limit - len(found))
            if len(found) >= limit:
                break
        return found

    def append_run(self, first: int, sizes: Sequence[int], expires: int = 0, retries: int = FOREVER) -> None:
        """Add messages at the end whose positions, and ranks, are ``first``, ``first + 1`` and so on."""
        start = 0
        while start < len(sizes):
            chunk = self._open_chunk()
            columns = chunk.front
            if len(sizes) == 1 and not (expires or columns.extra) and retries == FOREVER:
                size = sizes[0]  # most runs have one message
                columns.ranks.append(first)
                columns.sizes.append(size)
                self._length += 1
                self.bytes += size
                return
            part = sizes[start : start + CHUNK - len(columns)]
            columns.append_run(first + start, part, expires, retries)
            chunk.note_deadline(expires, self, self._deadlines)
            start += len(part)
        self._length += len(sizes)
        self.bytes += sum(sizes)

    def insert_many(self, items: Iterable[Item]) -> None:
        """Add messages at the places of their ranks, after others of the same rank. Neighbours go in one step."""
        ordered = sorted(items)
        done = 0
        while done < len(ordered):
            rank = ordered[done].rank
            if not self._chunks or self._chunks[-1].last_rank <= rank:
                chunk = self._open_chunk()
                columns = chunk.columns
                at, room, stop = len(columns), CHUNK - len(columns), len(ordered)
            else:
                chunk = self._chunks[bisect_left(self._chunks, rank + 1, key=_last_rank)]
                columns = chunk.columns
                at = bisect_left(columns.ranks, rank + 1)
                room, stop = CHUNK, bisect_left(ordered, (columns.ranks[at],), done)
            part = ordered[done : min(stop, done + room)]
            columns.insert(at, part)
            done += len(part)
            self._length += len(part)
            self.bytes += sum([item.size for item in part])
            chunk.note_deadline(min([item.expires for item in part if item.expires], default=0), self, self._deadlines)
            if len(columns) > 2 * CHUNK:
                upper = chunk.split()
                self._chunks.insert(self._chunks.index(chunk) + 1, upper)
                upper.note_deadline(chunk.deadline, self, self._deadlines)

    def take(self, count: int) -> list[Item]:
        """Remove and return the first ``count`` messages, or as many as there are."""
        taken: list[Item] = []
        while len(taken) < count and self._chunks:
            chunk = self._chunks[0]
            columns, start = chunk.front, chunk.gone
            there = len(columns) - start
            part = min(count - len(taken), there)
            if part == 1:
                taken.append(columns.item(start))
                self.bytes -= columns.sizes[start]
            else:
                taken += columns.items(start, start + part)
                self.bytes -= sum(columns.sizes[start : start + part])
            self._length -= part
            if part == there:
                chunk.forget_deadline(self._deadlines)
                del self._chunks[0]
            else:
                chunk.leave(part)
        return taken

    def count_up_to(self, rank: int, most: int) -> int:
        """How many messages, up to ``most``, have this rank or a lower one."""
        found = 0
        for chunk in self._chunks:
            ranks = chunk.columns.ranks
            here = bisect_right(ranks, rank)
            found += here
            if here < len(ranks) or found >= most:
                break
        return min(found, most)

    def head(self) -> Item | None:
        """The first message, left in place."""
        if not self._chunks:
            return None
        chunk = self._chunks[0]
        return chunk.front.item(chunk.gone)

    def positions(self, count: int) -> list[int]:
        """The positions of the first ``count`` messages, or as many as there are, left in place."""
        found: list[int] = []
        for chunk in self._chunks:
            if len(found) >= count:
                break
            start = chunk.gone
            found += chunk.front.positions[start : start + count - len(found)]
        return found

    def get(self, rank: int, position: int | None = None) -> Item | None:
        """The message of this rank, left in place. Where ranks are not unique, ``position`` identifies it.

        Messages of one rank must have come in the order of their positions.
        """
        found = self._find(rank, position)
        return None if found is None else self._chunks[found[0]].columns.item(found[1])

    def remove(self, rank: int, position: int | None = None) -> Item | None:
        """Remove and return the message that ``get`` returns."""
        found = self._find(rank, position)
        if found is None:
            return None
        number, at = found
        item = self._chunks[number].columns.item(at)
        self._delete(number, at, at + 1)
        return item

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
            columns = self._chunks[number].columns
            stop = start
            while done < len(wanted) and stop < len(columns) and columns.ranks[stop] == wanted[done]:
                stop += 1
                done += 1
            removed += columns.items(start, stop)
            self._delete(number, start, stop)
        return removed

    def take_expired(self, chunk: Chunk, now: int, limit: int) -> list[Item]:
        """Remove and return up to ``limit`` expired messages of a chunk, and note its next deadline."""
        columns = chunk.columns
        expired, following = columns.due(now, limit)
        number = bisect_left(self._chunks, chunk.last_rank, key=_last_rank)
        items = [columns.item(at) for at in expired]
        chunk.forget_deadline(self._deadlines)
        chunk.note_deadline(following, self, self._deadlines)
        for start, stop in reversed(_runs(expired)):
            self._delete(number, start, stop)
        return items

    def columns(self, start: int = 0, count: int | None = None) -> list[NDArray[np.generic]]:
        """Entries ``start`` to ``start + count`` as seven arrays, in the order of :class:`Item`. They are copies."""
        parts: list[list[NDArray[np.generic]]] = []
        stop = self._length if count is None else min(self._length, start + count)
        seen = 0
        for chunk in self._chunks:
            length = len(chunk)
            low, high = max(start - seen, 0), min(stop - seen, length)
            if low < high:
                parts.append(chunk.look().as_arrays(low, high))
            seen += length
        if not parts:
            return [np.empty(0, code) for code in TYPES]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def fill(self, columns: Sequence[NDArray[np.generic]]) -> None:
        """Take these entries, which must be sorted by rank, into an empty lane. The arrays are those of ``columns``."""
        total = len(columns[RANK])
        for start in range(0, total, CHUNK):
            part = columns_from_arrays(self.priority, [column[start : start + CHUNK] for column in columns])
            chunk = Chunk(part)
            chunk.note_deadline(part.due(0, 0)[1], self, self._deadlines)
            self._chunks.append(chunk)
            if start + CHUNK < total:
                chunk.pack()
        self._length = total
        self.bytes = int(np.sum(columns[SIZE], dtype=np.uint64))

    def _open_chunk(self) -> Chunk:
        """The last chunk, with room for at least one row."""
        if self._chunks:
            chunk = self._chunks[-1]
            if chunk.rows >= CHUNK and 8 * chunk.gone >= chunk.rows:
                chunk.drop_gone()
            if chunk.rows < CHUNK:
                return chunk
            chunk.pack()
        chunk = empty_chunk(self.priority)
        self._chunks.append(chunk)
        return chunk

    def _find(self, rank: int, position: int | None = None) -> tuple[int, int] | None:
        """Chunk and index of the first entry with this rank, and this position if there is one."""
        if position is None:
            number = bisect_left(self._chunks, rank, key=_last_rank)
        else:
            number = bisect_left(self._chunks, (rank, position), key=_last_place)
        if number == len(self._chunks):
            return None
        columns = self._chunks[number].columns
        ranks = columns.ranks
        at = bisect_left(ranks, rank)
        if position is None:
            return (number, at) if ranks[at] == rank else None
        high = bisect_right(ranks, rank)
        at = bisect_left(columns.positions, position, at, high)
        return (number, at) if at < high and columns.positions[at] == position else None

    def _delete(self, number: int, start: int, stop: int) -> None:
        chunk = self._chunks[number]
        columns = chunk.columns
        self.bytes -= columns.sizes[start] if stop - start == 1 else sum(columns.sizes[start:stop])
        self._length -= stop - start
        if stop - start == len(columns):
            chunk.forget_deadline(self._deadlines)
            del self._chunks[number]
        else:
            columns.delete(start, stop)


def _last_rank(chunk: Chunk) -> int:
    return chunk.last_rank


def _last_place(chunk: Chunk) -> tuple[int, int]:
    return chunk.last_place


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs of neighbours: first, and the exclusive end."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs
