"""Side-by-side timing: contestants take turns, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True)
class Row:
    """One comparison: our time for a unit of work against the bare minimum's, in nanoseconds.

    A row without an aim is there to be looked at: it compares with a bound that nothing can reach.
    """

    name: str
    bare: float
    ours: float
    aim: float | None

    @property
    def ratio(self) -> float:
        return self.ours / self.bare

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return "   –"
        return f"{self.aim:4.1f}  {'met' if self.ratio <= self.aim else 'MISSED'}"


def compare(
    name: str,
    units: int,
    bare: Callable[[], object],
    ours: Callable[[], object],
    *,
    aim: float | None,
    rounds: int = 25,
) -> Row:
    """Run both in turns and keep each one's best round. ``units`` is how many messages a call handles."""
    best = {bare: float("inf"), ours: float("inf")}
    for _ in range(rounds):
        for contestant in (bare, ours):
            started = perf_counter()
            contestant()
            best[contestant] = min(best[contestant], perf_counter() - started)
    return Row(name, best[bare] / units * 1e9, best[ours] / units * 1e9, aim)


def report(title: str, rows: Sequence[Row]) -> None:
    """Print the comparisons as a table."""
    width = max(len(row.name) for row in rows)
    out = sys.stdout.write
    out(f"\n{title}\n{'':{width}}   bare ns   ours ns     M/s   ratio   aim\n")
    for row in rows:
        times = f"{row.bare:8.0f}  {row.ours:8.0f}  {1e3 / row.ours:5.2f}"
        out(f"{row.name:{width}}  {times}  {row.ratio:6.2f}  {row.verdict}\n")


@dataclass(frozen=True)
class Figure:
    """One figure that stands for itself. With an aim it is to be at most that."""

    name: str
    value: float
    unit: str
    aim: float | None = None
    digits: int = 0

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return "   –"
        return f"{self.aim:4.0f}  {'met' if self.value <= self.aim else 'MISSED'}"
