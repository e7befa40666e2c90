"""The benchmarks of reading into Spark: the steps of a latency, and the CPU time of processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from benches.processes import CpuMeter
from benches.spark import latency
from benches.spark.latency import STEPS, Arrival, durations, steps, table
from benches.spark.timed import Call, TimedSource
from support.brokers import wait_for
from support.sparks import SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_steps_are_those_of_the_batch_with_the_message() -> None:
    earlier = [Call(what, 0.0, 0.5, 10) for what in ("latestOffset", "partitions", "read")]
    noted = [Call("latestOffset", 3.0, 4.0, 12), Call("partitions", 5.0, 6.0, 12), Call("read", 9.0, 10.0, 12)]
    later = [Call(what, 20.0, 30.0, 20) for what in ("latestOffset", "partitions", "read")]
    found = steps(1.0, Arrival(7, 11, called=8.0, got=15.0), [*earlier, *noted, *later])
    assert dict(zip(STEPS, found, strict=True)) == {
        "wait for a trigger": 2.0,
        "latestOffset": 1.0,
        "Spark: offset log, plan": 2.0,
        "Spark: call of foreachBatch": 2.0,
        "Spark: scheduling of parts": 1.0,
        "read": 1.0,
        "Spark: rows to the driver": 5.0,
    }


def test_a_message_read_before_its_confirmation_did_not_wait() -> None:
    noted = [Call("latestOffset", 0.0, 4.0, 12), Call("partitions", 5.0, 6.0, 12), Call("read", 9.0, 10.0, 12)]
    found = steps(1.0, Arrival(7, 11, called=8.0, got=15.0), noted)
    assert found[:2] == [0.0, 3.0]
    assert sum(found) == 14.0


def test_the_table_has_percentiles_of_all_and_of_each_step() -> None:
    lines = table([[each / 1000] * len(STEPS) for each in range(1, 102)]).splitlines()
    assert lines[0].split() == ["p50", "p99", "mean"]
    assert lines[1].split() == ["all", "of", "it", "357.0", "700.0", "357.0"]
    assert lines[-1].split()[-3:] == ["51.0", "100.0", "51.0"]


def test_every_message_is_timed(
    spark: SparkSession, new_broker: Callable[..., SparkBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "WARM", 1)
    broker = new_broker("timed")
    spark.dataSource.register(TimedSource)
    found = durations(spark, broker.addresses, 2, {}, steady=True)
    assert len(found) == 2
    for each in found:
        assert len(each) == len(STEPS)
        assert min(each) >= 0
        assert sum(each) > 0


def test_cpu_time_of_an_ended_process_is_counted() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with CpuMeter() as meter:
        before = meter.seconds()["bench"]
        with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            wait_for(lambda: meter.seconds()["bench"] - before >= 0.3, "CPU time of the ended process is missing")
            process.communicate(b"\n")
        assert meter.seconds()["bench"] - before >= 0.3
