"""The report of ``insight``: one HTML file with plots, which needs no network.

It shows only rows of the tables, and beside each figure the query for its rows. With many queues, each has its own page
within the file, and the first page is an index. ``report.html`` is the template. Names come from clients, so all values
are escaped. The browser draws the charts, as in the console (``penstock.web``).
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from penstock import web
from penstock.spark.pipelines.insight.charts import MOST_POINTS, Chart, ChartLine, amount, seconds
from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE, SECOND, QueueKey
from penstock.spark.pipelines.insight.queries import FigureQueries
from penstock.spark.pipelines.insight.tables import BY_STEP, with_numbers

#: Up to this many queues have their plots on the first page. With more, each has a page.
PLOTTED = 12
#: At most this many queues have plots, and this many a line in the table: those with the most traffic.
PAGES = 200
ROWS = 1000
#: Lines of the tables of dead letters and talkers.
LISTED = 20
#: Tables with more columns than this do not fit a phone: there, each row is a card.
MOST_HEADS = 5

_HERE = Path(__file__).parent
#: Plots of pages that are not shown have no width yet.
_DRAW_SHOWN = """
function drawShown() {
  for (const place of document.querySelectorAll("[data-chart]")) {
    if (place.offsetParent === null) continue;
    const chart = JSON.parse(place.dataset.chart);
    delete place.dataset.chart;
    draw(place, chart);
  }
}
addEventListener("hashchange", drawShown);
drawShown();
"""

_STEPS = {SECOND: "second", 10 * SECOND: "10 seconds", MINUTE: "minute"}


class ReportTables(NamedTuple):
    """The rows of the report's period: by minute, and for queues also in steps of ``unit`` microseconds.

    Each is an iterable of tables in the order of time, only one of which is in memory at once, since there may be very
    many queues. Each is iterated twice.
    """

    queues: Iterable[pa.Table]
    dead_letters: Iterable[pa.Table]
    talkers: Iterable[pa.Table]
    steps: Iterable[pa.Table]
    unit: int = MINUTE


class Script(NamedTuple):
    """A script of the page."""

    type: str
    text: Markup

    @property
    def digest(self) -> str:
        """Its source in the page's Content-Security-Policy."""
        return f"'sha256-{base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()}'"


class Tile(NamedTuple):
    """One large number, and the query for its rows. ``warns``: highlighted unless it is 0."""

    name: str
    value: int
    rows: str
    warns: bool = False


class Link(NamedTuple):
    """A name that links to its plots."""

    text: str
    href: str


