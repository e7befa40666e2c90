"""A sorted collection whose every step is small, however much is in it.

A plain sorted list moves everything after the place of a change, and a heap keeps removed values until their turn
comes. Here the values are in chunks, so a step moves a part of one chunk, and removed values are gone at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

#: Values in a chunk before it is split. 100,000 values are about 200 chunks, so that both bisections are short.
CHUNK = 1_000


class Comparable(Protocol):
    """A value that can be sorted."""

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=Comparable)


class Ordered(Generic[T]):
    """Different values that can be compared, lowest first."""

    __slots__ = ("_chunks", "_length", "head")

    def __init__(self, values: Iterable[T] = ()) -> None:
        ordered = sorted(values)
        self._chunks: list[list[T]] = [ordered[at : at + CHUNK] for at in range(0, len(ordered), CHUNK)]
        self._length = len(ordered)
        #: The lowest value; None if there is none. Cached, since it is read much more often than it changes.
        self.head: T | None = ordered[0] if ordered else None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for chunk in self._chunks:
            yield from chunk

    @property
    def last(self) -> T:
        """The highest value. There must be one."""
        return self._chunks[-1][-1]

    def down_from(self, value: T | None) -> Iterator[T]:
        """The value, if it exists, and all lower ones, highest first; all of them without a value."""
        number = len(self._chunks) - 1 if value is None else min(self._chunk_of(value), len(self._chunks) - 1)
        for chunk in self._chunks[number::-1] if self._chunks else ():
            stop = len(chunk) if value is None else bisect_right(chunk, value)
            yield from chunk[:stop][::-1]

    def up_from(self, value: T) -> Iterator[T]:
        """All values above this one, lowest first."""
        for chunk in self._chunks[self._chunk_of(value) :]:
            yield from chunk[bisect_right(chunk, value) :]

    def add(self, value: T) -> None:
        """Add a value that does not exist yet."""
        self._length += 1
        if not self._chunks:
            self._chunks.append([value])
            self.head = value
            return
        number = min(self._chunk_of(value), len(self._chunks) - 1)
        chunk = self._chunks[number]
        chunk.insert(bisect_left(chunk, value), value)
        if len(chunk) > CHUNK:
            half = len(chunk) // 2
            self._chunks.insert(number + 1, chunk[half:])
            del chunk[half:]
        self.head = self._chunks[0][0]

    def add_run(self, values: list[T]) -> None:
        """Add sorted values that do not exist yet. It costs almost nothing if all are above the existing ones."""
        chunks = self._chunks
        if not values or (chunks and not chunks[-1][-1] < values[0]):
            for value in values:
                self.add(value)
            return
        self._length += len(values)
        room = CHUNK - len(chunks[-1]) if chunks else 0
        if room > 0:
            chunks[-1] += values[:room]
        room = max(room, 0)
        chunks += [values[at : at + CHUNK] for at in range(room, len(values), CHUNK)]
        self.head = chunks[0][0]

    def remove(self, value: T) -> None:
        """Remove an existing value."""
        number = self._chunk_of(value)
        chunk = self._chunks[number]
        at = bisect_left(chunk, value)
        assert chunk[at] == value
        del chunk[at]
        self._length -= 1
        if not chunk:
            del self._chunks[number]
        self.head = self._chunks[0][0] if self._chunks else None

    def remove_many(self, values: Iterable[T]) -> None:
        """Remove existing values. Neighbours go together, in one step."""
        ordered = sorted(values)
        done = 0
        while done < len(ordered):
            number = self._chunk_of(ordered[done])
            chunk = self._chunks[number]
            at = stop = bisect_left(chunk, ordered[done])
            most = min(len(ordered) - done, len(chunk) - at)
            if chunk[at + most - 1] == ordered[done + most - 1]:  # equally many lie between in both: they are the same
                assert chunk[at : at + most] == ordered[done : done + most]
                stop += most
                done += most
            while done < len(ordered) and stop < len(chunk) and chunk[stop] == ordered[done]:
                stop += 1
                done += 1
            assert stop > at
            del chunk[at:stop]
            self._length -= stop - at
            if not chunk:
                del self._chunks[number]
        self.head = self._chunks[0][0] if self._chunks else None

    def clear(self) -> None:
        """Remove everything."""
        self._chunks = []
        self._length = 0
        self.head = None

    def _chunk_of(self, value: Any) -> int:
        """The number of the first chunk that ends with this value or a higher one."""
        chunks = self._chunks
        if len(chunks) < 2:
            return 0
        return bisect_left(chunks, value, key=_last)


def _last(chunk: list[Any]) -> Any:
    return chunk[-1]
