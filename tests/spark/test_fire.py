"""Exactly once while drivers and brokers are killed. ``scripts/spark-fire`` runs more rounds."""

from __future__ import annotations

from pathlib import Path

from spark.fire.killing import Story
from support.figures import Difference


def test_drivers_and_brokers_are_killed(tmp_path: Path) -> None:
    story = Story(tmp_path, seed=1)
    assert len(list(story.run(rounds=2))) == 2
    found = story.figures
    assert story.wrong == []
    assert (found.lost, found.doubled, found.unsettled) == (0, 0, 0)
    assert (found.rounds, found.drivers_killed + found.died_of_spark + found.ended_by_kills) == (2, 2)
    assert found.drivers_killed > 0
    assert found.brokers_killed > 0
    assert found.copied == found.read > 0
    assert found.consumed > 0
    assert found.read + found.consumed == found.published


def test_missing_and_duplicate_items_are_counted() -> None:
    assert Difference.between([1, 2, 2, 3, 9], [1, 2, 3, 4, 5]) == (2, 2, [4, 5, 2, 9])
    assert not Difference.between([1, 2], [2, 1])
