"""The report of ``insight``: one HTML file with plots, which needs no network.

It shows the rows of the tables and nothing else. ``report.html`` is its template; names come from clients, so all that
is put in is escaped. Charts are drawn by the browser, with the library that the console has too (``penstock.web``).
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from penstock import web
from penstock.spark.pipelines.insight.charts import MOST_POINTS, Chart, ChartLine, amount, seconds
from penstock.spark.pipelines.insight.minutes import MINUTE

#: Queues with plots of their own: those with the most traffic. The table has all.
PLOTTED = 12
#: Lines of the tables of dead letters and talkers.
LISTED = 20
#: Tables with more columns than this do not fit a phone: there, each row is a card.
MOST_HEADS = 5

_HERE = Path(__file__).parent
_DRAW_ALL = """
for (const place of document.querySelectorAll("[data-chart]")) draw(place, JSON.parse(place.dataset.chart));
"""


class ReportTables(NamedTuple):
    """The rows of the three tables, of the time that the report is about."""

    queues: Sequence[dict[str, Any]]
    dead_letters: Sequence[dict[str, Any]]
    talkers: Sequence[dict[str, Any]]


class Script(NamedTuple):
    """A script of the page."""

    type: str
    text: Markup

    @property
    def digest(self) -> str:
        """By which the page's policy knows it."""
        return f"'sha256-{base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()}'"


class Tile(NamedTuple):
    """One large number. ``warns``: it is bad if it is not 0."""

    name: str
    value: int
    warns: bool = False


