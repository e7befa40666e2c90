"""The report: what is there can be seen, and what is not there is not made up."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from typing import Any

from penstock.spark.pipelines.insight.charts import Chart, ChartLine
from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE, PERCENTILES
from penstock.spark.pipelines.insight.report import MOST_HEADS, ReportTables, render

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
    return Chart("title", times, [ChartLine(f"line {at}", values, at + 1) for at, values in enumerate(lines)])


def drawn(page: str) -> list[dict[str, Any]]:
    """What the page's script finds to draw."""
    return [json.loads(html.unescape(found)) for found in re.findall(r"data-chart='([^']*)'", page)]


def test_gaps_stay_gaps_and_times_are_seconds() -> None:
    data = chart([5.0, None, 6.123456]).data
    assert data["times"] == [(NOON + at) * 60 for at in range(3)]
    assert data["series"][0]["values"] == [5.0, None, 6.123]


def test_a_chart_in_which_there_is_nothing_has_no_axes() -> None:
    nothings: list[list[float | None]] = [[None, None], [0.0, 0.0]]
    assert all(chart(nothing).empty for nothing in nothings)
    assert not chart([0.0, 1.0]).empty
    page = render(ReportTables([row(NOON, published=1)], [], []), MADE)
    assert len(drawn(page)) == 1
    assert page.count('class="nothing"') == 3
    assert "none was taken" in page


def test_equal_lines_are_of_different_widths_the_wider_below() -> None:
    widths = [each["width"] for each in chart([1.0], [1.0], [1.0]).data["series"]]
    assert sorted(set(widths), reverse=True) == widths


def test_charts_are_told_in_words_for_those_without_eyes_or_scripts() -> None:
    found = chart([1.0, 2500.0, None], [0.5, 0.5, 0.5])
    assert found.words == "title. line 0: last 2.5k, most 2.5k; line 1: last 0.5, most 0.5"
    assert "last 500 ms" in found._replace(kind="duration").words
    page = render(ReportTables([row(NOON, published=1)], [], []), MADE)
    assert re.search(r'aria-label="(Messages a minute. in: [^"]+)"[^>]*>\1</div>', page)


def test_names_are_escaped_wherever_they_stand() -> None:
    name = "</script><b title='\"&amp;"
    reasons = [{"namespace": name, "queue": name, "minute": NOON, "reason": name, "messages": 2}]
    page = render(ReportTables([row(NOON, published=3, queue=name)], reasons, [_talker() | {"host": name}]), MADE, name)
    without = page[: page.index("<script")]
    assert "</script>" not in without
    assert "<b title" not in page
    assert page.count("&lt;/script&gt;&lt;b title=&#39;&#34;&amp;amp;") >= 6


def test_only_the_scripts_of_the_page_may_run_and_nothing_is_fetched() -> None:
    page = render(ReportTables([row(NOON, published=1)], [], []), MADE)
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0])
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    wanted = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src {wanted}"
    assert len(scripts) == 2
    assert not re.findall(r"(?:src|href)=", page)
    assert "<script" not in render(ReportTables([], [], []), MADE)


def test_the_page_says_when_it_was_made_and_has_reasons_before_plots() -> None:
    reasons = [{"namespace": "default", "queue": "jobs", "minute": NOON, "reason": "expired", "messages": 2}]
    page = render(ReportTables([row(NOON, published=3, dead=2, dead_depth=2)], reasons, []), MADE)
    assert "Made 2026-01-06 12:05 UTC" in page
    assert page.index("Dead letters by reason") < page.index("Messages a minute")
    assert "Made" in render(ReportTables([], [], []), MADE)


def test_tables_that_do_not_fit_a_phone_are_cards_there() -> None:
    page = render(ReportTables([row(NOON, published=3)], [], [_talker()]), MADE)
    tables = re.findall(r'<div class="([^"]+)" tabindex="0"><table>(.*?)</table>', page, re.DOTALL)
    assert len(tables) == 2
    for kind, table in tables:
        heads = re.findall(r"<th[^>]*>([^<]+)</th>", table)
        assert re.findall(r'data-head="([^"]+)"', table) == heads
        assert (kind == "wide cards") == (len(heads) > MOST_HEADS)


def _talker() -> dict[str, Any]:
    return {"host": "10.0.0.1", "protocol": "phpmq", "published": 1, "bytes_in": 2, "taken": 3}
