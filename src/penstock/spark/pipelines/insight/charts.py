"""A chart of the report: the values that ``web/charts/lines.js`` draws, and a description in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

#: With more points than this, neighbours would fall on one pixel.
MOST_POINTS = 300
#: Line widths, from the first line to the last, which is drawn on top: equal lines stay visible.
WIDTHS = (5.0, 3.0, 1.4)


class ChartLine(NamedTuple):
    """One line of a chart. None is a gap. ``colour`` is a number of the page's style."""

    label: str
    values: Sequence[float | None]
    colour: int


class Chart(NamedTuple):
    """Lines over the same steps (microseconds). Their values are of kind ``amount`` or ``duration``."""

    title: str
    times: Sequence[int]
    lines: Sequence[ChartLine]
    kind: str = "amount"
    #: Whether the space below its lines is filled.
    area: bool = False
    #: The text in place of an empty chart.
    nothing: str = "nothing in this time"
    #: The shortest period that it spans, in seconds.
    shortest: int = 600

    @property
    def empty(self) -> bool:
        """Whether no line has a value other than 0."""
        return not any(value for line in self.lines for value in line.values)

    @property
    def words(self) -> str:
        """A description for people who can't see the chart, or run no scripts."""
        show = amount if self.kind == "amount" else seconds
        found = []
        for line in self.lines:
            values = [value for value in line.values if value is not None]
            if values:
                found.append(f"{line.label}: last {show(values[-1])}, most {show(max(values))}")
        return f"{self.title}. {'; '.join(found)}"

    @property
    def data(self) -> dict[str, Any]:
        """The argument of ``draw`` in ``web/charts/lines.js``. Times are in seconds."""
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
    """Values with four digits, which is more than a plot shows."""
    return [None if value is None else float(f"{value:.4g}") for value in values]


def amount(value: float) -> str:
    """A number with three digits and a unit."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def seconds(value: float) -> str:
    """A duration with three digits and a unit."""
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
