"""The page ``docs/benchmarks.md`` and its pictures, written from what a sitting has found."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from benches.peers import machine, plots
from benches.peers.contestants import BY_KEY, CONTESTANTS
from benches.peers.figures import Figure, figure, measure, measure_ratio, ratio
from benches.peers.sitting import Findings, Plan
from benches.peers.table import amount, scaled, unit
from benches.peers.usage import INSTALL, REPEAT, USAGE
from benches.peers.waiting import BACKLOGS, MEASURES
from benches.peers.workloads import GROUPS, Group, Row

#: Rows that have a picture.
PICTURED = ("publish-100", "flow-100", "one-50")
#: Penstock's ways, of which the best stands for it in the first table.
OURS = ("phpmq", "kokaq", "kokaq-pop", "sspq", "phpmq-os", "kokaq-os")


def write(findings: Findings, plan: Plan, page: Path) -> None:
    """The page, and its pictures in the folder ``pictures`` beside it."""
    pictures = page.parent / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    names = _pictures(findings, plan, pictures)
    sections = [_head(plan), _summary(findings), *_embedded(names)]
    sections += [_group(findings, group) for group in GROUPS if _any(findings, group)]
    sections += [_waiting(findings, plan), _durability(findings), _generator(findings), USAGE]
    sections += [_machine(findings, plan), REPEAT, INSTALL]
    page.write_text("\n\n".join(each.strip() for each in sections if each.strip()) + "\n")


def _head(plan: Plan) -> str:
    rounds = f"{plan.rounds} rounds" if plan.rounds > 1 else "one round"
    day = datetime.datetime.now(datetime.UTC).date()
    return f"""# Benchmarks

