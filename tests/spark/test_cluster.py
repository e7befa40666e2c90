"""The data source on a real standalone cluster: executors are processes of their own, on two workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.sparkprocesses import cluster, run
from support.sparks import SparkBroker


def check(found: dict[str, Any]) -> None:
    numbers = [str(n) for n in range(1000)]
    assert found["batch"] == found["stream"] == found["consumed"] == numbers
    assert found["copied"] == [number for number in numbers for _ in range(2)]
    assert (found["left"], found["filtered"]) == (0, 0)


def test_everything_on_a_cluster(new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    broker = new_broker()
    for queue in ("in", "work"):
        broker.publish(queue, *(str(n) for n in range(1000)))
    with cluster(tmp_path) as master:
        check(run(tmp_path, "spark.everything", master, broker.endpoint, str(tmp_path)))