class QueueTable(NamedTuple):
    """The table of all queues."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]


class Plots(NamedTuple):
    """The charts of one queue."""

    name: str
    charts: Sequence[Chart]


def render(tables: ReportTables, made: int, title: str = "Penstock insight") -> str:
    """The whole page. ``made`` is the time of making it, in microseconds."""
    scripts = _scripts() if tables.queues else ()
    sources = " ".join(script.digest for script in scripts) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {sources}"
    page: dict[str, Any] = {"title": title, "made": _moment(made), "policy": policy, "scripts": scripts}
    if tables.queues:
        page |= _body(tables)
    return _environment().get_template("report.html").render(**page, style=_style(), most_heads=MOST_HEADS)


@cache
def _environment() -> Environment:
    found = Environment(loader=FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, keep_trailing_newline=True)
    found.filters["shown"] = lambda value: f"{value:,}" if isinstance(value, int) else value
    return found


@cache
def _style() -> Markup:
    return Markup((files(web) / "vendor" / "uplot.css").read_text() + (_HERE / "report.css").read_text())


@cache
def _scripts() -> tuple[Script, ...]:
    """uPlot, and what draws with it. They are ours, so they are not escaped."""
    library = (files(web) / "vendor" / "uplot.js").read_text()
    charts = (files(web) / "charts.js").read_text() + _DRAW_ALL
    return Script("text/javascript", Markup(library)), Script("module", Markup(charts))


def _body(tables: ReportTables) -> dict[str, Any]:
    by_queue: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(tables.queues, key=lambda row: int(row["minute"])):
        by_queue[f"{row['namespace']}/{row['queue']}"].append(row)
    first = min(row["minute"] for row in tables.queues)
    last = max(row["minute"] for row in tables.queues)
    ranked = sorted(by_queue, key=lambda name: (-_sum(by_queue[name], "published", "acknowledged", "popped"), name))
    return {
        "span": _moment(first) + ("" if first == last else f" to {_moment(last)}"),
        "tiles": _tiles(tables.queues, by_queue.values()),
        "queues": _overview(ranked, by_queue),
        "dead": _dead(tables.dead_letters),
        "talkers": _talkers(tables.talkers),
        "plotted": [Plots(name, _charts(by_queue[name], first, last)) for name in ranked[:PLOTTED]],
        "others": len(ranked[PLOTTED:]),
    }


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M")


def _sum(rows: Iterable[dict[str, Any]], *names: str) -> int:
    return sum(int(row[name]) for row in rows for name in names)


def _tiles(rows: Sequence[dict[str, Any]], queues: Iterable[list[dict[str, Any]]]) -> list[Tile]:
    ends = [each[-1] for each in queues]
    return [
        Tile("published", _sum(rows, "published")),
        Tile("taken", _sum(rows, "acknowledged", "popped")),
        Tile("waiting now", _sum(ends, "depth")),
        Tile("redelivered", _sum(rows, "redelivered")),
        Tile("expired", _sum(rows, "expired"), True),
        Tile("dead letters now", _sum(ends, "dead_depth"), True),
    ]


def _overview(ranked: Sequence[str], by_queue: dict[str, list[dict[str, Any]]]) -> QueueTable:
    rows = []
    for name in ranked:
        found = by_queue[name]
        end = found[-1]
        oldest = end["oldest_seconds"]
        rows.append(
            [
                name, _sum(found, "published"), _sum(found, "acknowledged", "popped"), end["depth"],
                "–" if oldest is None else seconds(oldest), _worst(found, "in_queue_p95"),
                _worst(found, "to_acknowledge_p95"), _sum(found, "redelivered"), _sum(found, "expired"),
                end["dead_depth"],
            ]
        )  # fmt: skip
    heads = ["queue", "published", "taken", "waiting", "oldest", "in queue, p95", "to acknowledge, p95"]
    return QueueTable([*heads, "redelivered", "expired", "dead"], rows)


def _worst(rows: Sequence[dict[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if row[name] is not None]
    return seconds(max(values)) if values else "–"


def _charts(rows: Sequence[dict[str, Any]], first: int, last: int) -> list[Chart]:
    step = max(1, -(-((last - first) // MINUTE + 1) // MOST_POINTS))
    times = list(range(first, last + 1, step * MINUTE))
    slots: list[list[dict[str, Any]]] = [[] for _ in times]
    for row in rows:
        slots[(row["minute"] - first) // (step * MINUTE)].append(row)
    depths = [ChartLine("waiting", _depths(slots), 1)]
    in_queue, to_acknowledge = _percentiles(slots, "in_queue"), _percentiles(slots, "to_acknowledge")
    return [
        Chart("Messages a minute", times, _rates(slots, step), nothing="none came or went in this time"),
        Chart("Waiting", times, depths, area=True, nothing="none at the end of any minute"),
        Chart("Time in the queue", times, in_queue, "duration", nothing="none was taken"),
        Chart("Time to acknowledge", times, to_acknowledge, "duration", nothing="none was acknowledged"),
    ]


def _rates(slots: Sequence[list[dict[str, Any]]], step: int) -> list[ChartLine]:
    came = [_sum(slot, "published") / step for slot in slots]
    went = [_sum(slot, "acknowledged", "popped") / step for slot in slots]
    return [ChartLine("in", came, 1), ChartLine("out", went, 2)]


def _depths(slots: Sequence[list[dict[str, Any]]]) -> list[float]:
    """The depth stays as it was where nothing happened."""
    found, depth = [], 0.0
    for slot in slots:
        depth = float(slot[-1]["depth"]) if slot else depth
        found.append(depth)
    return found


def _percentiles(slots: Sequence[list[dict[str, Any]]], name: str) -> list[ChartLine]:
    lines = []
    for colour, percent in ((2, 99), (3, 95), (1, 50)):
        column = f"{name}_p{percent}"
        values = [[row[column] for row in slot if row[column] is not None] for slot in slots]
        lines.append(ChartLine(f"p{percent}", [max(each) if each else None for each in values], colour))
    return lines


def _dead(rows: Sequence[dict[str, Any]]) -> list[list[object]]:
    sums: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        sums[f"{row['namespace']}/{row['queue']}", row["reason"]] += row["messages"]
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:LISTED]
    return [[*key, count] for key, count in ranked]


def _talkers(rows: Sequence[dict[str, Any]]) -> list[list[object]]:
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        found = sums[row["host"], row["protocol"] or ""]
        for at, name in enumerate(("published", "bytes_in", "taken")):
            found[at] += row[name]
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0] - item[1][2], item[0]))[:LISTED]
    return [[*key, count, amount(size) + "B", taken] for key, (count, size, taken) in ranked]
