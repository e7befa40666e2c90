"""The journal in PostgreSQL beside local files, on one machine, in turns. Run: .venv/bin/python -m benches.postgresql

Two brokers, one on a folder and one on a database of a PostgreSQL that is started for it, with synchronous commits and
without a standby. Each case runs on both in turns, so that a noisy machine is noisy for both, and each one's best round
counts. Processes: the load generator, both brokers (of which one is idle) and PostgreSQL, so two cores are the least.

``--only publish`` runs the cases with that word, ``--rounds 5`` more rounds, ``--synchronous`` adds a standby.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.bench.load import load_of
from penstock.bench.run import BenchPlan, measure, prepare
from penstock.bench.worker import CONSUME, FIRST_WORKER, NOT_READY, WorkerJob, consume
from penstock.client import connect
from penstock.client.urls import parse
from penstock.demo.broker import BrokerProcess
from penstock.demo.postgresql import Pair, Server

#: Messages that wait, for draining and for recovery.
WAITING = 100_000
#: Seconds after which the lease of a broker that was killed has run out.
LEASE = 4.0


class Broker:
    """A broker process on a journal, which can be killed and started again."""

    def __init__(self, name: str, folder: Path, *options: str) -> None:
        self.name = name
        self._flags = [*options, "--phpmq=127.0.0.1:0", "--kokaq=127.0.0.1:0", "--sspq=off", f"--data={folder}/data"]
        self._flags += ["--log-level=warning", "--flight=off", "--http=off"]
        self._process: BrokerProcess | None = None

    def start(self) -> float:
        """Start it. Returns the seconds until it serves."""
        began = time.perf_counter()
        self._process = BrokerProcess(self._flags)
        self._process.wait()
        return time.perf_counter() - began

    def url(self, protocol: str, path: str) -> str:
        assert self._process is not None
        return f"{protocol}://{self._process.addresses[protocol]}/{path}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.stop()


class Case(NamedTuple):
    """What is measured; more is better, or less. ``aim`` is that of the ratio, PostgreSQL to files."""

    name: str
    unit: str
    run: Callable[[Broker], float]
    more: bool
    aim: float | None = None


def rate(broker: Broker, protocol: str, size: int, seconds: float, consumers: int) -> float:
    """Messages a second."""
    return float(_measured(broker, protocol, size, seconds, consumers, one_at_a_time=False).rate)


def confirmation(broker: Broker, seconds: float) -> float:
    """The median of the wait for a confirmation, one message at a time, in milliseconds."""
    found = _measured(broker, "kokaq", 100, seconds, 0, one_at_a_time=True)
    return float(np.percentile(found.confirms, 50)) / 1e6


def _measured(
    broker: Broker, protocol: str, size: int, seconds: float, consumers: int, *, one_at_a_time: bool
) -> Any:  # fmt: skip
    load = load_of(protocol)
    plan = BenchPlan(
        url=broker.url(protocol, "bench" if protocol == "phpmq" else "default/bench"), size=size, producers=1,
        consumers=consumers, window=load.window(1), in_flight=load.in_flight, processes=1, seconds=seconds, count=None,
        rate=None, one_at_a_time=one_at_a_time,
    )  # fmt: skip
    address, options = asyncio.run(prepare(plan))
    return measure(plan, address, options)


def drain(broker: Broker) -> float:
    """Messages a second that a consumer takes of a backlog of 1 KB messages."""
    fill(broker, "drain")
    context = get_context("spawn")
    board: Any = context.RawArray("q", FIRST_WORKER + 1)
    board[FIRST_WORKER], board[CONSUME] = NOT_READY, 1
    (address,), options = parse(broker.url("phpmq", "drain"))
    window = load_of("phpmq").window(1)
    job = WorkerJob(address=address, tls=options.tls, place=FIRST_WORKER, connections=1, window=window)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=consume, args=(job, board, theirs), daemon=True)
    process.start()
    while board[FIRST_WORKER] < 1:
        time.sleep(0.0005)
    began, first = time.perf_counter(), board[FIRST_WORKER]
    while board[FIRST_WORKER] < WAITING:
        time.sleep(0.0005)
    took = time.perf_counter() - began
    board[CONSUME] = 0
    ours.recv()
    process.join()
    return float((WAITING - first) / took)


def recovery(broker: Broker) -> float:
    """Seconds from the start of a broker that was killed until it serves, with messages waiting."""
    fill(broker, "kept")
    broker.kill()
    time.sleep(LEASE)
    return broker.start()


def fill(broker: Broker, queue: str) -> None:
    """Leave messages waiting: all of them are in the queue."""
    with connect(broker.url("phpmq", queue)) as client:
        client.publish_many(bytes(1000) for _ in range(WAITING))
    with connect(broker.url("kokaq", "default/settled")) as client:
        client.create_queue(exist_ok=True)
        while (client.queue_info(f"default/{queue}").depth or 0) < WAITING:
            time.sleep(0.01)


def cases(seconds: float) -> list[Case]:
    """All of them. The quiet one comes first: a database goes on writing after much was written. Kills come last."""
    return [
        Case("one at a time, p50", "ms", lambda broker: confirmation(broker, seconds), False, 2.0),
        Case("publish 100 B, Kokaq", "messages/s", lambda broker: rate(broker, "kokaq", 100, seconds, 0), True),
        Case("publish 1 KB, Kokaq", "messages/s", lambda broker: rate(broker, "kokaq", 1000, seconds, 0), True),
        Case("end to end 100 B, PHPMQ", "messages/s", lambda broker: rate(broker, "phpmq", 100, seconds, 1), True, 0.6),
        Case("end to end 1 KB, PHPMQ", "messages/s", lambda broker: rate(broker, "phpmq", 1000, seconds, 1), True, 0.4),
        Case(f"drain {WAITING:,} of 1 KB", "messages/s", drain, True),
        Case(f"recovery, {WAITING:,} more waiting", "s", recovery, False),
    ]


@contextmanager
def database(*, synchronous: bool) -> Iterator[str]:
    """The URL of an empty database of a server of its own."""
    folder = Path(tempfile.mkdtemp(prefix="pnpg", dir="/tmp"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        made: Server | Pair = Pair(folder / "pair") if synchronous else Server(folder / "server")
        stack.callback(made.remove)
        if isinstance(made, Server):
            made.create()
        made.start()
        primary = made if isinstance(made, Server) else made.primary
        primary.execute("create database bench")
        yield primary.url("bench")


def compare(case: Case, brokers: tuple[Broker, Broker], rounds: int) -> None:
    """Run a case on both in turns, and print the best round of each with their ratio."""
    found: list[list[float]] = [[], []]
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            found[which].append(case.run(brokers[which]))
    files, postgresql = (max(each) if case.more else min(each) for each in found)
    ratio = postgresql / files
    met = case.aim is None or (ratio >= case.aim if case.more else ratio <= case.aim)
    aim = "" if case.aim is None else f"{case.aim:4.1f} {'met' if met else 'MISSED'}"
    sys.stdout.write(f"{case.name:32} {files:12,.3f} {postgresql:12,.3f} {case.unit:10} {ratio:6.2f}  {aim}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--synchronous", action="store_true", help="with a synchronous standby")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, ExitStack() as stack:
        url = stack.enter_context(database(synchronous=given.synchronous))
        brokers = (
            Broker("files", Path(folder, "files")),
            Broker("postgresql", Path(folder, "postgresql"), f"--journal={url}"),
        )
        for broker in brokers:
            Path(folder, broker.name).mkdir()
            stack.callback(broker.kill)
            broker.start()
        sys.stdout.write(f"{'':32} {'files':>12} {'postgresql':>12} {'':10} {'ratio':>6}  aim\n")
        for case in cases(given.seconds):
            if given.only in case.name:
                compare(case, brokers, given.rounds)


if __name__ == "__main__":
    main()
