"""Reading through Flight, against reading the same files. Run: .venv/bin/python -m benches.flight [--quick]

A broker with 1 KB messages in its journal, and a client in a process of its own; the files are in memory. About 2 GB of
disk in the temporary folder, a tenth with ``--quick``. The last part is the rate of `penstock bench` with and without a
full scan beside it.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

import pyarrow.flight as fl

from benches.rows import BATCH, NOW, SIZE, payloads
from penstock.core.recovery.table import Table
from penstock.demo.broker import running_broker
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.log import FileLog
from penstock.server.engine.engine import Engine

READ = 2**20
ROUNDS = 5
#: Runs with and without a scan, one right after the other; the median of their ratios counts.
PAIRS = 5

METADATA = ["position", "namespace", "queue", "published_at", "priority"]


def write_journal(folder: str, messages: int) -> None:
    """Messages of 1 KB in one queue, none of them taken."""
    log = FileLog(RealDisk(folder), OwnerOptions(Durability.OS))
    engine = Engine(log, Table(), NOW)
    engine.broker.create_namespace("default", NOW)
    queue = engine.broker.create_queue("default", "q", NOW)
    engine.commit(NOW)
    bodies = payloads()
    for number in range(messages // BATCH):
        engine.broker.log.messages(NOW + number, queue.id, b"phpmq 127.0.0.1:40001", bodies, {})
        engine.commit(NOW + number)
    log.close()


@contextmanager
def broker(folder: str, *flags: str, http: str = "off") -> Iterator[dict[str, str]]:
    """The addresses of a broker on the folder."""
    listeners = [f"--{protocol}=127.0.0.1:0" for protocol in ("phpmq", "sspq", "flight")]
    listeners += ["--kokaq=127.0.0.1:0,create_queues=true", f"--http={http}"]
    environment = {"PENSTOCK_JOURNAL_RETENTION_SECONDS": "0"}  # the messages have old times
    with running_broker([f"--data={folder}", "--log-level=warning", *listeners, *flags], environment) as found:
        yield found.addresses


def just_read(folder: str) -> int:
    """Every byte once, into the same small piece of memory, which stays in the CPU's cache."""
    size = 0
    buffer = bytearray(READ)
    for path in sorted(Path(folder).glob("*.seg")):
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                size += got
    return size


def read_and_keep(folder: str) -> int:
    """Every byte once, into memory that keeps it, as a client of Flight has its table in the end."""
    return sum(map(len, [path.read_bytes() for path in sorted(Path(folder).glob("*.seg"))]))


def loopback(folder: str) -> int:
    """The same bytes through a plain socket: no server on this machine is faster than that."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = Thread(target=_send, args=(server, folder))
        sender.start()
        size, buffer = 0, bytearray(READ)
        with socket.create_connection(server.getsockname()) as client:
            while got := client.recv_into(buffer):
                size += got
        sender.join()
    return size


def _send(server: socket.socket, folder: str) -> None:
    with server.accept()[0] as client:
        for path in sorted(Path(folder).glob("*.seg")):
            with path.open("rb") as file:
                client.sendfile(file)


def scan(client: Any, **call: Any) -> int:
    """The rows of a read, each batch forgotten after it was counted."""
    return sum(chunk.data.num_rows for chunk in client.do_get(fl.Ticket(json.dumps(call).encode())))


def ratios(folder: str, address: str, messages: int) -> None:
    """Everything in turns, so that a noisy machine is noisy for all; each one's best round counts."""
    client = fl.connect(address)
    parts: dict[str, Callable[[], object]] = {
        "read(), kept": lambda: read_and_keep(folder),
        "read(), not kept": lambda: just_read(folder),
        "plain socket": lambda: loopback(folder),
        "Flight, kept as a table": lambda: client.do_get(fl.Ticket(b"{}")).read_all(),
        "Flight, not kept": lambda: scan(client),
        "Flight, without payload": lambda: scan(client, columns=METADATA),
        "Flight, events": lambda: scan(client, view="events"),
    }
    best = dict.fromkeys(parts, float("inf"))
    for _ in range(ROUNDS):
        for name, part in parts.items():
            began = perf_counter()
            part()
            best[name] = min(best[name], perf_counter() - began)
    client.close()
    size = just_read(folder)
    out = sys.stdout.write
    out(f"\nreading {messages:,} messages of {SIZE} B, {size / 1e6:,.0f} MB of files, in memory\n")
    out(f"{'':26}  MB/s of files  million rows/s  to read(), kept  to read()  to a socket\n")
    for name, seconds in best.items():
        shares = (best[each] / seconds for each in ("read(), kept", "read(), not kept", "plain socket"))
        columns = "".join(f"{share:{width}.2f}" for share, width in zip(shares, (17, 11, 13), strict=True))
        out(f"{name:26}  {size / seconds / 1e6:13,.0f}  {messages / seconds / 1e6:14.2f}{columns}\n")


def beside(address: str, urls: Sequence[str], seconds: float) -> None:
    """`penstock bench` with and without a reader that scans everything repeatedly, in turns."""
    sys.stdout.write(f"\nend to end, with a full scan beside it\n{'':10}  alone/s  with scan/s  ratio   aim\n")
    for url in urls:
        pairs: list[tuple[float, float]] = []
        for _ in range(PAIRS):
            alone = rate(url, seconds)
            with scanning(address):
                pairs.append((alone, rate(url, seconds)))
        alone, shared = (statistics.median(found) for found in zip(*pairs, strict=True))
        ratio = statistics.median(shared / alone for alone, shared in pairs)
        verdict = "met" if ratio >= 0.9 else "MISSED"
        protocol = url.partition("://")[0]
        sys.stdout.write(f"{protocol:10}  {alone:7,.0f}  {shared:11,.0f}  {ratio:5.2f}   0.9  {verdict}\n")
        sys.stdout.flush()


def rate(url: str, seconds: float) -> float:
    """Messages a second, from publishing to acknowledgement."""
    command = [sys.executable, "-m", "penstock", "bench", url, f"--duration={seconds}", "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    return float(json.loads(done.stdout)["messages_per_second"])


@contextmanager
def scanning(address: str) -> Iterator[None]:
    """A process that scans without end, with low priority: in production it would be another machine."""
    with subprocess.Popen(["nice", "-n", "19", sys.executable, "-c", _SCANNING, address]) as process:
        try:
            yield
        finally:
            process.kill()


_SCANNING = """
import sys
import pyarrow.flight as fl
from benches.flight import scan
client = fl.connect(sys.argv[1])
while True:
    scan(client)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.flight", description="Benches of the Flight endpoint.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    options = parser.parse_args()
    messages = 200_000 if options.quick else 2_000_000
    with tempfile.TemporaryDirectory() as folder:
        write_journal(folder, messages)
        with broker(folder) as addresses:
            ratios(folder, addresses["flight"], messages)
            urls = [f"{protocol}://{addresses[protocol]}/bench" for protocol in ("phpmq",)]
            urls += [f"sspq://{addresses['sspq']}", f"kokaq://{addresses['kokaq']}/default/bench"]
            beside(addresses["flight"], urls, 2 if options.quick else 5)


if __name__ == "__main__":
    main()
