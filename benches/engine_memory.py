"""What waiting messages cost. Run: .venv/bin/python -m benches.engine memory

Each figure comes from a process of its own: its memory with the messages, less that of an empty broker in it before.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benches.measure import Figure
from penstock.core.properties import Properties
from penstock.core.recovery.table import Table
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.log import FileLog
from penstock.server.engine.engine import Engine

NOW = 1_750_000_000_000_000
SECOND = 1_000_000
BATCH = 500
#: The payload cache is apart from the aim; it is kept this small here.
CACHE = 2**20


def resident(field: str = "VmRSS") -> int:
    """Bytes of memory that this process has now, or (VmHWM) had at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def measure(kind: str, count: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        log = FileLog(RealDisk(folder), OwnerOptions(Durability.OS))
        engine = Engine(log, Table(), NOW, cache_bytes=CACHE)
        broker = engine.broker
        broker.create_namespace("default", NOW)
        queues = [broker.create_queue("default", f"q{n}", NOW) for n in range(count // 10 if kind == "queues" else 1)]
        connection = broker.connect(1, b"bench 1")
        payloads = [bytes(100)] * (10 if kind == "queues" else BATCH)
        broker.publish(connection, queues[0], payloads, NOW)
        engine.commit(NOW)
        before = resident()
        for number in range(count // len(payloads) - 1):
            now = NOW + number * 100
            queue = queues[(number + 1) % len(queues)]
            ttl = 3600 * SECOND if kind == "ttl" else 0
            broker.publish(
                connection, queue, payloads, now, Properties(ttl=ttl, priority=number % 8 if kind == "priority" else 0)
            )
            engine.commit(now)
        used = resident() - before
        assert sum(len(queue.ready) for queue in queues) == count
        log.close()
        return used


def in_process(kind: str, count: int) -> int:
    command = [sys.executable, "-c", "from benches.engine_memory import main; main()", kind, str(count)]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


def main() -> None:
    sys.stdout.write(str(measure(sys.argv[1], int(sys.argv[2]))))


def figures(scale: int) -> list[Figure]:
    found = []
    for kind, name, aim in (
        ("plain", "a waiting message", 24),
        ("ttl", "… with a time to live", 48),
        ("priority", "… with one of 8 priorities", 48),
    ):
        used = in_process(kind, scale)
        found.append(Figure(f"{name}, {scale:,} of them", used / scale, "bytes", aim, 1))
    few = scale // 100
    used = in_process("queues", few)
    found.append(Figure(f"… 10 in each of {few // 10:,} queues, the queue apart", used / few, "bytes", None, 1))
    return found
