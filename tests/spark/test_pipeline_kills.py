"""Pipelines under fire. ``scripts/pipeline-fire`` has a hundred rounds of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spark.fire.pipelines import PLAN, PipelineStory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_pipelines_and_brokers_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    told = list(PipelineStory(tmp_path, 1, spark).run(rounds=len(PLAN)))
    assert "each once" in told[-1]
