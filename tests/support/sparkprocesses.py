"""Spark's own servers as processes: a standalone cluster, and Spark Connect, both from the installed package."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from support.sparks import PYTHON_PATH

#: Seconds for a JVM to start on a busy machine, and for a script to finish.
PATIENCE = 240.0


def environment(folder: Path) -> dict[str, str]:
    """An environment in which Spark writes only to the folder."""
    import pyspark

    from penstock.spark.session import prepare

    variables = dict(os.environ)
    prepare(variables)
    places = {"SPARK_LOCAL_DIRS": "local", "SPARK_WORKER_DIR": "work", "SPARK_LOG_DIR": "logs", "SPARK_PID_DIR": "pids"}
    variables |= {name: str(folder / place) for name, place in places.items()}
    home = str(Path(pyspark.__file__).parent)
    return variables | {"PYTHONPATH": PYTHON_PATH, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def process(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``spark-class`` with these arguments, and end it with all its children."""
    env = environment(folder)
    command = [f"{env['SPARK_HOME']}/bin/spark-class", *arguments]
    with (folder / f"{name}.log").open("wb") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=folder, start_new_session=True)
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):  # the test may have killed it
            os.killpg(started.pid, signal.SIGKILL)
        started.wait(20)


def wait_for_log(folder: Path, name: str, pattern: str, started: subprocess.Popen[bytes]) -> re.Match[str]:
    """Wait for a line in a process's log."""
    deadline = time.monotonic() + PATIENCE
    while True:
        text = (folder / f"{name}.log").read_text(errors="replace")
        match = re.search(pattern, text)
        if match:
            return match
        assert started.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.05)


class Cluster:
    """A standalone cluster on this machine, whose workers can be killed."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.address = ""
        self._stack = ExitStack()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._wanted = workers
        self._started = 0

    def __enter__(self) -> Self:
        with self._stack:
            what = ("org.apache.spark.deploy.master.Master", *_PLACE)
            master = self._stack.enter_context(process(self.folder, "master", *what))
            self.address = wait_for_log(self.folder, "master", r"Starting Spark master at (spark://\S+)", master)[1]
            self._workers = [self._worker() for _ in range(self._wanted)]
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def sessions(self) -> list[int]:
        """The process sessions of its workers, which include executors and their Python workers."""
        return [worker.pid for worker in self._workers]

    def kill_worker(self, number: int) -> None:
        """Kill a worker's own process. Its executors notice, and a new worker replaces it."""
        self._workers[number].kill()
        self._workers[number].wait(20)
        self._workers[number] = self._worker()

    def _worker(self) -> subprocess.Popen[bytes]:
        name = f"worker{self._started}"
        self._started += 1
        what = ("org.apache.spark.deploy.worker.Worker", "-c", "1", "-m", "1100m", "-d", str(self.folder / "work"))
        started = self._stack.enter_context(process(self.folder, name, *what, *_PLACE, self.address))
        wait_for_log(self.folder, name, "Successfully registered with master", started)
        return started


_PLACE = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Run a standalone cluster. Yields the address of its master."""
    with Cluster(folder, workers) as started:
        yield started.address


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a Spark Connect server on this machine. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
    }
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    what = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *options, "spark-internal")
    with process(folder, "connect", "org.apache.spark.deploy.SparkSubmit", *what) as server:
        wait_for_log(folder, "connect", "Spark Connect server started", server)
        yield f"sc://127.0.0.1:{port}"


def run(folder: Path, module: str, *arguments: str) -> dict[str, Any]:
    """Run a script whose last line is JSON, in its own process, because Spark allows one session per process."""
    command = [sys.executable, "-m", module, *arguments]
    with (folder / "script.log").open("wb") as log:
        env = environment(folder)
        script = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env, start_new_session=True)
    try:
        out, _ = script.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
    assert script.returncode == 0, (folder / "script.log").read_text(errors="replace")[-5000:]
    result: dict[str, Any] = json.loads(out.decode().splitlines()[-1])
    return result
