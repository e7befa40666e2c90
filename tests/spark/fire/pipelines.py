"""A story: messages flow, pipelines and the broker are killed, and at the end everything is counted.

The killed pipelines are processes, started by the command. The test's own session finishes their work, because
starting another Spark for that would cost more than everything else.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.client import ClientError, connect
from penstock.journal.files.follower import JournalReader
from penstock.journal.views import arrow
from penstock.spark.lake.table_formats import FORMATS
from penstock.spark.pipelines.archive import main as archive_main
from penstock.spark.pipelines.archive import options as archive_options
from penstock.spark.pipelines.insight import main as insight_main
from penstock.spark.pipelines.insight.minutes import COUNTS, MINUTE
from penstock.spark.pipelines.replay import Replay, State, chunk_rows
from penstock.spark.pipelines.run import BrokerSource, RunControl
from spark.fire.story import Counted, kill_group
from spark.fire.workers import kill_python_worker
from support.commands import COMMAND, environment
from support.history import Plain
from support.sparkprocesses import Cluster
from support.sparks import PYTHON_PATH, SparkBroker
from support.tables import by_duckdb, by_pandas, by_polars, by_spark, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds that a pipeline may take for its first batch, on a busy machine. Longer than it waits for a broker, so that
#: it can report what it waited for.
PATIENCE = 600.0
#: Messages per second of a replay: slow enough that it is killed before it ends.
RATE = 20
#: In each run of this many stories, the last ones use a cluster, one for each table format.
WITH_CLUSTER = 9
#: The pipeline killed in each round.
PLAN = ("archive", "insight", "archive", "replay")
DECODING = {"format": "json", "schema": "n long"}
OPTIONS = {
    "archive": ["--queue", "default/flow", "--format", "json", "--schema", "n long", "--every", "0"],
    "insight": ["--every", "0", "--report-every", "0"],
    "replay": ["--to", "default/again", "--create", "--rate", str(RATE)],
}
#: The file that changes with each batch.
MARKS = {
    "archive": "archive-messages/ledger.json",
    "insight": "insight/ledger.json",
    "replay": "replay-replay/state.json",
}


class Figures(NamedTuple):
    """The counts of a story. ``lost`` and ``doubled`` cover everything archived, replayed and counted."""

    rounds: int = 0
    pipelines_killed: int = 0
    brokers_killed: int = 0
    #: Python processes of executors, and worker processes of a cluster.
    python_workers_killed: int = 0
    cluster_workers_killed: int = 0
    #: Pipelines that ended because of such a kill, and were run again.
    ended_by_kills: int = 0
    published: int = 0
    archived: int = 0
    replayed: int = 0
    events: int = 0
    #: Rows of the table per queue and minute.
    minutes: int = 0
    lost: int = 0
    doubled: int = 0
    #: Rows of that table whose counts are wrong.
    miscounted: int = 0


class PipelineStory(Counted[Figures]):
    """A broker, its messages, a lake, and a succession of pipelines. Everything is in one folder."""

    def __init__(self, folder: Path, seed: int, spark: SparkSession) -> None:
        super().__init__(Figures())
        self.broker = SparkBroker(folder / "broker")
        self.lake = folder / "lake"
        self.kind = list(FORMATS)[seed % len(FORMATS)]
        self._cluster = Cluster(folder / "cluster") if seed % WITH_CLUSTER >= WITH_CLUSTER - len(FORMATS) else None
        self._spark = spark
        self._log = folder / "pipeline.log"
        self._random = random.Random(seed)
        self._done = threading.Event()
        self._number = 0

    def run(self, rounds: int) -> Iterator[str]:
        """Kill ``rounds`` pipelines, and the broker with every second one; then count. Yields a line about each round.

        After the last, ``figures`` contains the counts, and ``wrong`` all errors found.
        """
        self.broker.start()
        flowing = threading.Thread(target=self._flow)
        with ExitStack() as stack:
            stack.callback(self.broker.stop)
            if self._cluster is not None:
                self._cluster.folder.mkdir()
                stack.enter_context(self._cluster)
            yield from self._rounds(rounds, flowing)

    def _rounds(self, rounds: int, flowing: threading.Thread) -> Iterator[str]:
        try:
            self.broker.publish("flow", b'{"n": -1}')
            flowing.start()
            for number in range(rounds):
                self.count(rounds=1)
                yield f"round {number}: {self._round(PLAN[number % len(PLAN)], with_broker=number % 2 == 1)}"
            self._done.set()
            flowing.join()
            self._check()
        finally:
            self._done.set()
            if flowing.ident is not None:
                flowing.join()

    def _round(self, name: str, *, with_broker: bool) -> str:
        """Start and kill a pipeline, and perhaps the broker."""
        mark = self.lake / "_penstock" / MARKS[name]
        life = self._random.uniform(0.0, 1.5)
        broker_at = self._random.uniform(0.0, life) if with_broker else life
        before = _stamp(mark)
        driver = self._start(name)
        try:
            self._wait(driver, lambda: _stamp(mark) != before)
            time.sleep(broker_at)
            if with_broker:
                self.broker.kill()
                self.count(brokers_killed=1)
                self.broker.start()
            killed = self._kill_executors(driver, life - broker_at)
            ended = driver.poll() is not None
            assert killed or not ended, self._last_output()
        finally:
            kill_group(driver)
        self.count(ended_by_kills=ended, pipelines_killed=not ended)
        text = f"{name} ({self.kind}) " + ("ended by a kill" if ended else f"killed {life:.2f} s after a batch")
        text += f", the broker after {broker_at:.2f} s" if with_broker else ""
        return text + (f", {killed} of its workers before" if killed else "")

    def _kill_executors(self, driver: subprocess.Popen[bytes], seconds: float) -> int:
        """In about half of the rounds, kill processes that run tasks. Returns how many were killed."""
        if self._random.random() < 0.5:
            time.sleep(seconds)
            return 0
        sessions = [driver.pid] if self._cluster is None else [driver.pid, *self._cluster.sessions]
        killed = kill_python_worker(sessions, self._random)
        self.count(python_workers_killed=killed)
        time.sleep(seconds)
        if self._cluster is not None and self._random.random() < 0.5:
            self._cluster.kill_worker(self._random.randrange(2))
            self.count(cluster_workers_killed=1)
            killed += 1
        more = kill_python_worker(sessions, self._random)
        self.count(python_workers_killed=more)
        time.sleep(self._random.uniform(0.0, 1.0))
        return killed + more

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        where = ["--lake", str(self.lake), "--endpoint", self.broker.endpoint, "--json"]
        where += ["--kind", self.kind] if name == "archive" else []
        # A task is tried four times, as on a cluster.
        where += ["--master", "local[2,4]" if self._cluster is None else self._cluster.address]
        conf = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.executor.memory": "600m"}
        where += [part for pair in conf.items() for part in ("--conf", "=".join(pair))]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [*COMMAND, "pipeline", name, *OPTIONS[name], *where],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env=environment(PYTHONPATH=PYTHON_PATH, SPARK_LOCAL_DIRS=str(self.lake.parent / "local")),
            )  # fmt: skip

    def _wait(self, driver: subprocess.Popen[bytes], what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert driver.poll() is None, self._last_output()
            assert time.monotonic() < deadline, self._last_output()
            time.sleep(0.01)

    def _last_output(self) -> str:
        """The end of a pipeline's output, with only the last line of its progress."""
        lines = self._log.read_text(errors="replace").splitlines()
        text = [line for at, line in enumerate(lines, 1) if at == len(lines) or not line.startswith('{"rows"')]
        return "\n".join(text)[-5000:]

    def _flow(self) -> None:
        """Publish messages, some of them not JSON, and consume most. Failures are ignored: the broker gets killed."""
        while not self._done.wait(0.1):
            with suppress(ClientError, OSError), connect(self.broker.url("kokaq", "/default/flow")) as client:
                numbers = range(self._number, self._number + 50)
                self._number += 50  # even if it is unknown whether the publish succeeded: all messages are distinct
                client.publish_many([b'{"n": %d}' % n if n % 7 else b"odd %d" % n for n in numbers])
                for _, message in zip(range(30), client.consume(idle=0.1), strict=False):
                    message.ack()

    # Counting

    def _check(self) -> None:
        """Check that every message is where it belongs, exactly once."""
        self.count(replayed=self._finish_replay())
        self._archive(time.time)
        self._check_archive("archived")
        self._archive(lambda: time.time() + 3600)
        archived = self._check_archive("compacted")
        self.count(archived=archived, published=len(self._rows("messages", "flow")))
        self._check_insight()

    def _source(self) -> BrokerSource:
        return BrokerSource({"endpoint": self.broker.endpoint})

    def _archive(self, clock: Callable[[], float]) -> None:
        """Archive everything available. A clock an hour ahead makes it compact the earlier files."""
        self.broker.publish("flow", b'{"n": -2}')
        options = archive_options.ArchiveOptions(queue="default/flow", kind=self.kind, **DECODING, clock=clock)  # type: ignore[arg-type]
        archive_main.run(self._spark, self._source(), str(self.lake), options, RunControl(once=True))

    def _check_archive(self, what: str) -> int:
        """Check that DuckDB, pandas, polars and Spark find every published message in the table or its quarantine."""
        positions = [row["position"] for row in self._rows("messages", "flow")]
        tables = ["messages", "messages_quarantine"]
        for read in (by_duckdb, by_pandas, by_polars, partial(by_spark, self._spark)):
            rows = [position for table in tables for position in read(self.lake, table)]
            self.compare(f"{what}, by {getattr(read, '__name__', 'by_spark')[3:]}", rows, positions)
        return len(rows)

    def _finish_replay(self) -> int:
        """Finish the replay, if one was begun. It covers the table's rows as of its begin, in order."""
        file = self.lake / "_penstock" / MARKS["replay"]
        if not file.exists():
            return 0
        state = msgspec.json.decode(file.read_bytes(), type=State)
        assert state.choice.chunk_rows == chunk_rows(RATE)
        assert Replay(self._spark, self._source(), str(self.lake), "replay").run(state.choice, None, RunControl()).done
        again = [row["payload"] for row in self._rows("messages", "again")]
        chosen = read_table(self._spark, self.lake, "messages").where(f"position <= {state.end}").orderBy("position")
        wanted = [bytes(row["payload"]) for row in chosen.select("payload").collect()]
        self.compare("replayed", again, wanted)
        if again != wanted:
            self.wrong.append("replayed in another order")
        return len(again)

    def _check_insight(self) -> None:
        options = insight_main.InsightOptions(report_seconds=0)
        insight_main.run(self._spark, self._source(), str(self.lake), options, RunControl(once=True))
        events = self._events("events")
        plain = Plain(events)
        rows = [
            row
            for file in (self.lake / "insight" / "queues").rglob("*.parquet")
            for row in pq.read_table(file, partitioning=None).to_pylist()
        ]
        found = {(row["namespace"], row["queue"], _minute(row)): row for row in rows}
        wanted = list(plain.rows())
        self.count(events=len(events), minutes=len(rows))
        keys = [(row["namespace"], row["queue"], _minute(row)) for row in rows]
        self.compare("minutes", keys, [key for key, _, _ in wanted])
        for key, sums, (depth, dead, _) in wanted:
            row = found.get(key, {})
            expected = {**{name: sums[name] for name in COUNTS}, "depth": depth, "dead_depth": dead}
            if {name: row.get(name) for name in expected} != expected:
                self.count(miscounted=1)
                self.wrong.append(f"{key} has {row}, expected {expected}")

    def _events(self, view: str) -> pa.Table:
        reader = JournalReader(str(self.broker.folder / "data"))
        return pa.Table.from_batches(list(arrow.read(reader, view, reader.earliest)))

    def _rows(self, view: str, queue: str) -> list[dict[str, Any]]:
        return [row for row in self._events(view).to_pylist() if row["queue"] == queue]


def _minute(row: dict[str, Any]) -> int:
    return int(row["minute"].timestamp() * 1e6) // MINUTE


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
