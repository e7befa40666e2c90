"""Which parts of what ``insight`` knows a batch replaces: those it is about, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.pipelines.insight import parts
from penstock.spark.pipelines.insight.parts import QueueInPart, StatePart, Touch, choose, describe, standing


def part(low: int, high: int | None = None, rows: int = 1000, **more: Any) -> StatePart:
    return StatePart(
        low, low if high is None else high, [f"{low}.parquet"], rows, [QueueInPart("default", "jobs", low)], **more
    )


def touch(*grains: int, emptied: str = "", forget: int = 0) -> Touch:
    return Touch(frozenset(grains), frozenset({("default", emptied)} if emptied else ()), forget)


@pytest.mark.parametrize("waiting", [10, 100])
def test_what_a_batch_reads_does_not_depend_on_what_waits(waiting: int) -> None:
    """The newest messages come, the oldest go: two parts are replaced, however many there are."""
    chosen = choose([part(low) for low in range(waiting)], touch(0, waiting - 1, waiting))
    assert [each.low for each in chosen.replaced] == [0, waiting - 1]
    assert len(chosen.kept) == waiting - 2
    assert chosen.ranges == []


def test_parts_of_queues_that_were_emptied_and_of_purges_that_are_over_are_read() -> None:
    known = [part(1), part(2, purged_at=50)]
    assert choose(known, touch(emptied="other")).replaced == []
    assert choose(known, touch(emptied="jobs")).replaced == known
    assert choose(known, touch(forget=49)).replaced == []
    assert choose(known, touch(forget=50)).replaced == known[1:]


def test_a_part_of_many_grains_is_found_by_any_of_them() -> None:
    known = [part(0), part(1, 9), part(10)]
    for grains in ((5,), (1,), (9,), (*range(20, 50), 7)):
        chosen = choose(known, touch(*grains))
        assert [each.low for each in chosen.replaced] == [1]
        assert chosen.ranges == [(1, 9)]
    assert choose(known, touch(11)).replaced == []


def test_too_many_parts_with_few_messages_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_PARTS", 4)
    big = parts.GRAIN
    known = [part(0, rows=5), part(1, rows=5), part(2, rows=big), part(7, rows=1), part(9, 12, rows=2)]
    chosen = choose(known, touch())
    assert chosen.ranges == [(0, 1), (7, 12)]
    assert [each.low for each in chosen.kept] == [2]
    assert choose(known[:4], touch()).replaced == []


def test_the_oldest_of_what_is_not_read() -> None:
    one = StatePart(0, 0, [], 3, [QueueInPart("a", "x", 7), QueueInPart("a", "y", None)])
    other = StatePart(1, 1, [], 1, [QueueInPart("a", "x", 5), QueueInPart("a", "z", 9)])
    assert sorted(standing([one, other])) == [("a", "x", 5), ("a", "z", 9)]
    assert standing([]) == []


def test_a_part_is_described_by_its_files(tmp_path: Path) -> None:
    columns = {
        "namespace": ["a", "a", "a", "a"], "queue": ["x", "x", "y", "z"], "entered_at": [5, 3, 1, 2],
        "dead": [False, False, True, False], "purged_at": pa.array([None, None, None, 8], pa.int64()),
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "0.parquet")
    found = describe(4, [(4, 6)], [tmp_path / "0.parquet"], ["new.parquet"])
    held = [QueueInPart("a", "x", 3), QueueInPart("a", "y", None), QueueInPart("a", "z", None)]
    assert found == StatePart(4, 6, ["new.parquet"], 4, held, purged_at=8)
    assert describe(5, [(4, 6)], [tmp_path / "0.parquet"], []).high == 5
