"""Line charts as SVG, for a page that needs nothing from anywhere. Colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 460, 170
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 24
#: More points than this are drawn closer than one can see.
MOST_POINTS = 240
_TICKS = 4


class Line(NamedTuple):
    """One line of a chart. A gap is None. ``style`` is the number of its colour."""

    name: str
    values: Sequence[float | None]
    style: int


class Chart(NamedTuple):
    """Lines over the same minutes. ``show`` writes a value for people; an ``area`` is filled below its first line."""

    title: str
    times: Sequence[int]
    lines: Sequence[Line]
    show: Callable[[float], str]
    area: bool = False
    #: What to say in place of a chart in which there is nothing to see.
    nothing: str = "nothing in this time"


def figure(chart: Chart) -> str:
    """The chart with its title and legend; without axes if there is nothing to see."""
    title = f"<h3>{escape(chart.title)}</h3>"
    if not any(value for line in chart.lines for value in line.values):
        return f'<figure>{title}<p class="nothing">{escape(chart.nothing)}</p></figure>'
    return f"<figure>{title}{legend(chart)}{svg(chart)}</figure>"


def svg(chart: Chart) -> str:
    """The chart, with a text for those who can't see it."""
    most = max((value for line in chart.lines for value in line.values if value is not None), default=0)
    top = _nice_time(most) if chart.show is seconds else _nice_amount(most)
    first, last = chart.times[0], chart.times[-1]

    def x(time: int) -> float:
        share = (time - first) / (last - first) if last > first else 0.5
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top, 1)

    parts = [_axes(chart, top, x, y)]
    if chart.area:
        parts += [f'<path class="area s{chart.lines[0].style}" d="{path}"/>' for path in _areas(chart, x, y)]
    for at, line in reversed(list(enumerate(chart.lines))):
        # Lines below are wider, so that one that is equal to another shows on both sides of it.
        parts.append(f'<path class="line s{line.style} w{at}" d="{_path(chart.times, line.values, x, y)}"/>')
        for time, value in _alone(chart.times, line.values):
            parts.append(f'<circle class="dot s{line.style}" cx="{x(time)}" cy="{y(value)}" r="{3 + 1.5 * at}"/>')
    parts.append(_tips(chart, x))
    words = escape(_words(chart))
    start = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}">'
    return f"{start}{''.join(parts)}</svg>"


def legend(chart: Chart) -> str:
    """The names of the lines beside their colours; nothing for a single one."""
    if len(chart.lines) < 2:
        return ""
    keys = "".join(
        f'<span><i class="s{line.style} w{at}"></i>{escape(line.name)}</span>' for at, line in enumerate(chart.lines)
    )
    return f'<div class="legend" aria-hidden="true">{keys}</div>'


def _words(chart: Chart) -> str:
    found = []
    for line in chart.lines:
        values = [value for value in line.values if value is not None]
        if values:
            found.append(f"{line.name}: last {chart.show(values[-1])}, most {chart.show(max(values))}")
    return f"{chart.title}. {'; '.join(found) or 'nothing to show'}"


def _nice(most: float) -> float:
    """The end of the axis: 1, 2 or 5 times a power of ten, not below the largest value."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= most * 0.9999)


def _nice_amount(most: float) -> float:
    """The same for amounts, which are most often whole: half of it is whole, too."""
    if most <= 2:
        return 2.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 2, 4, 6, 10) if step * power >= most * 0.9999 and step * power % 2 == 0)


def _nice_time(most: float) -> float:
    """The same for durations: from a minute on, round ones are others."""
    if most <= 60:
        return _nice(most) if most <= 50 else 60.0
    rounds = [minutes * 60.0 for minutes in (2, 4, 10, 20, 30, 60, 120, 240, 480, 720, 1440)]
    return next((each for each in rounds if each >= most), _nice(most / 86400) * 86400)


def _axes(chart: Chart, top: float, x: Callable[[int], float], y: Callable[[float], float]) -> str:
    parts = []
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        at = y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        if tick % 2 == 0:
            parts.append(f'<text x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{escape(chart.show(value))}</text>')
    for time, anchor in _labelled(chart.times):
        parts.append(f'<text x="{x(time)}" y="{HEIGHT - 6}" text-anchor="{anchor}">{clock(time)}</text>')
    return "".join(parts)


def _labelled(times: Sequence[int]) -> list[tuple[int, str]]:
    """The times below the axis: both ends, and the middle if it is not one of them."""
    if len(times) == 1:
        return [(times[0], "middle")]
    middle = [(times[len(times) // 2], "middle")] if len(times) > 2 else []
    return [(times[0], "start"), *middle, (times[-1], "end")]


def _alone(times: Sequence[int], values: Sequence[float | None]) -> list[tuple[int, float]]:
    """Points without a neighbour, which no line shows."""
    around = [None, *values, None]
    found = zip(times, values, around, around[2:], strict=False)
    return [(time, value) for time, value, *both in found if value is not None and both == [None, None]]


def _path(
    times: Sequence[int], values: Sequence[float | None], x: Callable[[int], float], y: Callable[[float], float]
) -> str:
    """Straight lines, interrupted where there is no value."""
    parts, pen = [], "M"
    for time, value in zip(times, values, strict=True):
        if value is None:
            pen = "M"
        else:
            parts.append(f"{pen}{x(time)} {y(value)}")
            pen = "L"
    return "".join(parts)


def _areas(chart: Chart, x: Callable[[int], float], y: Callable[[float], float]) -> list[str]:
    points = [(x(time), y(value or 0)) for time, value in zip(chart.times, chart.lines[0].values, strict=True)]
    body = "".join(f"L{left} {high}" for left, high in points)
    return [f"M{points[0][0]} {y(0)}{body}L{points[-1][0]} {y(0)}Z"]


def _tips(chart: Chart, x: Callable[[int], float]) -> str:
    """What a mouse shows over each minute."""
    step = (WIDTH - LEFT - RIGHT) / max(1, len(chart.times) - 1)
    parts = []
    for at, time in enumerate(chart.times):
        told = [(line.name, line.values[at]) for line in chart.lines]
        text = ", ".join(f"{name} {chart.show(value)}" for name, value in told if value is not None)
        left = round(x(time) - step / 2, 1)
        parts.append(
            f'<rect class="tip" x="{left}" y="{TOP}" width="{step:.1f}" height="{HEIGHT - TOP - BOTTOM}">'
            f"<title>{clock(time)}  {escape(text)}</title></rect>"
        )
    return "".join(parts)


def clock(microseconds: int) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%H:%M")


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
