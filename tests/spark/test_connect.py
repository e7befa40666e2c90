"""The data source over Spark Connect: session and Spark are in separate processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.sparkprocesses import connect_server, run
from support.sparks import SparkBroker


def test_everything_over_connect(new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    broker = new_broker()
    for queue in ("in", "work"):
        broker.publish(queue, *(str(n) for n in range(1000)))
    with connect_server(tmp_path) as remote:
        found = run(tmp_path, "spark.everything", remote, broker.endpoint, str(tmp_path))
    numbers = [str(n) for n in range(1000)]
    assert found["batch"] == found["stream"] == found["consumed"] == numbers
    assert found["copied"] == [number for number in numbers for _ in range(2)]
    assert (found["left"], found["filtered"]) == (0, 0)
