"""A project created by `penstock pipeline init`, run with plain ``spark-pipelines run``."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb

from support.commands import penstock
from support.sparkprocesses import PATIENCE, environment
from support.sparks import SparkBroker


def _run(folder: Path, project: Path) -> str:
    """Run it. Returns its output."""
    env = environment(folder) | {"SPARK_TESTING": "1"}  # Spark Connect then takes any free port
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, timeout=PATIENCE, check=False)
    said = (done.stdout + done.stderr).decode()
    without_frames = "\n".join(line for line in said.splitlines() if not line.startswith("\tat "))
    assert done.returncode == 0, without_frames
    return said


def _sum(project: Path, table: str, what: str) -> int:
    found = duckdb.connect().execute(f"select {what} from '{project}/tables/{table}/*.parquet'").fetchall()
    return int(found[0][0])


def test_a_project_runs_as_generated_and_again(new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    broker, project = new_broker(), tmp_path / "my-project"
    before, resources = set(tmp_path.iterdir()), _resources()
    assert penstock("pipeline", "init", project, "--endpoint", broker.endpoint).code == 0
    for published in (50, 57):
        broker.publish("jobs", *[b"x"] * (published - _published(project)))
        said = _run(tmp_path, project)
        # Streams that start together could fail because of a race in Spark.
        assert re.findall(r"Flow \S+ (?:is|has) (STARTING|COMPLETED)", said) == ["STARTING", "COMPLETED"] * 3
        assert _published(project) == _sum(project, "messages", "count(distinct position)") == published
        assert _sum(project, "queue_minutes", "sum(published)") == published
    assert set(tmp_path.iterdir()) - before <= {project, tmp_path / "local"}
    assert _resources() == resources


def _published(project: Path) -> int:
    return _sum(project, "messages", "count(*)") if (project / "tables").exists() else 0


def _resources() -> set[Path]:
    """The folders in which Hive would store downloads."""
    return set(Path("/tmp").glob("*_resources"))  # Java's temporary folder, which may differ from Python's
