"""What the report has of a chart: the values that ``web/charts/lines.js`` draws, and the same in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

#: More points than this are drawn closer than one can see.
MOST_POINTS = 300
#: Line widths, from the first line to the last, which is drawn above: lines that are equal show beside each other.
WIDTHS = (5.0, 3.0, 1.4)


class ChartLine(NamedTuple):
    """One line of a chart. A gap is None. ``colour`` is a number, which the page's style knows."""

    label: str
    values: Sequence[float | None]
    colour: int


class Chart(NamedTuple):
    """Lines over the same steps (microseconds). ``kind`` is what they show: ``amount`` or ``duration``."""

    title: str
    times: Sequence[int]
    lines: Sequence[ChartLine]
    kind: str = "amount"
    #: Whether the space below its lines is filled.
    area: bool = False
    #: What to say in place of a chart in which there is nothing to see.
    nothing: str = "nothing in this time"
    #: Seconds across, at least.
    shortest: int = 600

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not any(value for line in self.lines for value in line.values)

    @property
    def words(self) -> str:
        """The chart for those who can't see it, or have no scripts."""
        show = amount if self.kind == "amount" else seconds
        found = []
        for line in self.lines:
            values = [value for value in line.values if value is not None]
            if values:
                found.append(f"{line.label}: last {show(values[-1])}, most {show(max(values))}")
        return f"{self.title}. {'; '.join(found)}"

    @property
    def data(self) -> dict[str, Any]:
        """What ``draw`` of ``web/charts/lines.js`` takes. Times are seconds."""
        widths = WIDTHS[-len(self.lines) :]
        return {
            "kind": self.kind,
            "area": self.area,
            "legend": True,
            "shortest": self.shortest,
            "zone": "UTC",
            "times": [time // 1_000_000 for time in self.times],
            "series": [
                {"label": line.label, "colour": line.colour, "width": width, "values": _rounded(line.values)}
                for line, width in zip(self.lines, widths, strict=True)
            ],
        }


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    """Four digits are more than a line shows."""
    return [None if value is None else float(f"{value:.4g}") for value in values]


def amount(value: float) -> str:
    """A number for people."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def seconds(value: float) -> str:
    """A duration for people."""
    if value <= 0:
        return "0"
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    for limit, unit in ((86400, "d"), (3600, "h"), (120, "min")):
        if value >= limit:
            return f"{value / (60 if unit == 'min' else limit):.3g} {unit}"
    return f"{value:.3g} s"