class RowTable(NamedTuple):
    """A table, and the query for its rows. The first ``names`` columns are names."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    behind: str
    names: int = 1


class Plots(NamedTuple):
    """The charts of one queue, each with the query for its rows."""

    name: str
    charts: Sequence[tuple[Chart, str]]

    @property
    def anchor(self) -> str:
        """Its anchor in the page."""
        return _anchor(self.name)


def _anchor(name: str) -> str:
    return f"queue/{name}"


def render(tables: ReportTables, made: int, folder: Path, title: str = "Penstock insight") -> str:
    """The page. ``made`` is the time of the report, in microseconds; ``folder`` contains the tables."""
    span = _span(tables.queues)
    scripts = _scripts() if span is not None else ()
    sources = " ".join(script.digest for script in scripts) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {sources}"
    page: dict[str, Any] = {"title": title, "made": _moment(made), "policy": policy, "scripts": scripts}
    if span is not None:
        page |= _body(tables, span, folder)
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
    """uPlot, and the code that draws with it. Both are part of this package, so they are not escaped."""
    library = (files(web) / "vendor" / "uplot.js").read_text()
    charts = (files(web) / "charts" / "lines.js").read_text() + _DRAW_SHOWN
    return Script("text/javascript", Markup(library)), Script("module", Markup(charts))


def _body(tables: ReportTables, span: tuple[int, int], folder: Path) -> dict[str, Any]:
    first, last = span
    behind = FigureQueries(folder, first, last)
    queues = _by_queue(tables.queues)
    plotted = {QueueKey(each["namespace"], each["queue"]) for each in queues[:PAGES]}
    return {
        "span": _moment(first) + ("" if first == last else f" to {_moment(last)}"),
        "step": _STEPS[tables.unit],
        "tiles": _tiles(queues, behind),
        "queues": _overview(queues, plotted, behind),
        "dead": _dead(tables.dead_letters, behind),
        "talkers": _talkers(tables.talkers, behind),
        "plotted": _plotted(tables, queues[:PAGES], folder),
        "paged": len(queues) > PLOTTED,
        "others": len(queues[PAGES:]),
        "missing": len(queues[ROWS:]),
    }


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M")


def _span(parts: Iterable[pa.Table]) -> tuple[int, int] | None:
    """The start of the first and of the last step; None: there is none."""
    ends = [pc.min_max(rows.column(2).cast(pa.int64())).as_py() for rows in parts if rows.num_rows]
    return (min(each["min"] for each in ends), max(each["max"] for each in ends)) if ends else None


def _summed(parts: Iterable[pa.Table], by: Sequence[str], columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """Aggregate columns, grouped by others: each by ``sum``, ``max`` or ``last``."""
    keep = pc.ScalarAggregateOptions(skip_nulls=False)
    ways = [(name, way, keep if way == "last" else None) for name, way in columns.items()]
    names = [*by, *columns]

    def grouped(rows: pa.Table) -> pa.Table:
        found = rows.group_by(list(by), use_threads=False).aggregate(ways)
        return found.select([*by, *(f"{name}_{way}" for name, way in columns.items())]).rename_columns(names)

    sums = [grouped(rows.sort_by(rows.column_names[2])) for rows in parts]
    found: list[dict[str, Any]] = grouped(pa.concat_tables(sums)).to_pylist() if sums else []
    return found


def _by_queue(parts: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """A row for each queue: sums, the longest times, and the last state. Those with the most traffic come first."""
    ways = dict.fromkeys(COUNTS, "sum") | dict.fromkeys(("in_queue_p95", "to_acknowledge_p95"), "max")
    queues = _summed(
        parts, ["namespace", "queue"], ways | dict.fromkeys(("depth", "dead_depth", "oldest_seconds"), "last")
    )
    for each in queues:
        each["name"] = f"{each['namespace']}/{each['queue']}"
        each["taken"] = each["acknowledged"] + each["popped"]
    return sorted(queues, key=lambda each: (-each["published"] - each["taken"], each["name"]))


def _tiles(queues: Sequence[dict[str, Any]], behind: FigureQueries) -> list[Tile]:
    def summed(name: str) -> int:
        return sum(int(each[name]) for each in queues)

    return [
        Tile("published", summed("published"), behind.rows("queues", ["published"])),
        Tile("taken", summed("taken"), behind.rows("queues", ["acknowledged", "popped"])),
        Tile("waiting now", summed("depth"), behind.ends("depth")),
        Tile("redelivered", summed("redelivered"), behind.rows("queues", ["redelivered"])),
        Tile("expired", summed("expired"), behind.rows("queues", ["expired"]), True),
        Tile("dead letters now", summed("dead_depth"), behind.ends("dead_depth"), True),
    ]


def _overview(queues: Sequence[dict[str, Any]], plotted: set[QueueKey], behind: FigureQueries) -> RowTable:
    rows: list[list[object]] = []
    for each in queues[:ROWS]:
        name = each["name"]
        has_plots = QueueKey(each["namespace"], each["queue"]) in plotted
        rows.append(
            [
                Link(name, f"#{quote(_anchor(name))}") if has_plots else name,
                each["published"], each["taken"], each["depth"], _lasted(each["oldest_seconds"]),
                _lasted(each["in_queue_p95"]), _lasted(each["to_acknowledge_p95"]), each["redelivered"],
                each["expired"], each["dead_depth"],
            ]
        )  # fmt: skip
    heads = ["queue", "published", "taken", "waiting", "oldest", "in queue, p95", "to acknowledge, p95"]
    counts = ["published", "acknowledged", "popped", "redelivered", "expired", "dead"]
    return RowTable(
        [*heads, "redelivered", "expired", "dead"], rows, behind.sums("queues", counts, ["namespace", "queue"])
    )


def _lasted(value: float | None) -> str:
    return "–" if value is None else seconds(value)


# ------------------------------------------------------------------------------------------------------------- plots


def _plotted(tables: ReportTables, queues: Sequence[dict[str, Any]], folder: Path) -> list[Plots]:
    """The plots of these queues, in their order."""
    wanted = pa.array([f"{each['namespace']}\0{each['queue']}" for each in queues])
    by_queue: defaultdict[QueueKey, list[dict[str, Any]]] = defaultdict(list)
    for rows in tables.steps:
        names = pc.binary_join_element_wise(rows.column("namespace"), rows.column("queue"), "\0")
        for row in with_numbers(rows.filter(pc.is_in(names, wanted))):
            row["start"] = row.pop("minute" if tables.unit == MINUTE else "second")
            by_queue[QueueKey(row["namespace"], row["queue"])].append(row)
    span = _span(tables.steps)
    if span is None:
        return []
    plots = _Plotting(tables.unit, *span, folder)
    keys = [QueueKey(each["namespace"], each["queue"]) for each in queues]
    return [Plots("/".join(key), plots.charts(key, by_queue[key])) for key in keys]


class _Plotting:
    """Makes the charts of queues, all over the same steps."""

    def __init__(self, unit: int, first: int, last: int, folder: Path) -> None:
        self._unit = unit
        self._first = first
        self._step = unit * max(1, -(-((last - first) // unit + 1) // MOST_POINTS))
        self._times = list(range(first, last + 1, self._step))
        self._behind = FigureQueries(folder, first, last)

    def charts(self, queue: QueueKey, rows: Sequence[dict[str, Any]]) -> list[tuple[Chart, str]]:
        """The charts of a queue, each with the query for its rows."""
        slots: list[list[dict[str, Any]]] = [[] for _ in self._times]
        for row in sorted(rows, key=lambda row: int(row["start"])):
            slots[(row["start"] - self._first) // self._step].append(row)
        often = "second" if self._unit < MINUTE else "minute"
        waits, acknowledges = _percentiles(slots, "in_queue"), _percentiles(slots, "to_acknowledge")
        depths = [ChartLine("waiting", _depths(slots), 1)]
        found = [
            (
                f"Messages a {often}",
                self._rates(slots),
                "none came or went in this time",
                ["published", "acknowledged", "popped"],
            ),
            ("Waiting", depths, f"none at the end of any {_STEPS[self._unit]}", ["depth"]),
            ("Time in the queue", waits, "none was taken", _columns("in_queue")),
            ("Time to acknowledge", acknowledges, "none was acknowledged", _columns("to_acknowledge")),
        ]
        shortest = 10 * self._unit // SECOND
        return [
            (
                Chart(
                    title,
                    self._times,
                    lines,
                    "duration" if title.startswith("Time") else "amount",
                    lines is depths,
                    nothing,
                    shortest,
                ),
                self._behind.rows(BY_STEP[self._unit], columns, queue),
            )
            for title, lines, nothing, columns in found
        ]

    def _rates(self, slots: Sequence[list[dict[str, Any]]]) -> list[ChartLine]:
        each = self._step / (SECOND if self._unit < MINUTE else MINUTE)
        came = [_sum(slot, "published") / each for slot in slots]
        went = [_sum(slot, "acknowledged", "popped") / each for slot in slots]
        return [ChartLine("in", came, 1), ChartLine("out", went, 2)]


def _sum(rows: Sequence[dict[str, Any]], *names: str) -> int:
    return sum(int(row[name]) for row in rows for name in names)


def _depths(slots: Sequence[list[dict[str, Any]]]) -> list[float]:
    """The depth after each slot. It does not change in a slot without rows."""
    found, depth = [], 0.0
    for slot in slots:
        depth = float(slot[-1]["depth"]) if slot else depth
        found.append(depth)
    return found


def _columns(name: str) -> list[str]:
    return [f"{name}_p{percent}" for percent in (50, 95, 99)]


def _percentiles(slots: Sequence[list[dict[str, Any]]], name: str) -> list[ChartLine]:
    lines = []
    for colour, percent in ((2, 99), (3, 95), (1, 50)):
        column = f"{name}_p{percent}"
        values = [[row[column] for row in slot if row[column] is not None] for slot in slots]
        lines.append(ChartLine(f"p{percent}", [max(each) if each else None for each in values], colour))
    return lines


# ------------------------------------------------------------------------------------------- dead letters and talkers


def _dead(parts: Iterable[pa.Table], behind: FigureQueries) -> RowTable:
    by = ["namespace", "queue", "reason"]
    sums = _summed(parts, by, {"messages": "sum"})
    found = [[f"{each['namespace']}/{each['queue']}", each["reason"], each["messages"]] for each in sums]
    ranked = sorted(found, key=lambda row: (-row[2], row[:2]))[:LISTED]
    return RowTable(["queue", "reason", "messages"], ranked, behind.sums("dead_letters", ["messages"], by), 2)


def _talkers(parts: Iterable[pa.Table], behind: FigureQueries) -> RowTable:
    by, counted = ["host", "protocol"], ["published", "bytes_in", "taken"]
    sums = _summed(parts, by, dict.fromkeys(counted, "sum"))
    found = [
        [each["host"], each["protocol"] or "", each["published"], amount(each["bytes_in"]) + "B", each["taken"]]
        for each in sorted(sums, key=lambda each: (-each["published"] - each["taken"], each["host"]))[:LISTED]
    ]
    heads = ["host", "protocol", "published", "bytes", "taken"]
    return RowTable(heads, found, behind.sums("talkers", counted, by), 2)
