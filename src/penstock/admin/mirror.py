"""A copy of all queues' figures, so that lists are sorted and filtered without the broker.

Every few seconds a pass fetches all queues, a few hundred at a time, so that the broker serves its clients in between.
Rates are computed from the growth of counters between two passes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrokerFigures, QueueRow, QueueRows
from penstock.admin.problems import ApiProblem
from penstock.admin.resources.common import Sample, resource_of
from penstock.admin.resources.queues import Rates
from penstock.admin.times import to_datetime
from penstock.admin.watched_broker import WatchedBroker

#: Seconds between two passes while figures are requested and otherwise; and the age at which figures are refreshed.
QUICK, SLOW, FRESH = 1.0, 5.0, 1.0
#: Seconds without a request after which passes slow down.
IDLE = 15.0
#: Samples that are kept: ten minutes of quick passes.
MOST_SAMPLES = 600
#: Seconds for which one request selects queues before it yields to others.
SLICE = 0.005
#: Weight of the last pass in a rate.
WEIGHT = 0.6


class QueueTotals(NamedTuple):
    """Sums over queues. ``oldest`` is the lowest position of a ready message, 0 if there is none."""

    queues: int = 0
    ready: int = 0
    out: int = 0
    delayed: int = 0
    dead: int = 0
    damaged: int = 0
    bytes: int = 0
    consumers: int = 0
    oldest: int = 0


class MessageCounts(NamedTuple):
    """Messages since this process started."""

    published: int = 0
    delivered: int = 0
    settled: int = 0
    redelivered: int = 0


class Mirror:
    """The figures of the last pass."""

    def __init__(self, broker: WatchedBroker, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self.rows: dict[int, QueueRow] = {}
        self.names: dict[str, int] = {}
        self.rates: dict[int, Rates] = {}
        self.figures: BrokerFigures | None = None
        self.previous_figures: BrokerFigures | None = None
        self.counted = MessageCounts()
        self.samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._refreshed_at = 0.0
        self._requested_at = 0.0
        self._stale = False
        self._pass: asyncio.Task[None] | None = None
        #: False while the broker is on standby.
        self.serving = True

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            try:
                await self.refresh()
                self.serving = True
            except Exception as error:  # requests report that the broker is away
                self._refreshed_at = 0.0
                self.serving = not (isinstance(error, ApiProblem) and error.problem.code == "standby")
            quick = self._clock() - self._requested_at < IDLE
            await asyncio.sleep(QUICK if quick else SLOW)

    async def ensure_loaded(self) -> None:
        """Return once there are any figures."""
        if self.figures is None:
            await self.refresh()

    @property
    def identity(self) -> bytes:
        """The journal's identity, with which message IDs begin."""
        assert self.figures is not None
        return self.figures.identity

    async def ensure_fresh(self) -> None:
        """Refresh figures older than a second. Raises ApiProblem while the broker is away."""
        self._requested_at = self._clock()
        while self._stale or self._clock() - self._refreshed_at > FRESH:
            await self.refresh()

    def invalidate(self) -> None:
        """Refresh before the next use: a request has changed something."""
        self._stale = True

    async def refresh(self) -> None:
        """Run a pass, or wait for the one in progress."""
        if self._pass is None or self._pass.done():
            self._pass = asyncio.create_task(self._fetch())
        await asyncio.shield(self._pass)

    async def _fetch(self) -> None:
        self._stale = False
        figures = await self._broker.ask(requests.Figures(), BrokerFigures)
        rows: dict[int, QueueRow] = {}
        after = 0
        while True:
            part = await self._broker.ask(requests.Queues(after=after), QueueRows)
            rows.update((row.number, row) for row in part.rows)
            if not part.more or not part.rows:
                break
            after = part.rows[-1].number
        now = self._clock()
        if self.rows or self.figures is not None:
            growth = (_growth(self.rows.get(number), row, new=True) for number, row in rows.items())
            self.counted = MessageCounts(*map(sum, zip(self.counted, *growth, strict=True)))
        self._note_rates(rows, now - self._refreshed_at if self._refreshed_at else 0.0)
        self.rows, self._refreshed_at = rows, now
        self.names = {f"{row.namespace}/{row.name}": row.number for row in rows.values()}
        self.previous_figures, self.figures = self.figures, figures
        self._note_sample(figures)

    def note(self, row: QueueRow) -> None:
        """Store the current figures of one queue."""
        self.rows[row.number] = row
        self.names[f"{row.namespace}/{row.name}"] = row.number

    def forget(self, full_name: str) -> None:
        """Remove a queue that was deleted."""
        number = self.names.pop(full_name, None)
        if number is not None:
            self.rows.pop(number, None)

    async def select(self, wanted: Callable[[QueueRow], bool]) -> list[QueueRow]:
        """The queues that are wanted. It yields in between: there may be many queues and many patterns."""
        found: list[QueueRow] = []
        until = time.monotonic() + SLICE
        for row in list(self.rows.values()):
            if wanted(row):
                found.append(row)
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE
        return found

    def totals(self) -> QueueTotals:
        """Sums over all queues."""
        return sum_queues(self.rows.values())

    def total_rates(self, rows: Iterable[QueueRow]) -> Rates:
        """Sums of the rates of queues."""
        rates = [self.rates.get(row.number, _STILL) for row in rows]
        return Rates(**{name: round(sum(map(attrgetter(name), rates)), 3) for name in MessageCounts._fields})

    def _note_rates(self, rows: dict[int, QueueRow], seconds: float) -> None:
        if seconds <= 0:
            return
        found: dict[int, Rates] = {}
        for number, row in rows.items():
            earlier = self.rows.get(number)
            growth = _growth(earlier, row)
            if any(growth) or number in self.rates:
                rates = _smooth(self.rates.get(number, _STILL), growth, seconds)
                if rates != _STILL:
                    found[number] = rates
        self.rates = found

    def _note_sample(self, figures: BrokerFigures) -> None:
        totals, rates = self.totals(), self.total_rates(self.rows.values())
        self.samples.append(
            resource_of(
                Sample,
                totals,
                at=to_datetime(figures.now),
                published_per_second=rates.published,
                delivered_per_second=rates.delivered,
                settled_per_second=rates.settled,
            )
        )