Penstock beside other brokers on one machine, over loopback, from one load generator. `scripts/bench-peers` measured
all of it in one sitting on {day} and wrote this page: contestants take turns, {rounds} of
{plan.seconds:g} s for each figure, each group of rows against servers that were just started, with empty folders.
Figures are medians, with the minimum and maximum in brackets; rates are thousands of messages a second (k/s). Ratios
are to the better Redis, and above 1 is better than Redis. Brokers [promise](#durability) different things when they
confirm: see there before comparing."""


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_cells(head), _cells(["---"] * len(head)), *map(_cells, rows)])


def _shown(found: Figure | None) -> str:
    if found is None:
        return "–"
    middle = amount(found.middle)
    return middle if found.least == found.most else f"{middle} ({amount(found.least)}–{amount(found.most)})"


def _of(findings: Findings, row: Row, key: str) -> Figure | None:
    found = figure(findings, row, key)
    return scaled(found, row) if found else None


def _any(findings: Findings, group: Group) -> bool:
    return any(findings.samples.get((row.key, key)) for row in group.rows for key in row.flags)


def _best(findings: Findings, row: Row) -> str | None:
    """Penstock's best way in this row."""
    ratios = {key: found for key in OURS if (found := ratio(findings, row, key)) is not None}
    return max(ratios, key=lambda key: ratios[key]) if ratios else None


def _summary(findings: Findings) -> str:
    """Against Redis, which is the fastest of those that keep the same promise."""
    rows = [cells for group in GROUPS for row in group.rows if (cells := _beside_redis(findings, group, row))]
    rows += [cells for name in ("grown", "restart") if (cells := _waiting_beside_redis(findings, name))]
    head = ["", "Redis lists", "Redis Streams", "Penstock", "ratio to the better Redis"]
    return f"## Beside Redis\n\n{_table(head, rows)}" if rows else ""


def _beside_redis(findings: Findings, group: Group, row: Row) -> list[str] | None:
    best = _best(findings, row)
    if best is None or row.base == ("echo",):
        return None
    redis = [key for key in row.base if key in row.flags]  # lists, then Streams
    way = BY_KEY[best].title.rpartition(", ")[2]
    return [
        f"{group.short}: {row.title}, {unit(row)}",
        *(_shown(_of(findings, row, key)) for key in redis),
        f"{_shown(_of(findings, row, best))} {way}",
        f"**{ratio(findings, row, best):.2f}**",
    ]


def _waiting_beside_redis(findings: Findings, name: str) -> list[str] | None:
    """PHPMQ stands for Penstock: the journal of a message is the same whatever it came by."""
    found = [measure(findings, name, key) for key in ("redis-list", "redis-stream", "phpmq")]
    ours, theirs = found[2], [each.middle for each in found[:2] if each]
    if ours is None or not theirs:
        return None
    title, of = MEASURES[name]
    return [
        f"W4: {title}, {of}",
        *map(_shown, found[:2]),
        f"{_shown(ours)} PHPMQ",
        f"**{min(theirs) / ours.middle:.2f}**" if ours.middle > 0 else "–",
    ]


def _group(findings: Findings, group: Group) -> str:
    """A table: contestants below each other, the group's rows beside each other, each with its ratio."""
    head = ["", *(cell for row in group.rows for cell in (f"{row.title}, {unit(row)}", "ratio"))]
    rows = []
    for key in group.contestants:
        cells = [cell for row in group.rows for cell in _pair(findings, row, key)]
        if any(cell != "–" for cell in cells):
            rows.append([BY_KEY[key].title, *cells])
    parts = [f"## {group.title}", group.note, _table(head, rows)]
    return "\n\n".join(part for part in parts if part)


def _pair(findings: Findings, row: Row, key: str) -> tuple[str, str]:
    found, beside = _of(findings, row, key), ratio(findings, row, key)
    text = _shown(found)
    if found and row.figure == "p50_us" and (late := figure(findings, row, key, "p99_us")):
        text += f", p99 {amount(late.middle)}"
    return text, f"{beside:.2f}" if beside is not None else "–"


def _waiting(findings: Findings, plan: Plan) -> str:
    if not findings.values:
        return ""
    rows = []
    for backlog in BACKLOGS:
        key = backlog.contestant
        cells = [_shown(measure(findings, name, key)) for name in MEASURES]
        beside = measure_ratio(findings, "each", key)
        if any(cell != "–" for cell in cells):
            title = backlog.by.title + (" (filled for 3 s)" if backlog.slow else "")
            rows.append([title, *cells, f"{beside:.2f}" if beside is not None else "–"])
    head = ["", *(f"{title}, {of}" for title, of in MEASURES.values()), "relative to Redis Streams"]
    return f"""## W4: {plan.waiting:,} waiting messages of 100 B

Anonymous memory of the server's processes (without mapped files), above that before the first message. A restart lasts
from the start of the process to the first message at a consumer, after an orderly stop. Redis is drained in one round
only, as that takes long; brokers with a bracket after their name are filled once, for 3 seconds. Those that sync for
every single message are left out.

{_table(head, rows)}"""


def _durability(findings: Findings) -> str:
    servers = {each.server.key: each.server for each in CONTESTANTS if each.server.title in findings.versions}
    rows = [[each.title, findings.versions[each.title], each.durability] for each in servers.values()]
    return f"## Durability\n\n{_table(['', 'version', 'a confirmed message is'], rows)}"


def _generator(findings: Findings) -> str:
    shares = {
        key: max(sample.outcome.cpu_share for sample in samples) for key, samples in findings.samples.items() if samples
    }
    if not shares:
        return ""
    row, contestant = max(shares, key=lambda key: shares[key])
    middle = sorted(shares.values())[len(shares) // 2]
    return f"""## The generator

One thread in C on raw sockets and epoll (`benches/peers/generator`), compiled when the command is run. It numbers its
messages and records those that arrive: in every run on this page, all confirmed messages were delivered. Its share of
one CPU had a median of {middle:.0%}, and was at most {shares[row, contestant]:.0%} (`{row}`,
{BY_KEY[contestant].title})."""


def _machine(findings: Findings, plan: Plan) -> str:
    rows = [list(each) for each in machine.description(plan.folder)]
    missing = [f"- {title} was not installed: `{install}`" for title, install in findings.missing.items()]
    failed = [f"- failed: {each}" for each in findings.failures]
    return "\n".join([f"## The machine\n\n{_table(['', ''], rows)}", "", *missing, *failed])


def _pictures(findings: Findings, plan: Plan, folder: Path) -> list[tuple[str, str]]:
    drawn = []
    for group in GROUPS:
        for row in group.rows:
            bars = [
                plots.Bar(BY_KEY[key].title, found, key in OURS)
                for key in row.flags
                if (found := _of(findings, row, key))
            ]
            if row.key in PICTURED and bars:
                drawn.append(_drawn(folder, row.key, f"{group.title}: {row.title}", unit(row), bars))
    bars = [
        plots.Bar(each.by.title, found, each.contestant in OURS)
        for each in BACKLOGS
        if (found := measure(findings, "each", each.contestant))
    ]
    if bars:
        drawn.append(_drawn(folder, "waiting", "W4: memory of a waiting message", "bytes", bars))
    return drawn


def _drawn(folder: Path, key: str, title: str, unit: str, bars: Sequence[plots.Bar]) -> tuple[str, str]:
    name = f"benchmarks-{key}.svg"
    (folder / name).write_text(plots.chart(title, unit, bars))
    return name, title


def _embedded(names: Sequence[tuple[str, str]]) -> list[str]:
    return [f"![{title}](pictures/{name})" for name, title in names]
