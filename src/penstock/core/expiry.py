"""When do waiting messages expire? Deadlines of one lane, bucketed by second, eight bytes each.

A bucket holds the ranks of the messages that expire within its second; the exact time is in the lane. When a second
begins, its bucket is opened: the messages are looked up and sorted by their exact times, so that each fires when due.
A bucket with more than ``OPEN_LIMIT`` messages is not sorted; it fires as a whole when its second is over.

Messages that leave the lane stay in their bucket, and are not found when it is opened. ``sweep`` removes them before
they are more than the messages that wait.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

SECOND = 1_000_000
OPEN_LIMIT = 10_000
#: Left-over entries that are not worth a sweep.
SWEEP_SLACK = 10_000


class Expiry:
    """The deadlines of a lane's messages. Ranks come back when they are due, some of them perhaps no longer there."""

    __slots__ = ("_buckets", "_count", "_opened", "_seconds", "_soon")

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}
        self._seconds: list[int] = []
        self._soon: list[tuple[int, int]] = []
        self._opened = -1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, expires: int, ranks: Iterable[int]) -> None:
        """Messages of these ranks expire at ``expires``."""
        second = expires // SECOND
        if second <= self._opened:
            for rank in ranks:
                insort(self._soon, (expires, rank))
                self._count += 1
            return
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = array("Q")
            heappush(self._seconds, second)
        before = len(bucket)
        bucket.extend(ranks)
        self._count += len(bucket) - before

    def add_many(self, expires: NDArray[np.int64], ranks: NDArray[np.uint64]) -> None:
        """Messages of these ranks expire at these times."""
        seconds = expires // SECOND
        order = np.argsort(seconds, kind="stable")
        cuts = np.flatnonzero(np.diff(seconds[order])) + 1
        for part in np.split(order, cuts):
            self.add(int(seconds[part[0]]) * SECOND, ranks[part].tolist())

    def next_deadline(self) -> int | None:
        """When to call ``due`` next. May be a little early, never late but for a bucket that fires as a whole."""
        times = [self._soon[0][0]] if self._soon else []
        if self._seconds:
            second = self._seconds[0]
            heavy = len(self._buckets[second]) > OPEN_LIMIT
            times.append((second + heavy) * SECOND)
        return min(times, default=None)

    def due(self, now: int, limit: int, expires_of: Callable[[int], int]) -> list[int]:
        """Remove and return up to ``limit`` ranks that are due. ``expires_of`` gives a rank's exact time, 0 if gone."""
        ranks: list[int] = []
        while len(ranks) < limit and self._seconds and self._seconds[0] * SECOND <= now:
            second = self._seconds[0]
            bucket = self._buckets[second]
            if (second + 1) * SECOND <= now:
                room = limit - len(ranks)
                ranks += bucket[:room]
                del bucket[:room]
                if bucket:
                    break
            elif len(bucket) > OPEN_LIMIT:
                break
            else:
                self._open(bucket, expires_of)
                self._opened = second
            del self._buckets[heappop(self._seconds)]
        ready = min(bisect_right(self._soon, (now, 2**64)), limit - len(ranks))
        ranks += [rank for _, rank in self._soon[:ready]]
        del self._soon[:ready]
        self._count -= len(ranks)
        return ranks

    def sweep(self, live: NDArray[np.uint64]) -> None:
        """Forget ranks that are not among ``live``, which is sorted, and those that are noted twice."""
        for second, bucket in list(self._buckets.items()):
            kept = np.unique(np.frombuffer(bucket, np.uint64))
            kept = kept[np.searchsorted(live, kept, "right") > np.searchsorted(live, kept)]
            if len(kept):
                self._buckets[second] = array("Q", kept.tobytes())
            else:
                del self._buckets[second]
        self._seconds = sorted(self._buckets)
        there = set(live.tolist()) if self._soon else set()
        self._soon = sorted({entry for entry in self._soon if entry[1] in there})
        self._count = len(self._soon) + sum(map(len, self._buckets.values()))

    def wants_sweep(self, waiting: int) -> bool:
        """Whether most entries are of messages that are gone. ``waiting`` is how many wait."""
        return self._count > 2 * waiting + SWEEP_SLACK

    def _open(self, bucket: array[int], expires_of: Callable[[int], int]) -> None:
        there = [(expires, rank) for rank in bucket if (expires := expires_of(rank))]
        self._count -= len(bucket) - len(there)
        self._soon = sorted(self._soon + there)
