"""The report of ``insight``: one HTML file with plots, which needs no network and no script.

It shows the rows of the tables and nothing else. Names come from clients, so everything is escaped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, NamedTuple

from penstock.spark.pipelines.insight.charts import MOST_POINTS, Chart, Line, amount, clock, figure, seconds
from penstock.spark.pipelines.insight.minutes import MINUTE

#: Queues with plots of their own: those with the most traffic. The table has all.
PLOTTED = 12
#: Lines of the tables of dead letters and talkers.
LISTED = 20
#: Tables with more columns than this do not fit a phone: there, each row is a card.
MOST_HEADS = 5

_STYLE = """
:root{color-scheme:light dark;--page:#fbfbf9;--card:#fff;--ink:#1c2024;--soft:#5a646e;--rule:#e2e4e0;
--s1:#0b6fb8;--s2:#c2570c;--s3:#6b4fa8;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--page:#14171a;--card:#1c2024;--ink:#e9ecef;--soft:#a2adb7;--rule:#343b42;
--s1:#5cb3f0;--s2:#f29c52;--s3:#b9a2ee;--bad:#ff8a80}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1500px;margin:0 auto;padding:20px clamp(12px,3vw,32px) 48px}
h1{font-size:22px;margin:0}h2{font-size:17px;margin:32px 0 8px}h3{font-size:13px;margin:0 0 4px;font-weight:600}
p{margin:4px 0;color:var(--soft)}.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:16px 0}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 16px;min-width:130px}
.tile b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.tile.bad b{color:var(--bad)}
.plots{display:grid;grid-template-columns:repeat(2,1fr);gap:10px}
@media(max-width:760px){.plots{grid-template-columns:1fr}}@media(min-width:1400px){.plots{grid-template-columns:repeat(4,1fr)}}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 12px}
svg{display:block;width:100%;height:auto}svg text{font-size:11px;fill:var(--soft)}
.grid{stroke:var(--rule)}.line{fill:none;stroke-linejoin:round;stroke-linecap:round}
.line.w0{stroke-width:2}.line.w1{stroke-width:4.5;opacity:.75}.line.w2{stroke-width:7.5;opacity:.6}
.nothing{padding:24px 0;text-align:center}
.dot.s1{fill:var(--s1)}.dot.s2{fill:var(--s2)}.dot.s3{fill:var(--s3)}
.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}.area{fill:var(--s1);stroke:none;opacity:.15}
.tip{fill:transparent}.tip:hover{fill:var(--ink);opacity:.08}
.legend{display:flex;gap:14px;font-size:12px;color:var(--soft)}.legend i{display:inline-block;width:14px;height:2px;
border-radius:2px;vertical-align:middle;margin-right:5px}i.w1{height:4px;opacity:.75}i.w2{height:7px;opacity:.6}i.s1{background:var(--s1)}i.s2{background:var(--s2)}
i.s3{background:var(--s3)}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:8px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:6px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
th{font-size:12px;color:var(--soft);font-weight:600;white-space:normal;vertical-align:bottom}
tr:last-child td{border-bottom:0}
.name{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:6.5em}
@media(max-width:760px){.cards thead{display:none}.cards table,.cards tbody,.cards td{display:block}
.cards tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(96px,1fr));padding:8px 4px}
.cards tr+tr{border-top:1px solid var(--rule)}.cards td{border:0;text-align:left;white-space:normal;padding:3px 8px}
.cards td::before{content:attr(data-head);display:block;font-size:11px;color:var(--soft)}
.cards td.name{grid-column:1/-1;font-weight:600}.cards td.name::before{display:none}.name{min-width:0}}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:16px}
"""


class Tables(NamedTuple):
    """The rows of the three tables, of the time that the report is about."""

    queues: Sequence[dict[str, Any]]
    dead_letters: Sequence[dict[str, Any]]
    talkers: Sequence[dict[str, Any]]


def render(tables: Tables, made: int, title: str = "Penstock insight") -> str:
    """The whole page. ``made`` is the time of making it, in microseconds."""
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>"
    )
    body = _body(tables) if tables.queues else "<p>Nothing has happened yet.</p>"
    return f"{head}<p>Made {_day(made)} {clock(made)} UTC</p>{body}</main></body></html>\n"


def _body(tables: Tables) -> str:
    by_queue: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(tables.queues, key=lambda row: int(row["minute"])):
        by_queue[f"{row['namespace']}/{row['queue']}"].append(row)
    first = min(row["minute"] for row in tables.queues)
    last = max(row["minute"] for row in tables.queues)
    ranked = sorted(by_queue, key=lambda name: (-_sum(by_queue[name], "published", "acknowledged", "popped"), name))
    span = f"{_day(first)} {clock(first)}" + ("" if first == last else f" to {_day(last)} {clock(last)}")
    parts = [f"<p>{span} UTC, by minute</p>"]
    parts += [_tiles(tables.queues, by_queue.values()), _overview(ranked, by_queue)]
    parts.append(f'<div class="two">{_dead(tables.dead_letters)}{_talkers(tables.talkers)}</div>')
    parts += [_queue_plots(name, by_queue[name], first, last) for name in ranked[:PLOTTED]]
    if len(ranked) > PLOTTED:
        parts.append(f"<p>The other {len(ranked) - PLOTTED} queues have less traffic; the table above has them.</p>")
    return "".join(parts)


def _day(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d")


def _sum(rows: Iterable[dict[str, Any]], *names: str) -> int:
    return sum(int(row[name]) for row in rows for name in names)


def _tiles(rows: Sequence[dict[str, Any]], queues: Iterable[list[dict[str, Any]]]) -> str:
    ends = [each[-1] for each in queues]
    tiles = [
        ("published", _sum(rows, "published"), False),
        ("taken", _sum(rows, "acknowledged", "popped"), False),
        ("waiting now", _sum(ends, "depth"), False),
        ("redelivered", _sum(rows, "redelivered"), False),
        ("expired", _sum(rows, "expired"), True),
        ("dead letters now", _sum(ends, "dead_depth"), True),
    ]
    found = [
        f'<div class="tile{" bad" if warn and value else ""}"><b>{value:,}</b><span>{name}</span></div>'
        for name, value, warn in tiles
    ]
    return f'<div class="tiles">{"".join(found)}</div>'


def _overview(ranked: Sequence[str], by_queue: dict[str, list[dict[str, Any]]]) -> str:
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
    return f"<h2>Queues</h2>{_table([*heads, 'redelivered', 'expired', 'dead'], rows)}"


def _worst(rows: Sequence[dict[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if row[name] is not None]
    return seconds(max(values)) if values else "–"


def _queue_plots(name: str, rows: Sequence[dict[str, Any]], first: int, last: int) -> str:
    step = max(1, -(-((last - first) // MINUTE + 1) // MOST_POINTS))
    times = list(range(first, last + 1, step * MINUTE))
    slots: list[list[dict[str, Any]]] = [[] for _ in times]
    for row in rows:
        slots[(row["minute"] - first) // (step * MINUTE)].append(row)
    charts = [
        Chart("Messages a minute", times, _rates(slots, step), amount, nothing="none came or went in this time"),
        Chart("Waiting", times, [Line("waiting", _depths(slots), 1)], amount, True, "none at the end of any minute"),
        Chart("Time in the queue", times, _percentiles(slots, "in_queue"), seconds, nothing="none was taken"),
        Chart(
            "Time to acknowledge",
            times,
            _percentiles(slots, "to_acknowledge"),
            seconds,
            nothing="none was acknowledged",
        ),
    ]
    return f'<h2>{escape(name)}</h2><div class="plots">{"".join(map(figure, charts))}</div>'


def _rates(slots: Sequence[list[dict[str, Any]]], step: int) -> list[Line]:
    came = [_sum(slot, "published") / step for slot in slots]
    went = [_sum(slot, "acknowledged", "popped") / step for slot in slots]
    return [Line("in", came, 1), Line("out", went, 2)]


def _depths(slots: Sequence[list[dict[str, Any]]]) -> list[float]:
    """The depth stays as it was where nothing happened."""
    found, depth = [], 0.0
    for slot in slots:
        depth = float(slot[-1]["depth"]) if slot else depth
        found.append(depth)
    return found


def _percentiles(slots: Sequence[list[dict[str, Any]]], name: str) -> list[Line]:
    lines = []
    for style, percent in ((1, 50), (3, 95), (2, 99)):
        column = f"{name}_p{percent}"
        values = [[row[column] for row in slot if row[column] is not None] for slot in slots]
        lines.append(Line(f"p{percent}", [max(each) if each else None for each in values], style))
    return lines


def _dead(rows: Sequence[dict[str, Any]]) -> str:
    sums: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        sums[f"{row['namespace']}/{row['queue']}", row["reason"]] += row["messages"]
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:LISTED]
    table = _table(["queue", "reason", "messages"], [[*key, count] for key, count in ranked], names=2)
    return f"<section><h2>Dead letters by reason</h2>{table if ranked else '<p>None.</p>'}</section>"


def _talkers(rows: Sequence[dict[str, Any]]) -> str:
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        found = sums[row["host"], row["protocol"] or ""]
        for at, name in enumerate(("published", "bytes_in", "taken")):
            found[at] += row[name]
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0] - item[1][2], item[0]))[:LISTED]
    rows_shown = [[*key, count, amount(size) + "B", taken] for key, (count, size, taken) in ranked]
    table = _table(["host", "protocol", "published", "bytes", "taken"], rows_shown, names=2)
    return f"<section><h2>Top talkers</h2>{table if ranked else '<p>None.</p>'}</section>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], names: int = 1) -> str:
    def cells(tag: str, values: Sequence[object]) -> str:
        texts = [escape(f"{value:,}" if isinstance(value, int) else str(value)) for value in values]
        marks = [" class=name" if at < names else "" for at in range(len(texts))]
        if tag == "td":  # in a card each value has its head
            marks = [f'{mark} data-head="{escape(head)}"' for mark, head in zip(marks, heads, strict=True)]
        return "".join(f"<{tag}{mark}>{text}</{tag}>" for mark, text in zip(marks, texts, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>"
    kind = "wide cards" if len(heads) > MOST_HEADS else "wide"
    return f'<div class="{kind}" tabindex="0"><table>{head}<tbody>{body}</tbody></table></div>'
