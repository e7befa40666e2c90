"""The report: what is there can be seen, and what is not there is not made up."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.spark.pipelines.insight.charts import Chart, Line, amount, figure, seconds, svg
from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE, PERCENTILES
from penstock.spark.pipelines.insight.report import MOST_HEADS, Tables, render

NOON = 29_461_680
MADE = (NOON + 5) * MINUTE


def row(minute: int, **more: Any) -> dict[str, Any]:
    """A row of the table ``queues``."""
    names = [f"{name}_p{percent}" for name in ("in_queue", "to_acknowledge") for percent in PERCENTILES]
    found: dict[str, Any] = {"namespace": "default", "queue": "jobs", "minute": minute * MINUTE}
    found |= {**dict.fromkeys(COUNTS, 0), "depth": 0, "dead_depth": 0, "oldest_seconds": None}
    return {**found, **dict.fromkeys(names), **more}


def chart(*lines: list[float | None]) -> Chart:
    times = [(NOON + at) * MINUTE for at in range(len(lines[0]))]
    named = [Line(f"line {at}", values, at + 1) for at, values in enumerate(lines)]
    return Chart("title", times, named, amount)


@pytest.mark.parametrize(
    ("values", "dots"),
    [([5.0], 1), ([None, 5.0, None], 1), ([5.0, None, 6.0], 2), ([5.0, 6.0], 0), ([5.0, 6.0, None, 7.0], 1)],
)
def test_a_point_that_no_line_shows_is_a_dot(values: list[float | None], dots: int) -> None:
    found = re.findall(r'<circle class="dot s1" cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', svg(chart(values)))
    assert len(found) == dots
    assert all(float(radius) >= 3 for *_, radius in found)


def test_a_chart_in_which_there_is_nothing_has_no_axes() -> None:
    nothings: list[list[float | None]] = [[None, None], [0.0, 0.0]]
    for nothing in nothings:
        found = figure(chart(nothing)._replace(nothing="none was taken"))
        assert "none was taken" in found
        assert "<svg" not in found
    assert "<svg" in figure(chart([0.0, 1.0]))


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 10, 30, 450, 2_500_000])
def test_amounts_have_whole_numbers_at_their_axes(most: int) -> None:
    labels = re.findall(r'text-anchor="end">([^<]+)</text>', svg(chart([0.0, float(most)])))[:3]
    assert len(set(labels)) == 3
    assert not any("." in label for label in labels if label[-1].isdigit())


def test_times_below_the_axis_are_told_once() -> None:
    for count, shown in ((1, 1), (2, 2), (3, 3), (50, 3)):
        found = svg(chart([1.0] * count))
        clocks = re.findall(r'y="164" text-anchor="\w+">(\d\d:\d\d)</text>', found)
        assert len(clocks) == len(set(clocks)) == shown


def test_equal_lines_are_of_different_widths_the_wider_below() -> None:
    found = svg(chart([1.0, 2.0], [1.0, 2.0], [1.0, 2.0])._replace(show=seconds))
    assert re.findall(r'class="line s(\d) w(\d)"', found) == [("3", "2"), ("2", "1"), ("1", "0")]
    page = render(Tables([row(NOON, published=1)], [], []), MADE)
    widths = [float(width) for width in re.findall(r"\.line\.w\d{stroke-width:([\d.]+)", page)]
    assert len(widths) == 3
    assert sorted(set(widths)) == widths


def test_the_page_says_when_it_was_made_and_has_reasons_before_plots() -> None:
    reasons = [{"namespace": "default", "queue": "jobs", "minute": NOON, "reason": "expired", "messages": 2}]
    page = render(Tables([row(NOON, published=3, dead=2, dead_depth=2)], reasons, []), MADE)
    assert "Made 2026-01-06 12:05 UTC" in page
    assert page.index("Dead letters by reason") < page.index("Messages a minute")
    assert "Made" in render(Tables([], [], []), MADE)


def test_tables_that_do_not_fit_a_phone_are_cards_there() -> None:
    page = render(Tables([row(NOON, published=3)], [], [_talker()]), MADE)
    tables = re.findall(r'<div class="([^"]+)" tabindex="0"><table>(.*?)</table>', page)
    assert len(tables) == 2
    for kind, table in tables:
        heads = re.findall(r"<th[^>]*>([^<]+)</th>", table)
        assert re.findall(r'data-head="([^"]+)"', table) == heads
        assert (kind == "wide cards") == (len(heads) > MOST_HEADS)


def _talker() -> dict[str, Any]:
    return {"host": "10.0.0.1", "protocol": "phpmq", "published": 1, "bytes_in": 2, "taken": 3}
