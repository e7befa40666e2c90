"""Exactly once under fire. ``scripts/spark-fire`` has a hundred rounds of it."""

from __future__ import annotations

from pathlib import Path

from spark.fire.killing import Story


def test_drivers_and_brokers_are_killed(tmp_path: Path) -> None:
    told = list(Story(tmp_path, seed=1).run(rounds=3))
    assert "each once" in told[-1]
