"""Pipelines while they and their broker are killed. ``scripts/pipeline-fire`` runs more rounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spark.fire.pipelines import PLAN, PipelineStory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_pipelines_and_brokers_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    story = PipelineStory(tmp_path, 1, spark)
    assert len(list(story.run(rounds=len(PLAN)))) == len(PLAN)
    found = story.figures
    assert story.wrong == []
    assert (found.lost, found.doubled, found.miscounted) == (0, 0, 0)
    assert found.rounds == found.pipelines_killed + found.ended_by_kills == len(PLAN)
    assert found.brokers_killed == len(PLAN) // 2
    assert found.archived == found.published > 0
    assert found.replayed > 0
    assert found.events >= found.published
    assert found.minutes > 0
