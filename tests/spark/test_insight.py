"""``insight`` in Spark and in a lake: one stage per batch, and each batch exactly once despite kills."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.lake.batches import Lake
from penstock.spark.lake.disk import LakeError
from penstock.spark.lake.store import Store
from penstock.spark.pipelines.insight import main as insight_main
from penstock.spark.pipelines.insight import sums, tables
from penstock.spark.pipelines.insight.messages import MessageStore
from penstock.spark.pipelines.insight.minutes import InsightState
from support.history import Plain, random_events
from support.insight import KEYS, Rows, check


def insight(spark: Any, folder: Path) -> insight_main.Insight:
    lake = Lake(folder, "insight")
    lake.prepare()
    return insight_main.Insight(spark, lake, insight_main.InsightOptions())


def in_thirds(spark: Any, events: pa.Table) -> list[Any]:
    size = events.num_rows // 3
    return [spark.createDataFrame(events.slice(at, size if at < 2 * size else None)) for at in (0, size, 2 * size)]


def rows_of(folder: Path) -> Rows:
    found: Rows = {}
    for name in tables.TABLES:
        rows = [row for hour in tables.Recent(folder / "insight", name, 1e6) for row in tables.with_numbers(hour)]
        for row in rows:
            row["start"] = row.pop(tables.step_column(name))
        found[name] = {tuple(row[key] for key in KEYS if key in row): row for row in rows}
        assert len(found[name]) == len(rows)
    return found


def test_a_batch_is_one_stage(spark: Any, tmp_path: Path) -> None:
    """There is no shuffle, and nothing is read twice."""
    frame = sums.transform(spark.createDataFrame(random_events(tmp_path / "journal", 1, 50)), InsightState())
    assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()


class Killed(BaseException):
    """Simulates a kill."""


def killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize(("owner", "step"), [(Store, "move"), (MessageStore, "commit"), (Lake, "decide")])
def test_tables_match_the_events_and_a_killed_batch_is_applied_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    """Killed before the commit, before its files are moved, and before the database is updated."""
    events = random_events(tmp_path / "journal", 3, 300)
    batches = in_thirds(spark, events)
    insight(spark, tmp_path / "first").batch(batches[0], 0)
    shutil.copytree(tmp_path / "first", tmp_path / "lake")  # the lake also works at another path
    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed)
        with pytest.raises(Killed):
            insight(spark, tmp_path / "lake").batch(batches[1], 1)
    again = insight(spark, tmp_path / "lake")
    again.batch(batches[1], 1)
    again.batch(batches[2], 2)
    assert again.batch(batches[2], 2) == 0
    check(rows_of(tmp_path / "lake"), Plain(events))


def test_a_lake_without_its_message_database_is_rejected(spark: Any, tmp_path: Path) -> None:
    batches = in_thirds(spark, random_events(tmp_path / "journal", 3, 60))
    insight(spark, tmp_path / "lake").batch(batches[0], 0)
    before = rows_of(tmp_path / "lake")
    insight(spark, tmp_path / "lake").batch(batches[1], 1)
    (tmp_path / "lake" / "_penstock" / "insight" / "state" / "messages.db").unlink()
    with pytest.raises(LakeError, match=r"does not match the last batch: .* Restore .* as a whole, or remove it and"):
        insight(spark, tmp_path / "lake").batch(batches[2], 2)
    assert before != rows_of(tmp_path / "lake")
