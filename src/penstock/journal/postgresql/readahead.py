"""A bounded cache of blocks that were read from the database or written to it, and reading ahead into it.

The payloads of a backlog are requested a few at a time, in order. A missing block is fetched together with a few small
blocks after it. If those are requested too, fetches grow, and a thread fetches the next stretch in advance. The least
recently used blocks are evicted first.

A fetch may take long. The event loop only uses cached blocks (``resident``).
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

#: Bytes of a fetch, at first and at most, and of the cache.
FIRST_STRETCH = 32 * 1024
STRETCH = 1024 * 1024
KEPT_BYTES = 32 * 1024 * 1024
#: Blocks that are cached regardless of their size: one being read, one fetched ahead, one just written.
KEPT_BLOCKS = 3

#: Takes an extent, a position and a number of bytes: see ``ReadableDatabase.blocks``.
Fetch = Callable[[int, int, int], list[BlockRow]]


class _Entry(NamedTuple):
    end: int
    data: bytes


class BlockCache:
    """The most recently used blocks, by extent and position. Any thread may use it."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._lock = Lock()
        self._entries: OrderedDict[tuple[int, int], _Entry] = OrderedDict()
        self._parsed: dict[tuple[int, int], Block] = {}
        #: First positions of the cached blocks of each extent, in order.
        self._firsts: dict[int, list[int]] = {}
        self._size = 0

    def add(self, extent: int, first: int, end: int, data: bytes) -> None:
        """Cache a block."""
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
        """The block with a position, if it is cached. Raises BlockError if it is damaged, and drops it."""
        with self._lock:
            key = self._key(extent, position)
            if key is None:
                return None
            self._entries.move_to_end(key)
            block, data = self._parsed.get(key), self._entries[key].data
        return block or self._parse(key, data)

    def resident(self, extent: int, position: int) -> Block | None:
        """The same if it was parsed before, which takes a while for a large block."""
        with self._lock:
            key = self._key(extent, position)
            block = self._parsed.get(key) if key is not None else None
            if key is not None and block is not None:
                self._entries.move_to_end(key)
            return block

    def has(self, extent: int, position: int) -> bool:
        """Whether the block with a position is cached."""
        with self._lock:
            return self._key(extent, position) is not None

    def forget(self, extent: int) -> None:
        """Drop the blocks of an extent."""
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
        """Parse outside the lock, which the event loop may be waiting for."""
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
    """The range of blocks that were fetched together."""

    extent: int
    first: int
    end: int


class ReadAhead:
    """Finds blocks by position, in the cache or with a fetch. Any thread may use it."""

    def __init__(self, fetch: Fetch, *, in_thread: bool = True) -> None:
        """Without ``in_thread`` nothing is fetched in advance, so that a simulation is repeatable."""
        self.cache = BlockCache()
        self._fetch = fetch
        self._pool = ThreadPoolExecutor(1, "penstock-read-ahead") if in_thread else None
        self._lock = Lock()
        self._last = _Stretch(0, 0, 0)
        #: Bytes of the next fetch while stretches are requested in order.
        self._size = FIRST_STRETCH
        #: Whether stretches are requested in order.
        self._in_order = False
        self._coming: Future[Block | None] | None = None

    def find(self, extent: int, position: int) -> Block | None:
        """The block of an extent with a position; None if there is none. May wait for a fetch.

        Raises the errors of ``fetch``, and BlockError if the block is damaged.
        """
        block = self.cache.find(extent, position) or self._bring(extent, position)
        self._look_ahead(extent, position)
        return block

    def resident(self, extent: int, position: int) -> Block | None:
        """The same if it is cached. Starts fetching the next stretch."""
        block = self.cache.resident(extent, position)
        if block is not None:
            self._look_ahead(extent, position)
        return block

    def close(self) -> None:
        """Stop fetching."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _bring(self, extent: int, position: int) -> Block | None:
        """Fetch the block, if there is one, even if the cache evicts it meanwhile."""
        coming = self._coming
        if coming is not None:  # it may be on its way; if that failed, this thread's own fetch reports the error
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
        """Fetch the next stretch in the thread if stretches are requested in order, unless it is cached."""
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
