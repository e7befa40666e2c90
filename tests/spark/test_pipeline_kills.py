"""``archive`` and ``replay`` killed with SIGKILL at random moments, the broker too: every message once.

Three kills in the normal run. ``PIPELINE_KILLS=100`` for many: half as many again for ``replay``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pytest

from penstock.client import ClientError
from penstock.journal import arrow
from penstock.journal.following import JournalReader
from support.commands import COMMAND, environment
from support.sparks import PYTHON_PATH, SparkBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLS = int(os.environ.get("PIPELINE_KILLS", "2"))
#: What a pipeline needs to start, on a machine that has much else to do.
PATIENCE = 120.0


class Driver:
    """A pipeline in processes of its own: Python's and Java's."""

    def __init__(self, log: Path, *arguments: object) -> None:
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*COMMAND, "pipeline", *map(str, arguments), "--master", "local[2]", "--json"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env=environment(PYTHONPATH=PYTHON_PATH),
            )  # fmt: skip
        self._log = log

    def kill(self) -> None:
        """All of it, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def finish(self) -> None:
        """Wait for its end, which must be a good one."""
        try:
            assert self.process.wait(PATIENCE) == 0, self._log.read_text()
        finally:
            if self.process.returncode is None:
                self.kill()


@contextmanager
def publishing(broker: SparkBroker, pause: float) -> Iterator[None]:
    """Messages flow. While the broker is away, nothing does; what is not confirmed may be there or not."""
    ended = threading.Event()

    def publish() -> None:
        number = 0
        while not ended.wait(pause):
            try:
                broker.publish("flow", *[b"%d" % (number + at) for at in range(50)])
            except (ClientError, OSError):
                continue
            number += 50

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def wait_until(what: Callable[[], Any], driver: Driver) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert driver.process.poll() is None, "the pipeline ended by itself"
        assert time.monotonic() < deadline, "the pipeline did nothing"
        time.sleep(0.01)


def changes(path: Path) -> Callable[[], bool]:
    """Whether a file is another one than now."""

    def stamp() -> int:
        return path.stat().st_mtime_ns if path.exists() else 0

    before = stamp()
    return lambda: stamp() != before


def published(broker: SparkBroker, queue: str) -> list[int]:
    reader = JournalReader(str(broker.folder / "data"))
    names = ["position", "queue"]
    rows = [
        row for batch in arrow.read(reader, "messages", reader.earliest, columns=names) for row in batch.to_pylist()
    ]
    return [row["position"] for row in rows if row["queue"] == queue]


def archived(lake: Path) -> list[int]:
    """Positions, on which DuckDB and pandas agree."""
    found = duckdb.connect().execute(f"select position from '{lake}/messages/**/*.parquet'").fetchall()
    files = [pd.read_parquet(file, columns=["position"]) for file in (lake / "messages").rglob("*.parquet")]
    positions = sorted(position for (position,) in found)
    assert sorted(position for file in files for position in file["position"]) == positions
    return positions


@pytest.mark.timeout(600 + 120 * KILLS)
def test_archive_and_replay_killed_again_and_again(new_broker: Callable[..., SparkBroker], tmp_path: Path) -> None:
    rng = random.Random(2026)
    broker, lake, log = new_broker(), tmp_path / "lake", tmp_path / "log"
    broker.publish("flow", b"first")
    archive = ["archive", "--lake", lake, "--queue", "default/flow"]
    with publishing(broker, 0.1):
        for number in range(KILLS):
            driver = Driver(log, *archive, "--every", 0, "--endpoint", broker.endpoint)
            wait_until(changes(lake / "_penstock" / "archive-messages" / "ledger.json"), driver)
            time.sleep(rng.uniform(0, 1.5))
            if number % 2:
                broker.kill()
                time.sleep(rng.uniform(0, 0.5))
                driver.kill()
                broker.start()
            else:
                driver.kill()
    Driver(log, *archive, "--once", "--endpoint", broker.endpoint).finish()
    positions = published(broker, "flow")
    assert len(positions) > 50 * KILLS
    assert archived(lake) == positions
    _replay(broker, lake, log, rng, len(positions))


def _replay(broker: SparkBroker, lake: Path, log: Path, rng: random.Random, count: int) -> None:
    command = ["replay", "--lake", lake, "--to", "default/again", "--create", "--rate", max(20, count / 8 / KILLS)]
    for number in range(max(1, KILLS // 2)):
        driver = Driver(log, *command, "--endpoint", broker.endpoint)
        wait_until(changes(lake / "_penstock" / "replay-replay" / "state.json"), driver)
        time.sleep(rng.uniform(0, 1))
        if number % 2 == 0:
            broker.kill()
            broker.start()
            time.sleep(rng.uniform(0, 1))
        driver.kill()
    Driver(log, *command, "--endpoint", broker.endpoint).finish()
    assert len(published(broker, "again")) == count
    assert sorted(map(int, filter(bytes.isdigit, _payloads(broker, "again")))) == sorted(
        map(int, filter(bytes.isdigit, _payloads(broker, "flow")))
    )


def _payloads(broker: SparkBroker, queue: str) -> list[bytes]:
    reader = JournalReader(str(broker.folder / "data"))
    rows = [row for batch in arrow.read(reader, "messages", reader.earliest) for row in batch.to_pylist()]
    return [row["payload"] for row in rows if row["queue"] == queue]
