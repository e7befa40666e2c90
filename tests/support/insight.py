"""Compares the tables of ``insight`` with the reference, and makes rows for its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.pipelines.insight import report
from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE, PERCENTILES
from penstock.spark.pipelines.insight.report import ReportTables
from penstock.spark.pipelines.insight.tables import BY_STEP, TABLES
from support.history import Plain, nearest_rank

#: Rows by table and key. ``start`` is the beginning of their step.
Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
KEYS = ("namespace", "queue", "start", "reason", "protocol", "host")


def check(rows: Rows, plain: Plain, table: str = "queues", unit: int = MINUTE) -> None:
    """Compare the tables with the reference."""
    queues = rows[table]
    if table == "queues":
        assert {(*key[:2], key[2] // unit) for key in queues} == plain.ends.keys()
    else:  # finer steps have rows only where something happened
        assert {(*key[:2], key[2] // unit) for key in queues} <= plain.ends.keys()
    for key, counted, (depth, dead_depth, oldest) in plain.rows():
        if table != "queues" and key not in plain.sums:
            continue
        row = queues[(*key[:2], key[2] * unit)]
        assert {name: row[name] for name in COUNTS} == {name: counted[name] for name in COUNTS}, key
        assert (row["depth"], row["dead_depth"]) == (depth, dead_depth), key
        assert row["oldest_seconds"] == (oldest if table == "queues" else None), key
        for percent in PERCENTILES:
            for name, exact in (("in_queue", plain.in_queue[key]), ("to_acknowledge", plain.to_acknowledge[key])):
                wanted = nearest_rank(exact, percent)
                close = pytest.approx(wanted, rel=0.0101, abs=1.1e-6) if wanted else wanted
                assert row[f"{name}_p{percent}"] == close
    if table == "queues":
        _check_others(rows, plain)


def _check_others(rows: Rows, plain: Plain) -> None:
    reasons = {(*key[:2], key[2] // MINUTE, key[3]): row["messages"] for key, row in rows["dead_letters"].items()}
    assert reasons == plain.reasons
    talkers = {
        (*key[:2], key[2] // MINUTE, *key[3:]): [row["published"], row["bytes_in"], row["taken"]]
        for key, row in rows["talkers"].items()
    }
    assert talkers == plain.talkers


# --------------------------------------------------------------------------------------------------------- the report

NOON = 29_461_680
MADE = (NOON + 5) * MINUTE


def row(minute: int, **more: Any) -> dict[str, Any]:
    """A row of the table ``queues``."""
    names = [f"{name}_p{percent}" for name in ("in_queue", "to_acknowledge") for percent in PERCENTILES]
    values: dict[str, Any] = {"namespace": "default", "queue": "jobs", "minute": minute * MINUTE}
    values |= {**dict.fromkeys(COUNTS, 0), "depth": 0, "dead_depth": 0, "oldest_seconds": None}
    return {**values, **dict.fromkeys(names), **more}


def tables(
    queues: list[dict[str, Any]],
    reasons: list[dict[str, Any]] | None = None,
    talkers: list[dict[str, Any]] | None = None,
    steps: list[dict[str, Any]] | None = None,
    unit: int = MINUTE,
) -> ReportTables:
    """Tables of these rows. Without ``steps``, plots are by minute."""
    names = ("queues", "dead_letters", "talkers", BY_STEP[unit])
    given = (queues, reasons or [], talkers or [], queues if steps is None else steps)
    found = [pa.Table.from_pylist(rows, schema=TABLES[name]) for name, rows in zip(names, given, strict=True)]
    queues, dead, who, plotted = ([each.slice(0, 1), each.slice(1)] for each in found)  # as of two hours
    return ReportTables(queues, dead, who, plotted, unit)


def render(found: ReportTables, made: int = MADE, folder: Path = Path("/lake/insight"), **more: Any) -> str:
    return report.render(found, made, folder, **more)


def many(count: int) -> ReportTables:
    return tables([row(NOON, published=count - at, depth=at, queue=f"q <{at}>") for at in range(count)])
