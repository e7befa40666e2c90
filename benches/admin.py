"""The broker's rate while somebody watches it, against the same alone. Run: .venv/bin/python -m benches.admin [--quick]

A broker with its HTTP process, and `penstock bench` from end to end, in turns: alone, and with what an open console and
a Prometheus do: the stream of server-sent events, the page of queues every few seconds, and a scrape every 5 s. The
aim is 0.95.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

from benches.flight import broker, rate

AIM = 0.95
#: Seconds between two scrapes, and between two looks at the page of queues.
SCRAPE_EVERY = 5.0
PAGE_EVERY = 2.0


@contextmanager
def watched(address: str, token: str) -> Iterator[None]:
    """Somebody has the console open, and Prometheus scrapes."""
    over = Event()
    jobs = [
        Thread(target=_listen, args=(address, token, over)),
        Thread(target=_repeat, args=(address, token, "/metrics", SCRAPE_EVERY, over)),
        Thread(target=_repeat, args=(address, token, "/api/v1/queues?sort=ready&order=descending", PAGE_EVERY, over)),
    ]
    for job in jobs:
        job.start()
    try:
        yield
    finally:
        over.set()
        for job in jobs:
            job.join()


def _ask(address: str, token: str, path: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
    return connection


def _listen(address: str, token: str, over: Event) -> None:
    with closing(_ask(address, token, "/api/v1/stream?every=1")) as connection:
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        while not over.is_set() and answer.readline():
            pass


def _repeat(address: str, token: str, path: str, every: float, over: Event) -> None:
    while True:
        with closing(_ask(address, token, path)) as connection:
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            answer.read()
        if over.wait(every):
            return


def compare(urls: Sequence[str], address: str, token: str, seconds: float, pairs: int) -> None:
    """In turns, as a noisy machine is noisy for both; the median of the ratios counts."""
    sys.stdout.write(f"{'':10}  alone/s  watched/s  ratio   aim\n")
    for url in urls:
        found: list[tuple[float, float]] = []
        rate(url, 1)
        for _ in range(pairs):
            alone = rate(url, seconds)
            with watched(address, token):
                found.append((alone, rate(url, seconds)))
        alone, beside = (statistics.median(each) for each in zip(*found, strict=True))
        ratio = statistics.median(with_them / without for without, with_them in found)
        verdict = "met" if ratio >= AIM else "MISSED"
        protocol = url.partition("://")[0]
        sys.stdout.write(f"{protocol:10}  {alone:7,.0f}  {beside:9,.0f}  {ratio:5.2f}  {AIM}  {verdict}\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.admin", description="The broker while it is watched.")
    parser.add_argument("--quick", action="store_true", help="shorter and fewer runs")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "admin-token"
        data = f"{folder}/data"
        Path(data).mkdir()
        with broker(data, f"--admin-token-file={file}", http="127.0.0.1:0") as addresses:
            token = file.read_text().strip()
            urls = [f"phpmq://{addresses['phpmq']}/bench", f"sspq://{addresses['sspq']}"]
            urls.append(f"kokaq://{addresses['kokaq']}/default/bench")
            compare(urls, addresses["http"], token, 3 if quick else 12, 3 if quick else 7)


if __name__ == "__main__":
    main()
