"""The report shows all data, and makes up none where data is missing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.pipelines.insight import report
from penstock.spark.pipelines.insight.charts import Chart, ChartLine
from penstock.spark.pipelines.insight.minutes import MINUTE, SECOND
from penstock.spark.pipelines.insight.report import MOST_HEADS
from penstock.spark.pipelines.insight.tables import TABLES, Recent, file_name, with_numbers
from support.insight import NOON, many, render, row, tables


def chart(*lines: list[float | None]) -> Chart:
    times = [(NOON + at) * MINUTE for at in range(len(lines[0]))]
    return Chart("title", times, [ChartLine(f"line {at}", values, at + 1) for at, values in enumerate(lines)])


def drawn(page: str) -> list[dict[str, Any]]:
    """The data that the page's script draws."""
    return [json.loads(html.unescape(found)) for found in re.findall(r"data-chart='([^']*)'", page)]


def test_gaps_stay_gaps_and_times_are_seconds() -> None:
    data = chart([5.0, None, 6.123456]).data
    assert data["times"] == [(NOON + at) * 60 for at in range(3)]
    assert data["series"][0]["values"] == [5.0, None, 6.123]


def test_an_empty_chart_has_no_axes() -> None:
    nothings: list[list[float | None]] = [[None, None], [0.0, 0.0]]
    assert all(chart(nothing).empty for nothing in nothings)
    assert not chart([0.0, 1.0]).empty
    page = render(tables([row(NOON, published=1)]))
    assert len(drawn(page)) == 1
    assert page.count('class="nothing"') == 3
    assert "none was taken" in page


def test_equal_lines_are_drawn_with_the_wider_one_below() -> None:
    widths = [each["width"] for each in chart([1.0], [1.0], [1.0]).data["series"]]
    assert sorted(set(widths), reverse=True) == widths


def test_charts_are_described_in_words() -> None:
    found = chart([1.0, 2500.0, None], [0.5, 0.5, 0.5])
    assert found.words == "title. line 0: last 2.5k, most 2.5k; line 1: last 0.5, most 0.5"
    assert "last 500 ms" in found._replace(kind="duration").words
    page = render(tables([row(NOON, published=1)]))
    assert re.search(r'aria-label="(Messages a minute. in: [^"]+)"[^>]*>\1</div>', page)


def test_names_are_escaped_everywhere() -> None:
    name = "</script><b title='\"&amp;"
    reasons = [{"namespace": name, "queue": name, "minute": NOON * MINUTE, "reason": name, "messages": 2}]
    page = render(tables([row(NOON, published=3, queue=name)], reasons, [_talker() | {"host": name}]), title=name)
    without = page[: page.index("<script")]
    assert "</script>" not in without
    assert "<b title" not in page
    assert page.count("&lt;/script&gt;&lt;b title=&#39;&#34;&amp;amp;") >= 6


def test_only_the_pages_scripts_run_and_nothing_is_fetched() -> None:
    page = render(tables([row(NOON, published=1)]))
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0])
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    wanted = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src {wanted}"
    assert len(scripts) == 2
    assert not re.findall(r"""(?:src=|href=(?!"#))""", page)
    assert "<script" not in render(tables([]))


def test_the_page_has_its_time_and_reasons_before_plots() -> None:
    reasons = [{"namespace": "default", "queue": "jobs", "minute": NOON * MINUTE, "reason": "expired", "messages": 2}]
    page = render(tables([row(NOON, published=3, dead=2, dead_depth=2)], reasons))
    assert "Made 2026-01-06 12:05 UTC" in page
    assert page.index("Dead letters by reason") < page.index("Messages a minute")
    assert "Made" in render(tables([]))


def test_wide_tables_are_cards_on_a_phone() -> None:
    page = render(tables([row(NOON, published=3)], talkers=[_talker()]))
    found = re.findall(r'<div class="([^"]+)" tabindex="0"><table>(.*?)</table>', page, re.DOTALL)
    assert len(found) == 2
    for kind, table in found:
        heads = re.findall(r"<th[^>]*>([^<]+)</th>", table)
        assert re.findall(r'data-head="([^"]+)"', table) == heads
        assert (kind == "wide cards") == (len(heads) > MOST_HEADS)


def _talker() -> dict[str, Any]:
    names = {"namespace": "default", "queue": "jobs", "minute": NOON * MINUTE}
    return {**names, "host": "10.0.0.1", "protocol": "phpmq", "published": 1, "bytes_in": 2, "taken": 3}


# -------------------------------------------------------------------------------------------- steps, pages and rows


