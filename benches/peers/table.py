"""The results of a sitting, as text for a terminal and as one JSON value."""

from __future__ import annotations

from typing import Any

import msgspec

from benches.peers.contestants import BY_KEY
from benches.peers.figures import Figure, figure, measure, measure_ratio, ratio
from benches.peers.sitting import Findings
from benches.peers.waiting import BACKLOGS, MEASURES
from benches.peers.workloads import Group, Row


def amount(value: float) -> str:
    """A number with about three digits."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def scaled(found: Figure, row: Row) -> Figure:
    """Rates in thousands, times in microseconds."""
    return found.scaled(1e-3) if row.figure == "rate" else found


def unit(row: Row) -> str:
    """Of what ``scaled`` gives."""
    return "k/s" if row.figure == "rate" else "µs"


def _line(title: str, found: Figure, unit: str, beside: float | None, more: str = "") -> str:
    against = f"{beside:6.2f}" if beside is not None else "     –"
    spread = f"({amount(found.least)}–{amount(found.most)})"
    return f"  {title:28} {amount(found.middle):>8} {unit:4}{spread:18} {against}  {more}".rstrip()


def _row_lines(findings: Findings, row: Row) -> list[str]:
    lines = []
    for key in row.flags:
        found, share = figure(findings, row, key), figure(findings, row, key, "cpu_share")
        if found and share:
            more = f"{share.middle:4.0%}"
            if row.figure == "p50_us" and (late := figure(findings, row, key, "p99_us")):
                more += f"  p99 {amount(late.middle)} µs"
            lines.append(_line(BY_KEY[key].title, scaled(found, row), unit(row), ratio(findings, row, key), more))
    return lines


def _measure_lines(findings: Findings, name: str) -> list[str]:
    lines = []
    for backlog in BACKLOGS:
        if found := measure(findings, name, backlog.contestant):
            beside = measure_ratio(findings, name, backlog.contestant)
            lines.append(_line(backlog.by.title, found, MEASURES[name][1], beside))
    return lines


def text(findings: Findings, groups: tuple[Group, ...]) -> str:
    """Rows with medians, spreads, ratios to the better Redis, and the generator's share of a CPU."""
    lines: list[str] = []
    for group in groups:
        for row in group.rows:
            if found := _row_lines(findings, row):
                lines += [f"{group.title}: {row.title}", *found]
    for name, (title, _) in MEASURES.items():
        if found := _measure_lines(findings, name):
            lines += [f"W4, messages that wait: {title}", *found]
    lines += [f"{title} is not here: {install}" for title, install in findings.missing.items()]
    lines += [f"failed: {each}" for each in findings.failures]
    return "\n".join(lines)


def as_json(findings: Findings) -> dict[str, Any]:
    """Everything: each run of each contestant in each row."""
    rows: dict[str, dict[str, Any]] = {}
    for (row, key), samples in findings.samples.items():
        runs = [{**msgspec.to_builtins(each.outcome), "server_cpu": round(each.server_cpu, 3)} for each in samples]
        rows.setdefault(row, {})[key] = runs
    waiting: dict[str, dict[str, list[float]]] = {}
    for (name, key), values in findings.values.items():
        waiting.setdefault(key, {})[name] = values
    found = {"versions": findings.versions, "missing": findings.missing, "failures": findings.failures}
    return {**found, "rows": rows, "waiting": waiting}
