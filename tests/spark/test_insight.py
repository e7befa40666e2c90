"""``insight`` against the same numbers worked out event by event, however the events are cut into batches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.pipelines.insight import main as insight_main
from penstock.spark.pipelines.insight import parts
from penstock.spark.pipelines.insight import sums as insight
from penstock.spark.pipelines.insight.minutes import (
    COUNTS,
    MINUTE,
    PERCENTILES,
    InsightState,
    bucket,
    duration,
    percentile,
)
from penstock.spark.pipelines.lake.batches import Lake
from support.history import Plain, nearest_rank, random_events

Tables = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
KEYS = ("namespace", "queue", "minute", "reason", "protocol", "host")


def in_one(spark: Any, events: pa.Table) -> Tables:
    """The three tables after one batch of all events."""
    times = events.column("at").cast(pa.int64()).to_pylist()
    outcome = insight.transform(spark.createDataFrame(events), insight.empty_state(spark), min(times), max(times))
    ledger = insight.add(InsightState(), outcome, max(times))
    rows = {"queues": ledger.queue_rows(), "dead_letters": ledger.reason_rows(), "talkers": ledger.talker_rows()}
    return {name: {tuple(row[key] for key in KEYS if key in row): row for row in found} for name, found in rows.items()}


def in_batches(spark: Any, events: pa.Table, folder: Path, count: int) -> Tables:
    """The three tables in a lake after so many batches."""
    lake = Lake(folder, "insight")
    lake.prepare()
    pipeline = insight_main.Insight(spark, lake, insight_main.InsightOptions())
    size = events.num_rows // count + 1
    for number in range(count):
        pipeline.batch(spark.createDataFrame(events.slice(number * size, size)), number)
    tables: Tables = {}
    for name in insight_main.TABLES:
        rows = insight_main.recent(pipeline.folder / name, 1e6)
        tables[name] = {tuple(row[key] for key in KEYS if key in row): row for row in rows}
        assert len(tables[name]) == len(rows)
    return tables


def test_tables_are_what_the_events_say(spark: Any, tmp_path: Path) -> None:
    events = random_events(tmp_path / "journal", 1, 600)
    check(in_one(spark, events), Plain(events))


def test_tables_are_the_same_from_batches_that_read_only_what_they_are_about(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of a few messages, of which there are too many at last, so that they are put together as well."""
    monkeypatch.setattr(parts, "GRAIN", 8)
    choices: list[parts.PartChoice] = []

    def choose(*given: Any) -> parts.PartChoice:
        monkeypatch.setattr(parts, "MOST_PARTS", 0 if len(choices) == 2 else 10_000)
        choices.append(real(*given))
        return choices[-1]

    real = parts.choose
    monkeypatch.setattr(parts, "choose", choose)
    events = random_events(tmp_path / "journal", 2, 600)
    check(in_batches(spark, events, tmp_path / "lake", 3), Plain(events))
    assert choices[1].kept
    assert choices[1].replaced
    assert choices[2].ranges


def check(tables: Tables, plain: Plain) -> None:
    """The tables against what was worked out the plain way."""
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