def seconds_of(count: int) -> list[dict[str, Any]]:
    """Rows of a queue's first seconds."""
    found = [row(0, published=at + 1, acknowledged=at, depth=at + 1, in_queue_p50=0.5) for at in range(count)]
    return [{**each, "second": NOON * MINUTE + at * SECOND} for at, each in enumerate(found)]


def test_the_first_minute_is_drawn_by_second() -> None:
    page = render(tables([row(NOON, published=3)], steps=seconds_of(20), unit=SECOND))
    assert "by second" in page
    assert "Messages a second" in page
    rates, waiting, *_ = drawn(page)
    assert rates["times"] == [NOON * 60 + at for at in range(20)]
    assert rates["series"][0]["values"] == [float(at + 1) for at in range(20)]
    assert waiting["series"][0]["values"][-1] == 20.0
    tens = [{**each, "second": NOON * MINUTE + at * 10 * SECOND} for at, each in enumerate(seconds_of(20))]
    page = render(tables([row(NOON, published=3)], steps=tens, unit=10 * SECOND))
    assert "by 10 seconds" in page
    assert drawn(page)[0]["series"][0]["values"][:2] == [0.1, 0.2]  # a second


def test_many_queues_have_pages_and_of_very_many_only_the_busiest(monkeypatch: pytest.MonkeyPatch) -> None:
    few = render(many(report.PLOTTED))
    assert few.count("<section id=") == report.PLOTTED
    assert "class=page" not in few
    monkeypatch.setattr(report, "PAGES", 14)
    monkeypatch.setattr(report, "ROWS", 15)
    page = render(many(20))
    assert page.count('<section id="queue/default/q &lt;') == page.count(" class=page>") == 14
    assert page.count('<a href="#queue/default/q%20%3C') == 14
    assert "the 6 with the least traffic have none; 5 more queues are in the tables alone" in page


def queries(page: str) -> list[str]:
    found = re.findall(r"<details class=\"rows\">.*?<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    return [html.unescape(each) for each in found]


def test_each_figure_shows_the_query_for_its_rows(tmp_path: Path) -> None:
    """DuckDB runs each query on the files and gets the rows of the figure."""
    folder, name = tmp_path / "it's a lake", "o'clock"
    reasons = [{"namespace": "default", "queue": name, "minute": NOON * MINUTE, "reason": "expired", "messages": 2}]
    queues = [row(NOON + at, published=at, acknowledged=1, depth=4 + at, queue=name) for at in range(3)]
    found = tables(queues, reasons, [_talker()], seconds_of(5), SECOND)
    for table, parts in zip(("queues", "dead_letters", "talkers", "by_second"), found[:4], strict=True):
        file = folder / table / "date=2026-01-06" / "hour=12" / file_name(table)
        file.parent.mkdir(parents=True)
        pq.write_table(pa.concat_tables(parts), file)
    page = render(found, folder=folder)
    answers = [duckdb.execute(query).fetchall() for query in queries(page)]
    published, taken, waiting, redelivered, expired, dead, by_queue, why, who = answers[:9]
    assert sum(each[-1] for each in published) == 3
    assert sum(each[-1] + each[-2] for each in taken) == 3
    assert [each[-1] for each in waiting] == [6]
    assert (redelivered, expired, dead) == ([], [], [("default", name, waiting[0][2], 0)])
    assert by_queue == [("default", name, 3, 3, 0, 0, 0, 0)]
    assert why == [("default", name, "expired", 2)]
    assert who == [("10.0.0.1", "phpmq", 1, 2, 3)]
    charts = render(tables([row(NOON, published=3)], steps=seconds_of(5), unit=SECOND), folder=folder)
    rates = duckdb.execute(queries(charts)[7]).fetchall()
    assert [each[1:] for each in rates] == [(at + 1, at, 0) for at in range(5)]


def test_the_report_covers_the_last_hours_and_reads_them_one_by_one(tmp_path: Path) -> None:
    for hour in range(4):
        file = tmp_path / "queues" / "date=2026-01-06" / f"hour=1{hour}" / file_name("queues")
        file.parent.mkdir(parents=True)
        rows = [row(NOON + 60 * hour + minute) for minute in (10, 50)]
        pq.write_table(pa.Table.from_pylist(rows, schema=TABLES["queues"]), file)
    recent = Recent(tmp_path, "queues", 1.5)
    for _ in range(2):  # reading twice gives the same rows
        found = [[(each["minute"] // MINUTE - NOON) for each in with_numbers(hour)] for hour in recent]
        assert found == [[], [170], [190, 230]]
    assert list(Recent(tmp_path, "talkers", 1)) == []
