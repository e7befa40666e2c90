"""One story: messages flow, drivers and the broker are killed, and in the end everything is counted."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow.parquet as pq

from penstock.client import ClientError, connect
from penstock.flight.calls import Read
from penstock.spark.endpoint import FlightEndpoint
from penstock.spark.options import SourceSettings
from spark.fire.driver import Life
from spark.fire.story import Counted, kill_group
from spark.fire.workers import kill_python_worker
from support.sparkprocesses import Cluster
from support.sparks import PYTHON_PATH, SparkBroker

QUEUES = ("in", "work")
#: What Spark 4.3 says when queries of one session have written to its table of environment variables at once. Whoever
#: runs drivers has to start one again that has died of it, and so do we.
RACE = "of collection, expected"
#: What it says when a Python process of its own has not started within its ten seconds, on a machine that is too busy.
TOO_BUSY = "Python worker failed to connect back"
#: How errors of the data source begin in a log.
OURS = "penstock.spark.errors."
#: What is killed before the driver is: the last is only there with a cluster.
VICTIMS = ("nothing", "Python worker", "cluster worker")
#: Every so many stories there is a cluster.
CLUSTER_EVERY = 3
#: Seconds that a driver may take to start its queries, and to finish them.
PATIENCE = 300.0


class _DiedOfSpark(Exception):
    """See RACE and TOO_BUSY."""


class _EndedByKills(Exception):
    """A query has ended because a process that it needs was killed."""


class Figures(NamedTuple):
    """What a story counts. ``lost`` and ``doubled`` are over all that is read, copied and consumed."""

    rounds: int = 0
    drivers_killed: int = 0
    brokers_killed: int = 0
    #: Python processes of executors, and worker processes of a cluster.
    python_workers_killed: int = 0
    cluster_workers_killed: int = 0
    #: Queries that have ended because of that, and were started again.
    ended_by_kills: int = 0
    died_of_spark: int = 0
    published: int = 0
    read: int = 0
    copied: int = 0
    consumed: int = 0
    lost: int = 0
    doubled: int = 0
    #: Consumed, and still in the queue.
    unsettled: int = 0


class Story(Counted[Figures]):
    """A broker, its messages, and the drivers that come and go. Everything is in one folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(Figures())
        self.folder = folder
        self.broker = SparkBroker(folder / "broker")
        self._seed = seed
        self._random = random.Random(seed)
        #: Whether the copy is made by a stream, or in foreachBatch. It can't be changed in between.
        self._each = seed % 2 == 0
        #: Whether there is a cluster, whose workers are killed too. It costs more than everything else.
        self._cluster = Cluster(folder / "cluster") if seed % CLUSTER_EVERY == CLUSTER_EVERY - 1 else None
        self._done = threading.Event()
        self._number = 0

    def run(self, rounds: int) -> Iterator[str]:
        """Kill so many drivers, and the broker now and then; then count. Tells of each round.

        After the last, ``figures`` has the numbers, and ``wrong`` what is not as it must be.
        """
        self.broker.start()
        publishing = threading.Thread(target=self._publish)
        with ExitStack() as stack:
            stack.callback(self.broker.stop)
            if self._cluster is not None:
                self._cluster.folder.mkdir()
                stack.enter_context(self._cluster)
            yield from self._rounds(rounds, publishing)

    def _rounds(self, rounds: int, publishing: threading.Thread) -> Iterator[str]:
        try:
            for queue in (*QUEUES, "copied"):
                self.broker.publish(queue)
            publishing.start()
            for number in range(rounds):
                self.count(rounds=1)
                yield f"round {number}: {self._round()}"
            self._done.set()
            publishing.join()
            self._drive()
            self._check_counts()
        finally:
            self._done.set()
            if publishing.ident is not None:
                publishing.join()

    def _round(self) -> str:
        """One driver's life, and perhaps the end of one of the broker's."""
        mark = self._random.choice(["started", "running", "running", "running"])
        life = self._random.uniform(0.0, 3.0)
        victim = self._random.choice(VICTIMS if self._cluster is not None else VICTIMS[:-1])
        broker_at = self._random.uniform(0.0, life) if self._random.random() < 0.6 else None
        for each in ("started", "running"):
            (self.folder / each).unlink(missing_ok=True)
        how = self._life()
        driver = self._start(how)
        try:
            self._wait(driver, mark)
            if broker_at is not None:
                time.sleep(broker_at)
                self.broker.kill()
                self.count(brokers_killed=1)
                self.broker.start()
            killed = self._kill_executors(driver, victim, life - (broker_at or 0.0))
            self._check(driver, may_end=killed > 0)
        except _DiedOfSpark:
            self.count(died_of_spark=1)
            return "driver died of a fault of Spark"
        except _EndedByKills:
            self.count(ended_by_kills=1)
            return f"a query ended after the kill of a {victim}"
        finally:
            kill_group(driver)
        self.count(drivers_killed=1)
        options = f"{how.parts} parts of {how.limit} on {how.cores} cores" + (" of a cluster" if how.master else "")
        text = f"driver ({options}) killed {life:.2f} s after it was {mark}"
        text += f", broker after {broker_at:.2f} s" if broker_at else ""
        return text + (f", {killed} × {victim} before" if killed else "")

    def _kill_executors(self, driver: subprocess.Popen[bytes], victim: str, seconds: float) -> int:
        """For some seconds, kill what runs the tasks. Returns how many were killed."""
        killed, until = 0, time.monotonic() + seconds
        if victim == "cluster worker" and self._cluster is not None:
            time.sleep(self._random.uniform(0.0, seconds))
            self._cluster.kill_worker(self._random.randrange(2))
            self.count(cluster_workers_killed=1)
            killed = 1
        while time.monotonic() < until:
            if victim == "Python worker":
                sessions = [driver.pid, *(self._cluster.sessions if self._cluster is not None else [])]
                more = kill_python_worker(sessions, self._random)
                self.count(python_workers_killed=more)
                killed += more
            time.sleep(min(self._random.uniform(0.2, 1.0), max(until - time.monotonic(), 0.0)))
        return killed

    def _life(self, *, finish: bool = False) -> Life:
        """Other options, and another size of the cluster, than the driver before had."""
        limits = [10_000] if finish else [50, 300, 1000]
        parts, cores, limit = map(self._random.choice, ([1, 2, 3, 4], [1, 2], limits))
        return Life(
            self.broker.endpoint,
            str(self.folder),
            finish=finish,
            each=self._each,
            parts=parts,
            cores=cores,
            limit=limit,
            master=self._cluster.address if self._cluster is not None else "",
        )

    def _wait(self, driver: subprocess.Popen[bytes], mark: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (self.folder / mark).exists():
            self._check(driver)
            assert time.monotonic() < deadline, self._log()
            time.sleep(0.05)

    def _check(self, driver: subprocess.Popen[bytes], *, may_end: bool = False) -> None:
        """It must be alive, unless what it needs was killed. Then it may have ended, but with no error of ours."""
        if driver.poll() is not None:
            text = (self.folder / "driver.log").read_text(errors="replace")
            if RACE in text or TOO_BUSY in text:
                raise _DiedOfSpark
            if may_end and OURS not in text:
                raise _EndedByKills
            raise AssertionError(self._log())

    def _start(self, life: Life) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "spark.fire.driver", msgspec.json.encode(life).decode()]
        with (self.folder / "driver.log").open("wb") as log:
            # A group of its own, so that its Java and Spark's Python workers go with it.
            environment = os.environ | {"PYTHONPATH": PYTHON_PATH}
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def _drive(self) -> None:
        """Run a driver to its own end, which must be a good one."""
        while True:
            driver = self._start(self._life(finish=True))
            try:
                if driver.wait(PATIENCE):
                    self._check(driver)
                return
            except _DiedOfSpark:
                continue
            finally:
                kill_group(driver)

    def _log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-5000:]

    def _publish(self) -> None:
        """Messages without end, each with a text of its own, also if it is not known whether the last one came in."""
        bursts = random.Random(self._seed)
        while not self._done.is_set():
            rows = bursts.choice([*[20] * 15, 400])
            for queue in QUEUES:
                # Now and then so many that a batch has several parts of some size.
                texts = [f"{queue}-{self._number + n}" for n in range(rows)]
                self._number += len(texts)
                try:
                    with connect(self.broker.url("kokaq", f"/default/{queue}")) as client:
                        client.publish_many(texts)
                except (ClientError, OSError):
                    time.sleep(0.2)  # the broker is being killed
            self._done.wait(0.25)

    # Counting

    def _check_counts(self) -> None:
        """Everything that was published must have been read, copied and consumed once."""
        came, worked = self._published("in"), self._published("work")
        read, consumed = rows(self.folder / "read"), rows(self.folder / "consume")
        copied = [text for _, text in self._published("copied")]
        self.compare("read", read, came)
        self.compare("copied", copied, [text for _, text in came])
        self.compare("consumed", consumed, worked)
        left = self._read(Read(view="live", queue="default/work", columns=["state"]))
        unsettled = sum(batch.num_rows for batch in left)
        if unsettled:
            self.wrong.append(f"{unsettled} messages were consumed and not acknowledged")
        counts = {"read": len(read), "copied": len(copied), "consumed": len(consumed), "unsettled": unsettled}
        self.count(published=len(came) + len(worked), **counts)

    def _published(self, queue: str) -> list[tuple[int, bytes]]:
        batches = self._read(Read(queue=f"default/{queue}", columns=["position", "payload"]))
        return [(row["position"], row["payload"]) for batch in batches for row in batch.to_pylist()]

    def _read(self, read: Read) -> list[pq.pa.RecordBatch]:
        endpoint = FlightEndpoint(SourceSettings(endpoint=self.broker.endpoint))
        try:
            return list(endpoint.get(read))
        finally:
            endpoint.close()


def rows(folder: Path) -> list[tuple[int, bytes]]:
    """What Spark's file sink says it has written, without Spark: its log names the files that count."""
    files: set[str] = set()
    for log in (folder / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            files.add(unquote(urlsplit(json.loads(line)["path"]).path))
    found: list[tuple[int, bytes]] = []
    for file in files:
        table = pq.ParquetFile(file).read(["position", "payload"])
        found.extend(zip(table["position"].to_pylist(), table["payload"].to_pylist(), strict=True))
    return found
