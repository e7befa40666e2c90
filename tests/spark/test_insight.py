"""``insight`` against the same numbers worked out event by event, however the events are cut into batches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.pipelines import insight
from penstock.spark.pipelines.minutes import COUNTS, MINUTE, PERCENTILES, Memory, bucket, duration, percentile
from support.history import Plain, nearest_rank, random_events


def run(spark: Any, events: pa.Table, cuts: list[int], delay: int) -> dict[str, dict[tuple[Any, ...], dict[str, Any]]]:
    """The three tables after batches of these sizes: later rows take the place of earlier ones."""
    tables: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {"queues": {}, "dead_letters": {}, "talkers": {}}
    memory, state = Memory(), insight.empty_state(spark)
    at = 0
    for size in cuts:
        part = events.slice(at, size)
        at += size
        if not part.num_rows:
            continue
        frame = spark.createDataFrame(part)
        newest = part.column("at").cast(pa.int64()).to_pylist()
        until = max(memory.watermark, *newest)
        outcome = insight.transform(frame, state, memory.watermark or min(newest), until)
        ledger = insight.add(memory, outcome, until)
        for name, rows in (
            ("queues", ledger.queue_rows()),
            ("dead_letters", ledger.reason_rows()),
            ("talkers", ledger.talker_rows()),
        ):
            for row in rows:
                keys = ("namespace", "queue", "minute", "reason", "protocol", "host")
                tables[name][tuple(row[key] for key in keys if key in row)] = row
        memory = ledger.memory(delay)
        state = spark.createDataFrame(outcome.state.toArrow())
    assert at >= events.num_rows
    return tables


@pytest.mark.parametrize(("seed", "parts"), [(1, 1), (2, 3)])
def test_tables_are_what_the_events_say(spark: Any, tmp_path: Path, seed: int, parts: int) -> None:
    events = random_events(tmp_path / "journal", seed, 600)
    size = events.num_rows // parts + 1
    tables = run(spark, events, [size] * parts, 2 * MINUTE)
    plain = Plain(events)
    queues = tables["queues"]
    assert {(*key[:2], key[2] // MINUTE) for key in queues} == plain.ends.keys()
    for key, sums, (depth, dead_depth, oldest) in plain.rows():
        row = queues[(*key[:2], key[2] * MINUTE)]
        assert {name: row[name] for name in COUNTS} == {name: sums[name] for name in COUNTS}, key
        assert (row["depth"], row["dead_depth"], row["oldest_seconds"]) == (depth, dead_depth, oldest), key
        for percent in PERCENTILES:
            for name, exact in (("in_queue", plain.in_queue[key]), ("to_acknowledge", plain.to_acknowledge[key])):
                wanted = nearest_rank(exact, percent)
                assert row[f"{name}_p{percent}"] == (wanted if not wanted else pytest.approx(wanted, rel=0.0101))
    reasons = {(*key[:2], key[2] // MINUTE, key[3]): row["messages"] for key, row in tables["dead_letters"].items()}
    assert reasons == plain.reasons
    talkers = {
        (*key[:2], key[2] // MINUTE, *key[3:]): [row["published"], row["bytes_in"], row["taken"]]
        for key, row in tables["talkers"].items()
    }
    assert talkers == plain.talkers


#: How a plan shows a frame: where it begins and ends, in rows from the current one.
FRAME = re.compile(r"specifiedwindowframe\(\w+, ([^,]+), ([^)]+?)(?:\(\))?\)")


def test_no_frame_of_rows_is_computed_anew_for_every_row(spark: Any, tmp_path: Path) -> None:
    """A frame costs in all what its rows are if it begins at the first row, or is as wide for every row."""
    frame = spark.createDataFrame(random_events(tmp_path / "journal", 1, 50))
    outcome = insight.transform(frame, insight.empty_state(spark), 0, 1)
    plans = "".join(each._jdf.queryExecution().toString() for each in outcome)
    frames = {(start.strip(), end.strip()) for start, end in FRAME.findall(plans)}
    assert ("unboundedpreceding$()", "-1") in frames  # the pattern finds some
    assert [each for each in frames if "unboundedfollowing" in each[1] and "unboundedpreceding" not in each[0]] == []


def test_all_windows_over_messages_share_one_shuffle(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(random_events(tmp_path / "journal", 1, 50))
    outcome = insight.transform(frame, insight.empty_state(spark), 0, 1)
    plan = outcome.lives._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange hashpartitioning") == 1


def test_percentiles_are_off_by_one_percent_at_most() -> None:
    for value in (0, 1, 2, 3, 10, 999, 1_000_000, 86_400_000_000):
        found = duration(bucket(value))
        assert found == pytest.approx(value / 1e6, rel=0.0101, abs=1.1e-6)
    assert percentile({}, 50) is None
    assert percentile({0: 1, bucket(1_000_000): 99}, 50) == pytest.approx(1, rel=0.0101)
