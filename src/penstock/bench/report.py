"""Results of a run as a row of a table, a plot, or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import to_builtins

from penstock.bench.run import Result

COLUMNS = ["", "size", "connections", "messages/s", "MB/s", "p50 ms", "p90", "p99", "p99.9", "max"]
PERCENTILES = (50, 90, 99, 99.9, 100)
HEIGHT, WIDTH = 6, 60
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def percentiles(latencies: Any) -> list[float] | None:
    """Milliseconds at the percentiles of the table; None if nothing was measured."""
    if not len(latencies):
        return None
    return [round(float(each) / 1e6, 3) for each in np.percentile(latencies, PERCENTILES)]


def row(result: Result) -> list[str]:
    """The row of the table. One at a time, the latency is that of the confirmation, else it is end to end."""
    plan = result.plan
    found = percentiles(result.confirms if plan.one_at_a_time else result.latencies)
    latencies = [f"{each:.2f}" for each in found] if found else ["-"] * len(PERCENTILES)
    name = f"{result.protocol}{', one at a time' if plan.one_at_a_time else ''}"
    volume = f"{result.rate * plan.size / 1e6:.1f}"
    return [name, f"{plan.size} B", f"{plan.producers}+{plan.consumers}", f"{result.rate:,.0f}", volume, *latencies]


def as_json(result: Result) -> dict[str, Any]:
    """Everything, for programs."""
    names = [f"p{each:g}" for each in PERCENTILES[:-1]] + ["max"]
    report: dict[str, Any] = {
        "plan": to_builtins(result.plan),
        "protocol": result.protocol,
        "sent": result.sent,
        "received": result.received,
        "seconds": result.seconds,
        "messages_per_second": round(result.rate, 1),
        "bytes_per_second": round(result.rate * result.plan.size, 1),
    }
    for key, latencies in (("end_to_end_ms", result.latencies), ("confirmed_ms", result.confirms)):
        found = percentiles(latencies)
        if found:
            report[key] = dict(zip(names, found, strict=True))
    return report


def plot(result: Result) -> Iterator[str]:
    """Lines that plot messages a second over time; none for a run that was too short."""
    times, counts = (np.array(column, dtype=float) for column in zip(*result.series, strict=True))
    if len(times) < 3:
        return
    edges = np.linspace(0, times[-2], min(WIDTH, len(times)) + 1)
    rates = np.diff(np.interp(edges, times, counts)) / np.diff(edges)
    top = max(float(rates.max()), 1.0)
    yield f"{result.protocol}, {result.plan.size} B: messages/s over {times[-2]:.1f} s"
    for line in range(HEIGHT, 0, -1):
        eighths = np.clip(np.round((rates / top * HEIGHT - (line - 1)) * 8), 0, 8).astype(int)
        label = f"{top:>10,.0f}" if line == HEIGHT else f"{0:>10}" if line == 1 else " " * 10
        yield f"{label} │{''.join(_EIGHTHS[each] for each in eighths)}"
