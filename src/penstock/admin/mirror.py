"""Figures of all queues, asked for piece by piece and kept here: lists are sorted and filtered without the broker.

Every few seconds a pass asks for all queues, some hundred at a time, so that the broker's own clients have their turns
in between. Rates come from what the counters have grown by since the pass before.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.admin import admin_requests as requests
from penstock.admin.admin_requests import BrokerFigures, QueueRow, QueueRows
from penstock.admin.problems import ApiProblem
from penstock.admin.resources.common import Sample
from penstock.admin.resources.queues import Rates
from penstock.admin.times import moment
from penstock.admin.watched_broker import WatchedBroker

#: Seconds between two passes: while somebody looks, and else; and after which figures are asked for anew.
QUICK, SLOW, FRESH = 1.0, 5.0, 1.0
#: Seconds without a request after which nobody looks.
IDLE = 15.0
#: Samples that are kept: ten minutes while somebody looks.
MOST_SAMPLES = 600
#: Seconds for which queues are looked through before others have a turn.
SLICE = 0.005
#: How much of a rate is that of the last pass.
WEIGHT = 0.6


class QueueTotals(NamedTuple):
    """Sums over queues. ``oldest`` is the lowest place of a ready message, 0 if there is none."""

    queues: int = 0
    ready: int = 0
    out: int = 0
    delayed: int = 0
    dead: int = 0
    damaged: int = 0
    bytes: int = 0
    consumers: int = 0
    oldest: int = 0
    published: int = 0
    settled: int = 0
    delivered: int = 0
    redelivered: int = 0


class MessageCounts(NamedTuple):
    """Messages since this process began to count."""

    published: int = 0
    delivered: int = 0
    settled: int = 0
    redelivered: int = 0


class Mirror:
    """The figures as of the last pass."""

    def __init__(self, broker: WatchedBroker, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self.rows: dict[int, QueueRow] = {}
        self.names: dict[str, int] = {}
        self.rates: dict[int, Rates] = {}
        self.figures: BrokerFigures | None = None
        self.before: BrokerFigures | None = None
        self.counted = MessageCounts()
        self.samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        #: Pieces that were asked for, for tests of what a page costs.
        self.pieces = 0
        self._taken = 0.0
        self._looked = 0.0
        self._outdated = False
        self._pass: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        #: Not while the broker stands by.
        self.serving = True

    async def run(self) -> None:
        """Keep up to date, for ever."""
        while True:
            try:
                await self.refresh()
                self.serving = True
            except Exception as error:  # the broker is away: whoever asks is told
                self._taken = 0.0
                self.serving = not (isinstance(error, ApiProblem) and error.problem.code == "standby")
            quick = self._clock() - self._looked < IDLE
            await asyncio.sleep(QUICK if quick else SLOW)

    async def known(self) -> None:
        """Until there are figures at all."""
        if self.figures is None:
            await self.refresh()

    @property
    def identity(self) -> bytes:
        """Of the journal: IDs of messages begin with it."""
        assert self.figures is not None
        return self.figures.identity

    async def fresh(self) -> None:
        """Figures that are not older than a second. Raises ApiProblem while the broker is away."""
        self._looked = self._clock()
        while self._outdated or self._clock() - self._taken > FRESH:
            await self.refresh()

    def outdate(self) -> None:
        """Something was changed through us: whoever made it so wants to see it."""
        self._outdated = True

    async def refresh(self) -> None:
        """A pass, or the one that is under way."""
        if self._pass is None or self._pass.done():
            self._pass = asyncio.create_task(self._take())
        await asyncio.shield(self._pass)

    async def _take(self) -> None:
        self._outdated = False
        figures = await self._broker.ask(requests.Figures(), BrokerFigures)
        rows: dict[int, QueueRow] = {}
        after = 0
        while True:
            part = await self._broker.ask(requests.Queues(after=after), QueueRows)
            self.pieces += 1
            rows.update((row.number, row) for row in part.rows)
            if not part.more or not part.rows:
                break
            after = part.rows[-1].number
        now = self._clock()
        if self.rows or self.figures is not None:
            self.counted = MessageCounts(*map(sum, zip(self.counted, *self._growth(rows), strict=True)))
        self._note_rates(rows, now - self._taken if self._taken else 0.0)
        self.rows, self._taken = rows, now
        self.names = {f"{row.namespace}/{row.name}": row.number for row in rows.values()}
        self.before, self.figures = self.figures, figures
        self._note_sample(figures)
        self.changed.set()
        self.changed = asyncio.Event()

    def note(self, row: QueueRow) -> None:
        """One queue as it is now: somebody has just changed it."""
        self.rows[row.number] = row
        self.names[f"{row.namespace}/{row.name}"] = row.number

    def forget(self, full_name: str) -> None:
        """A queue is no more."""
        number = self.names.pop(full_name, None)
        if number is not None:
            self.rows.pop(number, None)

    async def chosen(self, wanted: Callable[[QueueRow], bool]) -> list[QueueRow]:
        """Those queues. Others have their turns in between: patterns may be many, and so may queues."""
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
        return total_of(self.rows.values())

    def total_rates(self, rows: Iterable[QueueRow]) -> Rates:
        """Sums over those queues."""
        chosen = [self.rates.get(row.number, _STILL) for row in rows]
        return Rates(
            published=round(sum(each.published for each in chosen), 3),
            delivered=round(sum(each.delivered for each in chosen), 3),
            settled=round(sum(each.settled for each in chosen), 3),
            redelivered=round(sum(each.redelivered for each in chosen), 3),
        )

    def _growth(self, rows: dict[int, QueueRow]) -> list[tuple[int, int, int, int]]:
        """How much each queue has grown since the last pass; all of it, for one that is new."""
        return [_grown(self.rows.get(number), row, new=True) for number, row in rows.items()]

    def _note_rates(self, rows: dict[int, QueueRow], seconds: float) -> None:
        if seconds <= 0:
            return
        found: dict[int, Rates] = {}
        for number, row in rows.items():
            earlier = self.rows.get(number)
            grown = _grown(earlier, row)
            if any(grown) or number in self.rates:
                rates = _blended(self.rates.get(number, _STILL), grown, seconds)
                if rates != _STILL:
                    found[number] = rates
        self.rates = found

    def _note_sample(self, figures: BrokerFigures) -> None:
        totals, rates = self.totals(), self.total_rates(self.rows.values())
        self.samples.append(
            Sample(
                at=moment(figures.now),
                published_per_second=rates.published,
                delivered_per_second=rates.delivered,
                settled_per_second=rates.settled,
                ready=totals.ready,
                out=totals.out,
                delayed=totals.delayed,
                dead=totals.dead,
            )
        )


_STILL = Rates()


def settled(row: QueueRow) -> int:
    """Messages that have left a queue for good."""
    _, acknowledged, popped, dropped, purged, *_ = row.counters
    return acknowledged + popped + dropped + purged


def dead_by_reason(rows: Iterable[QueueRow]) -> dict[str, int]:
    """Dead letters of queues."""
    reasons: Counter[str] = Counter()
    for row in rows:
        if row.reasons:
            reasons.update(row.reasons)
    return dict(reasons)


def total_of(rows: Iterable[QueueRow]) -> QueueTotals:
    """Sums over queues."""
    sums = [0] * len(QueueTotals._fields)
    oldest = 0
    for row in rows:
        values = (
            1, row.ready, row.out, row.delayed, row.dead, row.damaged, row.bytes, row.consumers, 0,
            row.counters[0], settled(row), row.counters[7], row.counters[8],
        )  # fmt: skip
        sums = [total + value for total, value in zip(sums, values, strict=True)]
        if row.oldest and (not oldest or row.oldest < oldest):
            oldest = row.oldest
    return QueueTotals(*sums)._replace(oldest=oldest)


def _grown(earlier: QueueRow | None, row: QueueRow, *, new: bool = False) -> tuple[int, int, int, int]:
    """Published, delivered, settled, redelivered since then; for a queue that was not there, nothing unless ``new``."""
    if earlier is None:
        return (row.counters[0], row.counters[7], settled(row), row.counters[8]) if new else (0, 0, 0, 0)
    pairs = (
        (row.counters[0], earlier.counters[0]),
        (row.counters[7], earlier.counters[7]),
        (settled(row), settled(earlier)),
        (row.counters[8], earlier.counters[8]),
    )
    published, delivered, gone, again = (max(0, now - then) for now, then in pairs)
    return published, delivered, gone, again


def _blended(rates: Rates, grown: tuple[int, int, int, int], seconds: float) -> Rates:
    def mixed(rate: float, count: int) -> float:
        value = WEIGHT * count / seconds + (1 - WEIGHT) * rate
        return round(value, 3) if value >= 0.005 else 0.0

    return Rates(
        published=mixed(rates.published, grown[0]),
        delivered=mixed(rates.delivered, grown[1]),
        settled=mixed(rates.settled, grown[2]),
        redelivered=mixed(rates.redelivered, grown[3]),
    )
