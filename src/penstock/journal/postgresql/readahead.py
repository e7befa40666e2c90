"""Blocks that were read from the database, or written to it, so that who asks for single messages seldom waits.

The broker's loop asks for the payloads of a backlog a few at a time, in order. The first of them that is not here is
fetched together with a stretch of blocks after it; when the next stretch is asked for as well, the one after that is
fetched meanwhile. What is here is bounded, and those that were asked for longest ago go first.

All is fetched in a thread, and nobody waits for it longer than a moment: a database may be silent for as long as it
likes, and the loop has others to answer. Who is turned away asks again, and finds what has come meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

from penstock.journal.errors import LogAway
from penstock.journal.format.block import Block, BlockError, parse
from penstock.journal.postgresql.database import BlockRow

#: How many bytes are fetched at a time, and how many are kept.
STRETCH = 1024 * 1024
KEPT_BYTES = 32 * 1024 * 1024
#: Seconds that are waited for a fetch. Once one took longer, or failed, nobody waits until one succeeds again.
PATIENCE = 0.25
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
            firsts = self._firsts.get(extent, ())
            at = bisect_right(firsts, position) - 1
            if at < 0:
                return None
            key = (extent, firsts[at])
            if position >= self._entries[key].end:
                return None
            self._entries.move_to_end(key)
            block = self._parsed.get(key)
            if block is None:
                try:
                    block = self._parsed[key] = parse(self._entries[key].data)
                except BlockError:
                    self._drop(key)
                    raise
            return block

    def has(self, extent: int, position: int) -> bool:
        """Whether the block that has a position is here."""
        with self._lock:
            firsts = self._firsts.get(extent, ())
            at = bisect_right(firsts, position) - 1
            return at >= 0 and position < self._entries[extent, firsts[at]].end

    def forget(self, extent: int) -> None:
        """The extent is gone."""
        with self._lock:
            for first in list(self._firsts.get(extent, ())):
                self._drop((extent, first))

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
        #: Whether stretch was asked for after stretch.
        self._in_order = False
        self._coming: Future[None] | None = None
        self._patience = PATIENCE

    def find(self, extent: int, position: int) -> Block | None:
        """The block of an extent that has a position; None if there is none.

        Raises what ``fetch`` does, and LogAway where that takes too long.
        """
        block = self.cache.find(extent, position)
        if block is None:
            self._bring(extent, position)
            block = self.cache.find(extent, position)
        if self._in_order and self._last.extent == extent and self._last.first <= position:
            self._look_ahead()
        return block

    def close(self) -> None:
        """Nothing more is fetched."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _bring(self, extent: int, position: int) -> None:
        """Have the block here, if there is one."""
        if self._coming is not None:  # it may be on its way; who asks hears of an error by a fetch of its own
            self._wait(self._coming)
            if self.cache.has(extent, position):
                return
        self._in_order = self._last[::2] == (extent, position)
        if self._pool is None:
            self._get(extent, position)
            return
        coming = self._coming = self._pool.submit(self._get, extent, position)
        self._wait(coming)
        coming.result()

    def _wait(self, coming: Future[None]) -> None:
        """Until a fetch has ended. Raises LogAway if that takes too long."""
        try:
            failed = coming.exception(self._patience) is not None
        except TimeoutError:
            self._patience = 0.0
            raise LogAway("the journal can not be read: the database does not answer in time") from None
        self._patience = 0.0 if failed else PATIENCE

    def _get(self, extent: int, position: int) -> None:
        rows = self._fetch(extent, position, STRETCH)
        for row in rows:
            self.cache.add(row.extent, row.first, row.end, row.data)
        if rows:
            self._last = _Stretch(extent, rows[0].first, rows[-1].end)

    def _look_ahead(self) -> None:
        """Fetch what comes next in the thread, unless it is here."""
        with self._lock:
            extent, _, end = self._last
            if self._pool is None or not (self._coming is None or self._coming.done()):
                return
            if not self.cache.has(extent, end):
                self._coming = self._pool.submit(self._get, extent, end)
