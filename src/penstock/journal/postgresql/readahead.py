"""Blocks that were read from the database, or written to it, so that who asks for single messages seldom waits.

The payloads of a backlog are asked for a few at a time, in order. The first of them that is not here is fetched
together with a few small blocks after it; when those after them are asked for as well, more is fetched at a time, and
the next stretch meanwhile. What is here is bounded, and those that were asked for longest ago go first.

A fetch takes as long as the database likes. The event loop only asks for what is here (``resident``).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import NamedTuple

from penstock.journal.format.block import Block, BlockError, parse
from penstock.journal.postgresql.database import BlockRow

#: How many bytes are fetched at a time, at first and at most, and how many are kept.
FIRST_STRETCH = 32 * 1024
STRETCH = 1024 * 1024
KEPT_BYTES = 32 * 1024 * 1024
#: Blocks that are kept however large they are: one that is read, one that was fetched ahead, one that was written.
KEPT_BLOCKS = 3

#: The blocks of an extent from a position on, about so many bytes of them: see ``ReadableDatabase.blocks``.
Fetch = Callable[[int, int, int], list[BlockRow]]


class _Entry(NamedTuple):
    end: int
    data: bytes


class BlockCache:
    """The latest few blocks, by extent and position. Any thread may use it."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._lock = Lock()
        self._entries: OrderedDict[tuple[int, int], _Entry] = OrderedDict()
        self._parsed: dict[tuple[int, int], Block] = {}
        #: First positions of the blocks of each extent that are here, in order.
        self._firsts: dict[int, list[int]] = {}
        self._size = 0

    def add(self, extent: int, first: int, end: int, data: bytes) -> None:
        """Keep a block."""
        with self._lock:
            key = (extent, first)
            if key in self._entries:
                return
            self._entries[key] = _Entry(end, data)
            insort(self._firsts.setdefault(extent, []), first)
            self._size += len(data)
            while self._size > self._limit and len(self._entries) > KEPT_BLOCKS:
                self._drop(next(iter(self._entries)))

    def find(self, extent: int, position: int) -> Block | None:
        """The block that has a position, if it is here. Raises BlockError if it is unsound, and forgets it."""
        with self._lock:
            key = self._key(extent, position)
            if key is None:
                return None
            self._entries.move_to_end(key)
            block, data = self._parsed.get(key), self._entries[key].data
        return block or self._parse(key, data)

    def resident(self, extent: int, position: int) -> Block | None:
        """The same, if it was found to be sound before: that takes a while for a large one."""
        with self._lock:
            key = self._key(extent, position)
            block = self._parsed.get(key) if key is not None else None
            if key is not None and block is not None:
                self._entries.move_to_end(key)
            return block

    def has(self, extent: int, position: int) -> bool:
        """Whether the block that has a position is here."""
        with self._lock:
            return self._key(extent, position) is not None

    def forget(self, extent: int) -> None:
        """The extent is gone."""
        with self._lock:
            for first in list(self._firsts.get(extent, ())):
                self._drop((extent, first))

    def _key(self, extent: int, position: int) -> tuple[int, int] | None:
        firsts = self._firsts.get(extent, ())
        at = bisect_right(firsts, position) - 1
        if at < 0 or position >= self._entries[extent, firsts[at]].end:
            return None
        return extent, firsts[at]

    def _parse(self, key: tuple[int, int], data: bytes) -> Block:
        """Outside of the lock, for which the event loop may wait."""
        try:
            block = parse(data)
        except BlockError:
            with self._lock:
                if key in self._entries:
                    self._drop(key)
            raise
        with self._lock:
            if key in self._entries:
                self._parsed[key] = block
        return block

    def _drop(self, key: tuple[int, int]) -> None:
        entry = self._entries.pop(key)
        self._parsed.pop(key, None)
        self._size -= len(entry.data)
        firsts = self._firsts[key[0]]
        del firsts[bisect_right(firsts, key[1]) - 1]
        if not firsts:
            del self._firsts[key[0]]


class _Stretch(NamedTuple):
    """Blocks that were fetched together: from which extent, and their positions."""

    extent: int
    first: int
    end: int


class ReadAhead:
    """Gets blocks by position, from the cache or by a fetch. Any thread may use it."""

    def __init__(self, fetch: Fetch, *, in_thread: bool = True) -> None:
        """Without ``in_thread`` nothing is fetched before it is asked for: for who must be repeatable."""
        self.cache = BlockCache()
        self._fetch = fetch
        self._pool = ThreadPoolExecutor(1, "penstock-read-ahead") if in_thread else None
        self._lock = Lock()
        self._last = _Stretch(0, 0, 0)
        #: How many bytes are fetched next, as long as stretch is asked for after stretch.
        self._size = FIRST_STRETCH
        #: Whether stretch was asked for after stretch.
        self._in_order = False
        self._coming: Future[Block | None] | None = None

    def find(self, extent: int, position: int) -> Block | None:
        """The block of an extent that has a position; None if there is none. It may take as long as a fetch.

        Raises what ``fetch`` does, and BlockError where the block is unsound.
        """
        block = self.cache.find(extent, position) or self._bring(extent, position)
        self._look_ahead(extent, position)
        return block

    def resident(self, extent: int, position: int) -> Block | None:
        """The same, if it is here. What comes next is fetched meanwhile."""
        block = self.cache.resident(extent, position)
        if block is not None:
            self._look_ahead(extent, position)
        return block

    def close(self) -> None:
        """Nothing more is fetched."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _bring(self, extent: int, position: int) -> Block | None:
        """The block, if there is one, whatever becomes of the cache meanwhile."""
        coming = self._coming
        if coming is not None:  # it may be on its way; who asks hears of an error by a fetch of its own
            wait((coming,))
            block = self.cache.find(extent, position)
            if block is not None:
                return block
        follows = self._last.extent == extent and self._last.end == position
        with self._lock:
            self._in_order = follows
            self._size = min(2 * self._size, STRETCH) if follows else FIRST_STRETCH
        return self._get(extent, position)

    def _get(self, extent: int, position: int) -> Block | None:
        rows = self._fetch(extent, position, self._size)
        for row in rows:
            self.cache.add(row.extent, row.first, row.end, row.data)
        if not rows:
            return None
        self._last = _Stretch(extent, rows[0].first, rows[-1].end)
        if not rows[0].first <= position < rows[0].end:
            return None
        return self.cache.find(extent, position) or parse(rows[0].data)

    def _look_ahead(self, extent: int, position: int) -> None:
        """Fetch what comes next in the thread, if stretch is asked for after stretch, unless it is here."""
        if not self._in_order or self._pool is None:
            return
        last = self._last
        if last.extent != extent or not last.first <= position < last.end:
            return
        with self._lock:
            idle = self._coming is None or self._coming.done()
            if idle and not self.cache.has(extent, last.end):
                self._size = min(2 * self._size, STRETCH)
                self._coming = self._pool.submit(self._get, extent, last.end)
