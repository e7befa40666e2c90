"""Medians, spreads and ratios of what a sitting has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benches.peers.sitting import Findings
from benches.peers.workloads import Row

#: Ratios are to the better of these.
REDIS = ("redis-list", "redis-stream", "redis-list-everysec", "redis-stream-everysec")


@dataclass(frozen=True)
class Figure:
    """A median, with the least and the most that it is the middle of."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        return cls(median(values), min(values), max(values))

    def scaled(self, factor: float) -> Figure:
        return Figure(self.middle * factor, self.least * factor, self.most * factor)


def figure(findings: Findings, row: Row, contestant: str, name: str | None = None) -> Figure | None:
    """Of one row and contestant, or None if there is none: what the row looks at, or another number of its runs."""
    samples = findings.samples.get((row.key, contestant))
    if not samples:
        return None
    return Figure.of([getattr(each.outcome, name or row.figure) for each in samples])


def ratio(findings: Findings, row: Row, contestant: str) -> float | None:
    """How good a contestant is against the better Redis: above 1 it is better, whatever the figure."""
    ours = figure(findings, row, contestant)
    theirs = [found.middle for key in REDIS if key in row.flags and (found := figure(findings, row, key))]
    if ours is None or not theirs:
        return None
    return ours.middle / max(theirs) if row.figure == "rate" else min(theirs) / ours.middle
