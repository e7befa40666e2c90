"""Medians, spreads and ratios of what a sitting has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benches.peers.sitting import Findings
from benches.peers.workloads import Row


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
    """How good a contestant is against the best of the row's base: above 1 it is better, whatever the figure."""
    ours = figure(findings, row, contestant)
    theirs = [found.middle for key in row.base if key in row.flags and (found := figure(findings, row, key))]
    if ours is None or not theirs:
        return None
    return ours.middle / max(theirs) if row.figure == "rate" else min(theirs) / ours.middle


def measure(findings: Findings, name: str, contestant: str) -> Figure | None:
    """Of what waits: a measure of :mod:`benches.peers.waiting`."""
    values = findings.values.get((name, contestant))
    return Figure.of(values) if values else None


def measure_ratio(findings: Findings, name: str, contestant: str) -> float | None:
    """A part of what Redis Streams take: below 1 is less."""
    ours, theirs = measure(findings, name, contestant), measure(findings, name, "redis-stream")
    return ours.middle / theirs.middle if ours and theirs and theirs.middle else None