_STILL = Rates()
_NO_GROWTH = MessageCounts()


def counts_of(row: QueueRow) -> MessageCounts:
    """The counters of a queue."""
    published, acknowledged, popped, dropped, purged, _, _, delivered, redelivered = row.counters
    return MessageCounts(published, delivered, acknowledged + popped + dropped + purged, redelivered)


def dead_by_reason(rows: Iterable[QueueRow]) -> dict[str, int]:
    """Dead letters of queues by reason."""
    reasons: Counter[str] = Counter()
    for row in rows:
        if row.reasons:
            reasons.update(row.reasons)
    return dict(reasons)


def sum_queues(rows: Iterable[QueueRow]) -> QueueTotals:
    """Sums over queues."""
    sums = [0] * len(QueueTotals._fields)
    oldest = 0
    for row in rows:
        values = (1, row.ready, row.out, row.delayed, row.dead, row.damaged, row.bytes, row.consumers, 0)
        sums = [total + value for total, value in zip(sums, values, strict=True)]
        if row.oldest and (not oldest or row.oldest < oldest):
            oldest = row.oldest
    return QueueTotals(*sums)._replace(oldest=oldest)


def _growth(earlier: QueueRow | None, row: QueueRow, *, new: bool = False) -> MessageCounts:
    """Growth of the counters since ``earlier``. For an unknown queue their value if ``new``, otherwise nothing."""
    if earlier is None:
        return counts_of(row) if new else _NO_GROWTH
    if row.counters == earlier.counters:
        return _NO_GROWTH
    return MessageCounts(*map(_increase, counts_of(earlier), counts_of(row)))


def _increase(then: int, now: int) -> int:
    return now - then if now > then else 0


def _smooth(rates: Rates, growth: MessageCounts, seconds: float) -> Rates:
    """Exponentially smoothed rates."""

    def smooth(rate: float, count: int) -> float:
        value = WEIGHT * count / seconds + (1 - WEIGHT) * rate
        return round(value, 3) if value >= 0.005 else 0.0

    return Rates(
        published=smooth(rates.published, growth.published),
        delivered=smooth(rates.delivered, growth.delivered),
        settled=smooth(rates.settled, growth.settled),
        redelivered=smooth(rates.redelivered, growth.redelivered),
    )
