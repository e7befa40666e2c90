"""A story: messages flow, drivers and the broker are killed, and at the end everything is counted."""

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
#: Spark 4.3's error if queries of one session modify its table of environment variables at once. A driver that died of
#: it must be restarted by its operator, and here by us.
RACE = "of collection, expected"
#: Spark's error if one of its Python processes takes more than ten seconds to start, on a machine that is too busy.
TOO_BUSY = "Python worker failed to connect back"
#: The prefix of the data source's errors in a log.
OURS = "penstock.spark.errors."
#: What is killed before the driver; the last exists only in a cluster.
VICTIMS = ("nothing", "Python worker", "cluster worker")
#: One story in this many uses a cluster.
CLUSTER_EVERY = 3
#: Seconds that a driver may take to start its queries, and to finish them.
PATIENCE = 300.0


class _DiedOfSpark(Exception):
    """The driver died of RACE or TOO_BUSY."""


class _EndedByKills(Exception):
    """A query ended because a process that it needs was killed."""


class Figures(NamedTuple):
    """The counts of a story. ``lost`` and ``doubled`` cover everything read, copied and consumed."""

    rounds: int = 0
    drivers_killed: int = 0
    brokers_killed: int = 0
    #: Python processes of executors, and worker processes of a cluster.
    python_workers_killed: int = 0
    cluster_workers_killed: int = 0
    #: Queries that ended because of such a kill, and were started again.
    ended_by_kills: int = 0
    died_of_spark: int = 0
    published: int = 0
    read: int = 0
    copied: int = 0
    consumed: int = 0
    lost: int = 0
    doubled: int = 0
    #: Consumed messages that are still in the queue.
    unsettled: int = 0


class Story(Counted[Figures]):
    """A broker, its messages, and a succession of drivers. Everything is in one folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(Figures())
        self.folder = folder
        self.broker = SparkBroker(folder / "broker")
        self._seed = seed
        self._random = random.Random(seed)
        #: Whether the copy is made in foreachBatch instead of by a stream. It can't change between drivers.
        self._each = seed % 2 == 0
        #: A cluster, whose workers are killed too, or None. It costs more than everything else.
        self._cluster = Cluster(folder / "cluster") if seed % CLUSTER_EVERY == CLUSTER_EVERY - 1 else None
        self._done = threading.Event()
        self._number = 0

    def run(self, rounds: int) -> Iterator[str]:
        """Kill ``rounds`` drivers, and the broker now and then; then count. Yields a line about each round.

        After the last, ``figures`` contains the counts, and ``wrong`` all errors found.
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
        """Start and kill a driver, and perhaps the broker."""
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
        """For some seconds, kill processes that run tasks. Returns how many were killed."""
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
        """Options and a cluster size that differ from the previous driver's."""
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
        """Check that the driver is alive, or that it ended because of a kill and not by an error of ours."""
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
            # A group of its own, so that its Java and Spark's Python workers are killed with it.
            environment = os.environ | {"PYTHONPATH": PYTHON_PATH}
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def _drive(self) -> None:
        """Run a driver until it ends by itself, which must succeed."""
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
        """Publish until done. Each text is unique, even if it is unknown whether the previous publish succeeded."""
        bursts = random.Random(self._seed)
        while not self._done.is_set():
            rows = bursts.choice([*[20] * 15, 400])
            for queue in QUEUES:
                # Sometimes so many that a batch has several parts of some size.
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
        """Check that every published message was read, copied and consumed exactly once."""
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
    """The committed rows of Spark's file sink, read without Spark: its log names the files that count."""
    files: set[str] = set()
    for log in (folder / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            files.add(unquote(urlsplit(json.loads(line)["path"]).path))
    found: list[tuple[int, bytes]] = []
    for file in files:
        table = pq.ParquetFile(file).read(["position", "payload"])
        found.extend(zip(table["position"].to_pylist(), table["payload"].to_pylist(), strict=True))
    return found
