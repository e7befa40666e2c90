"""The tables of ``insight`` against the same numbers worked out the plain way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE, PERCENTILES
from support.history import Plain, nearest_rank

#: Written by an earlier version: see tests/lakes/README.md.
OLD = Path(__file__).parents[1] / "lakes" / "insight-parts"

#: Rows by table and by what tells them apart. ``start`` is when their step began.
Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
KEYS = ("namespace", "queue", "start", "reason", "protocol", "host")


def check(rows: Rows, plain: Plain, table: str = "queues", unit: int = MINUTE) -> None:
    """The tables against what was worked out the plain way."""
    queues = rows[table]
    if table == "queues":
        assert {(*key[:2], key[2] // unit) for key in queues} == plain.ends.keys()
    else:  # finer steps are told only where something happened
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
