"""Data source and pipelines on a real standalone cluster with two workers and separate executor processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock.wire import sspq
from support.commands import environment, penstock
from support.sparkprocesses import PATIENCE, cluster, run
from support.sparkprocesses import environment as spark_environment
from support.sparks import PYTHON_PATH, SparkBroker
from support.tables import by_pandas

CONF = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.executor.memory": "600m"}
CONF["spark.sql.shuffle.partitions"] = "2"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster shared by these tests."""
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def check(found: dict[str, Any]) -> None:
    numbers = [str(n) for n in range(1000)]
    assert found["batch"] == found["stream"] == found["consumed"] == numbers
    assert found["copied"] == [number for number in numbers for _ in range(2)]
    assert (found["left"], found["filtered"]) == (0, 0)


def test_everything_on_a_cluster(new_broker: Callable[..., SparkBroker], tmp_path: Path, master: str) -> None:
    broker = new_broker()
    for queue in ("in", "work"):
        broker.publish(queue, *(str(n) for n in range(1000)))
    check(run(tmp_path, "spark.everything", master, broker.endpoint, str(tmp_path)))


def _count(table: Path, what: str = "count(*)") -> Any:
    return duckdb.connect().execute(f"select {what} from '{table}/**/*.parquet'").fetchall()[0][0]


def test_pipelines_on_a_cluster(new_broker: Callable[..., SparkBroker], tmp_path: Path, master: str) -> None:
    broker, lake = new_broker(), tmp_path / "lake"
    broker.publish("in", *(str(n) for n in range(1000)))
    conf = [part for pair in CONF.items() for part in ("--conf", "=".join(pair))]
    shared = ["--lake", lake, "--endpoint", broker.endpoint, "--once", "--json"]
    for name in ("archive", "insight"):
        done = penstock(
            "pipeline", name, "--master", master, *conf, *shared,
            timeout=PATIENCE, PYTHONPATH=PYTHON_PATH, SPARK_LOCAL_DIRS=str(tmp_path / "local"),
        )  # fmt: skip
        assert done.code == 0, done.err
        assert done.json[-1]["done"]
    archived = by_pandas(lake, "messages")
    assert len(archived) == len(set(archived)) == 1000
    assert _count(lake / "insight" / "queues", "sum(published)") == 1000


def test_decode_submitted_to_a_cluster(tmp_path: Path, master: str) -> None:
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(sspq.encode([sspq.Send(3, (b"x",) * 100)]) + b"!" * 8)
    file = penstock("pipeline", "submit-file").out.strip()
    env = {**environment(), **spark_environment(tmp_path)}
    command = [f"{env['SPARK_HOME']}/bin/spark-submit", "--master", master]
    command += [part for pair in CONF.items() for part in ("--conf", "=".join(pair))]
    command += [file, "decode", f"{tmp_path}/*.bin", "--output", str(tmp_path / "frames")]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()[-5000:]
    assert _count(tmp_path / "frames", 'count(distinct file || "offset")') == 303
    assert _count(tmp_path / "frames", "count(code)") == 3
