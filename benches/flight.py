"""Reading through Flight, against reading the same files. Run: .venv/bin/python -m benches.flight [--quick]

A broker with 1 KB messages in its journal, and a client in a process of its own; the files are in memory. About 2 GB of
disk in the temporary folder, a tenth with ``--quick``. The last part is the rate of `penstock bench` with and without a
full scan beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow.flight as fl

from penstock.core.table import Table
from penstock.journal.disk import RealDisk
from penstock.journal.files import FileLog, FileLogOptions
from penstock.journal.log import Durability
from penstock.server.engine import Engine

NOW = 1_750_000_000_000_000
SIZE = 1024
#: Messages in a commit.
BATCH = 1000
READ = 2**20
ROUNDS = 5

METADATA = ["position", "namespace", "queue", "published_at", "priority"]


def write_journal(folder: str, messages: int) -> None:
    """Messages of 1 KB in one queue, none of them taken."""
    log = FileLog(RealDisk(folder), FileLogOptions(Durability.OS))
    engine = Engine(log, Table(), NOW)
    engine.broker.create_namespace("default", NOW)
    queue = engine.broker.create_queue("default", "q", NOW)
    engine.commit(NOW)
    payloads = [os.urandom(SIZE) for _ in range(BATCH)]
    for number in range(messages // BATCH):
        engine.broker.log.messages(NOW + number, queue.id, b"phpmq 127.0.0.1:40001", payloads, {})
        engine.commit(NOW + number)
    log.close()


@contextmanager
def broker(folder: str, *flags: str) -> Iterator[dict[str, str]]:
    """The addresses of a broker on the folder."""
    ready = Path(folder) / "ready.json"
    command = [sys.executable, "-m", "penstock", "serve", "--data", folder, "--ready-file", str(ready)]
    command += ["--phpmq=127.0.0.1:0", "--sspq=off", "--kokaq=off", "--flight=127.0.0.1:0", "--log-level=warning"]
    environment = os.environ | {"PENSTOCK_JOURNAL_RETENTION_SECONDS": "0"}  # these messages are of long ago
    with subprocess.Popen([*command, *flags], env=environment) as process:
        try:
            while not ready.exists():
                assert process.poll() is None
                time.sleep(0.05)
            listeners = json.loads(ready.read_text())["listeners"]
            yield {each["protocol"]: each["address"] for each in listeners}
        finally:
            process.terminate()


def just_read(folder: str) -> int:
    size = 0
    for path in sorted(Path(folder).glob("*.seg")):
        with path.open("rb", buffering=0) as file:
            while data := file.read(READ):
                size += len(data)
    return size


def scan(client: Any, **call: Any) -> tuple[int, int]:
    """Rows and bytes of a read."""
    rows = size = 0
    for chunk in client.do_get(fl.Ticket(json.dumps(call).encode())):
        rows += chunk.data.num_rows
        size += chunk.data.nbytes
    return rows, size


def ratios(folder: str, address: str, messages: int) -> None:
    client = fl.connect(address)
    parts: dict[str, Any] = {
        "read() of the files": lambda: just_read(folder),
        "Flight, messages": lambda: scan(client, view="messages"),
        "Flight, without payload": lambda: scan(client, view="messages", columns=METADATA),
        "Flight, events": lambda: scan(client, view="events"),
    }
    best = dict.fromkeys(parts, float("inf"))
    for _ in range(ROUNDS):
        for name, part in parts.items():
            began = perf_counter()
            part()
            best[name] = min(best[name], perf_counter() - began)
    size = just_read(folder)
    bare = best["read() of the files"]
    for name, seconds in best.items():
        rate = f"{size / seconds / 1e6:8,.0f} MB/s of files {messages / seconds / 1e6:8.2f} million rows/s"
        print(f"{name:28} {rate} {bare / seconds:8.2f}")
    client.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.flight", description="Benches of the Flight endpoint.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    options = parser.parse_args()
    messages = 200_000 if options.quick else 2_000_000
    with tempfile.TemporaryDirectory() as folder:
        write_journal(folder, messages)
        with broker(folder) as addresses:
            ratios(folder, addresses["flight"], messages)


if __name__ == "__main__":
    main()
