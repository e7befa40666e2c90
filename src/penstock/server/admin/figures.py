"""Measurements of the running broker: histograms of commits, their syncs, and the loop's lag."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence

from penstock.admin.admin_requests import Histogram

#: Seconds: from a commit in memory to a very slow disk.
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVENTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 50000.0)
#: Seconds between two measurements of the loop.
LOOK_EVERY = 0.25


class Buckets:
    """A histogram. One thread adds values, others may read."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = (len(bounds) + 1) * [0]
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def histogram(self) -> Histogram:
        """A snapshot."""
        return Histogram(bounds=list(self._bounds), counts=list(self._counts), sum=self._sum)


class BrokerMeasures:
    """All histograms."""

    def __init__(self) -> None:
        self.commit_events = Buckets(EVENTS)
        self.commit_seconds = Buckets(SECONDS)
        self.sync_seconds = Buckets(SECONDS)
        self.loop_lag = Buckets(SECONDS)
        self._timer: asyncio.TimerHandle | None = None

    def committed(self, events: int, seconds: float, sync_seconds: float) -> None:
        """Count an append, a sync, or both. Called in the journal's thread."""
        if events:
            self.commit_events.add(events)
            self.commit_seconds.add(seconds)
        if sync_seconds:
            self.sync_seconds.add(sync_seconds)

    def watch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to measure how late timers of the loop run."""
        due = loop.time() + LOOK_EVERY

        def look() -> None:
            self.loop_lag.add(max(0.0, loop.time() - due))
            self.watch_loop(loop)

        self._timer = loop.call_at(due, look)

    def stop(self) -> None:
        """Stop the measurement of the loop."""
        if self._timer is not None:
            self._timer.cancel()
