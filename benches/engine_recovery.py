"""Bytes on disk, and how long a start takes. Run: .venv/bin/python -m benches.engine recovery"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from zlib import crc32

from benches.engine_memory import resident
from benches.measure import Figure
from penstock.core.broker import Broker
from penstock.core.recovery.table import Table
from penstock.journal import open_journal
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.log import FileLog
from penstock.schema import Kind
from penstock.server.engine.engine import Engine
from penstock.server.process.opening import open_engine

NOW = 1_750_000_000_000_000
PAYLOAD = bytes(range(100))
#: Messages in a big commit.
BIG = 1_000
READ = 2**20


def write_journal(folder: str, messages: int, batch: int, acknowledged: float = 1.0) -> None:
    """Messages, ``batch`` in a commit, and the acknowledgement of most of them a little later."""
    log = FileLog(RealDisk(folder), OwnerOptions(Durability.OS))
    engine = Engine(log, Table(), NOW)
    broker = engine.broker
    broker.create_namespace("default", NOW)
    queue = broker.create_queue("default", "q", NOW)
    engine.commit(NOW)
    waiting: list[int] = []
    for number in range(messages // batch):
        now = NOW + number * 100
        waiting.append(broker.log.messages(now, queue.id, b"phpmq 127.0.0.1:40001", [PAYLOAD] * batch, {}))
        if batch == 1:
            engine.commit(now)
        if len(waiting) > 1 and number % 100 < 100 * acknowledged:
            acknowledge(broker, queue.id, waiting.pop(0), batch, now)
        engine.commit(now)
    log._close_files()  # a stop that was not clean: the start has to look at everything


def acknowledge(broker: Broker, queue: int, first: int, count: int, now: int) -> None:
    """As ``Broker.acknowledge`` writes it down, without the cost of having given the messages out."""
    times = range(now - 5000, now - 5000 + count)
    columns = {
        "message": array("Q", range(first, first + count)),
        "deliveries": array("I", (1,)) * count,
        "delivered_at": array("q", times),
    }
    broker.log.others(Kind.ACKNOWLEDGED, now, queue, b"phpmq 127.0.0.1:40002", count, dict(columns))


def segments(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*.seg"))


def just_read(folder: str) -> None:
    for path in segments(folder):
        with path.open("rb") as file:
            crc = 0
            while data := file.read(READ):
                crc = crc32(data, crc)


def start(folder: str) -> None:
    opened = open_engine(open_journal(str(folder)).own(), NOW)
    opened.engine.log.close()


def best(function: Callable[[str], object], folder: str, rounds: int) -> float:
    """Seconds of CPU: the files are in memory, and a busy machine does not matter."""
    times = []
    for _ in range(rounds):
        began = process_time()
        function(folder)
        times.append(process_time() - began)
    return min(times)


def peak(folder: str) -> int:
    """The most memory that a start takes, beyond what its program takes anyway: in a process of its own."""
    command = [sys.executable, "-c", "from benches.engine_recovery import main; main()", folder]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


def main() -> None:
    before = resident("VmHWM")
    start(sys.argv[1])
    sys.stdout.write(str(resident("VmHWM") - before))


def journal(name: str, messages: int, batch: int, acknowledged: float, aim: float | None) -> list[Figure]:
    """The figures of one journal: reading it, starting on it, and starting again with a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        write_journal(folder, messages, batch, acknowledged)
        first = best(start, folder, 1)  # this one looks at every block of the last segment twice
        size = sum(path.stat().st_size for path in segments(folder))
        bare, ours = best(just_read, folder, 3), min(first, best(start, folder, 2))
        found = [
            Figure(f"start on {name}, to reading and CRC alone", ours / bare, "times", aim, 1),
            Figure("  … events", messages * (1 + acknowledged) / ours / 1e6, "million/s", digits=2),
            Figure("  … most memory", peak(folder) / 2**20, "MiB"),
        ]
        if acknowledged == 1:
            many = "big" if batch == BIG else "one-message"
            limit = 150 if batch == BIG else 400
            found.append(Figure(f"  … a message and its end, {many} commits", size / messages, "bytes on disk", limit))
        else:
            found += checkpoint(folder)
        return found


def checkpoint(folder: str) -> list[Figure]:
    """Writing one, and a start from it."""
    opened = open_engine(open_journal(str(folder)).own(), NOW)
    began = perf_counter()
    table = opened.upkeep.checkpoint(NOW)
    written = perf_counter() - began
    opened.engine.log.close()
    size = max(path.stat().st_size for path in Path(folder).glob("*.ckpt"))
    again = best(start, folder, 2)
    return [
        Figure(f"checkpoint of {len(table):,} messages, whole journal read", written, "s", digits=2),
        Figure("  … size, a message", size / max(len(table), 1), "bytes on disk", digits=1),
        Figure("  … start from it", again, "s", digits=2),
    ]


def figures(scale: int) -> list[Figure]:
    half = scale // 2
    return [
        *journal(f"{scale:,} events", half, BIG, 1.0, 5),
        *journal(f"{scale:,} waiting messages", scale * 10 // 9, BIG, 0.1, 5),  # a tenth was acknowledged
        *journal(f"{scale // 50:,} one-message commits", scale // 100, 1, 1.0, None),
    ]
