"""What a sitting has found, as text for a terminal and as one JSON value."""

from __future__ import annotations

from typing import Any

import msgspec

from benches.peers.contestants import BY_KEY
from benches.peers.figures import figure, ratio
from benches.peers.sitting import Findings
from benches.peers.workloads import Group, Row


def amount(value: float) -> str:
    """Three digits, as people say it."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _line(findings: Findings, row: Row, key: str) -> str | None:
    found, share = figure(findings, row, key), figure(findings, row, key, "cpu_share")
    if found is None or share is None:
        return None
    shown, unit = (found.scaled(1e-3), "k/s") if row.figure == "rate" else (found, "µs")
    beside = ratio(findings, row, key)
    against = f"{beside:6.2f}" if beside is not None else "     –"
    spread = f"({amount(shown.least)}–{amount(shown.most)})"
    return f"  {BY_KEY[key].title:26} {amount(shown.middle):>8} {unit:4}{spread:18} {against}  {share.middle:4.0%}"


def text(findings: Findings, groups: tuple[Group, ...]) -> str:
    """Rows with medians, spreads, ratios to the better Redis, and the generator's share of a processor."""
    lines: list[str] = []
    for group in groups:
        for row in group.rows:
            found = [line for key in row.flags if (line := _line(findings, row, key))]
            if found:
                lines += [f"{group.title}: {row.title}", *found]
    lines += [f"{title} is not here: {install}" for title, install in findings.missing.items()]
    return "\n".join(lines)


def as_json(findings: Findings) -> dict[str, Any]:
    """Everything: each run of each contestant in each row."""
    rows: dict[str, dict[str, Any]] = {}
    for (row, key), samples in findings.samples.items():
        runs = [{**msgspec.to_builtins(each.outcome), "server_cpu": round(each.server_cpu, 3)} for each in samples]
        rows.setdefault(row, {})[key] = runs
    return {"versions": findings.versions, "missing": findings.missing, "failures": findings.failures, "rows": rows}
