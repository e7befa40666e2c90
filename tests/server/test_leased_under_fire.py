"""Brokers are killed under a writer and a reader that retry until done: everything is written once and read once.

``KILL_ROUNDS=100`` for many rounds. The writer repeats unconfirmed chunks; the reader stores the position up to
which it has everything, like Spark's checkpoint, and continues from there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from penstock.core.policy import SECOND
from penstock.flight import flight_requests as requests
from penstock.flight.calls import Written
from penstock.journal.files.follower import JournalReader
from penstock.journal.views import arrow
from support.brokers import PATIENCE, BrokerProcess
from support.privatesocket import Helper, lease, write

ROUNDS = int(os.environ.get("KILL_ROUNDS", "3"))
TABLES = '[journal]\nsegment_bytes = 200000\n[queues."default/a"]\n[queues."default/b"]\n'
OFF: dict[str, Any] = {"phpmq": "off", "sspq": "off", "kokaq": "off"}
QUEUES = ["default/a", "default/b"]

T = TypeVar("T")


def persist(broker: BrokerProcess, what: Callable[[Helper], T]) -> T:
    """Retry on new connections until there is an answer: the broker may be away, or die before it answers."""
    deadline = time.monotonic() + 4 * PATIENCE
    while True:
        helper = None
        try:
            helper = Helper(broker.private_socket)
            return what(helper)
        except (OSError, EOFError):
            assert time.monotonic() < deadline, "the broker did not come back"
            time.sleep(0.005)
        finally:
            if helper is not None:
                helper.close()


class Writer(threading.Thread):
    """Sends chunks in several partitions, one epoch after the other."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        super().__init__()
        self.broker = broker
        self.random = Random(seed)
        self.sent: list[bytes] = []
        #: Set when the kills are over.
        self.enough = threading.Event()

    def run(self) -> None:
        for number in takewhile(lambda _: not self.enough.is_set(), count()):
            epoch, rest = divmod(number, 8)
            chunk, partition = divmod(rest, 2)
            payloads = [b"%d/%d" % (number, row) for row in range(self.random.randrange(1, 200))]
            which = b"".join(self.random.randrange(2).to_bytes(4, "little") for _ in payloads)
            request = write(payloads, chunk, epoch=epoch, partition=partition, queues=QUEUES, queue=which)
            done = persist(self.broker, partial(Helper.ask, request=request, kind=Written))
            assert done.rows == len(payloads)
            self.sent += payloads


class Reader(threading.Thread):
    """Leases and settles. Now and then it forgets its answers, like a driver that was killed."""

    def __init__(self, broker: BrokerProcess, seed: int, writer: Writer) -> None:
        super().__init__()
        self.broker = broker
        self.random = Random(seed)
        self.writer = writer
        self.instance = 0
        self.start_at = 0
        self.rows: list[int] = []

    def lease(self) -> requests.Leased:
        request = lease(
            self.start_at, instance=str(self.instance), queues=QUEUES, max_rows=self.random.choice((50, 300, 0)),
            timeout=3600 * SECOND,
        )  # fmt: skip
        return persist(self.broker, lambda helper: helper.ask(request, requests.Leased))

    def rows_of(self, leased: requests.Leased) -> list[int]:
        return persist(self.broker, lambda helper: helper.rows(leased))

    def run(self) -> None:
        while True:
            last = not self.writer.is_alive()
            leased = self.lease()
            rows = self.rows_of(leased)
            if rows and self.random.random() < 0.3:
                self.instance += 1
                again = self.lease()
                assert (again, self.rows_of(again)) == (leased, rows)
            assert len(rows) == leased.rows
            self.rows += rows
            self.start_at = leased.stop
            if last and not rows:
                return


def test_written_once_and_leased_once(tmp_path: Path) -> None:
    random = Random(1)
    for number in range(max(1, ROUNDS // 3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with BrokerProcess(folder, TABLES, **OFF) as broker:
            writer = Writer(broker, number)
            reader = Reader(broker, number, writer)
            for each in (writer, reader):
                each.start()
            for _ in range(3):
                time.sleep(random.random() * 0.4)
                broker.kill()
                broker.start()
            writer.enough.set()
            for each in (writer, reader):
                each.join(8 * PATIENCE)
                assert not each.is_alive()
            assert broker.stop() == 0
        journal = JournalReader(broker.data)
        rows = [row for batch in arrow.read(journal, "messages", 1) for row in batch.to_pylist()]
        assert sorted(row["payload"] for row in rows) == sorted(writer.sent)
        assert sorted(reader.rows) == [row["position"] for row in rows]
        events = [row for batch in arrow.read(journal, "events", 1) for row in batch.to_pylist()]
        assert sum(row["count"] for row in events if row["kind"] == "written") == len(rows)
        assert sum(row["count"] for row in events if row["kind"] == "leased") == len(rows)
        assert {row["protocol"] for row in events if row["kind"] == "acknowledged"} == {"flight"}
        assert {row["peer"] for row in events if row["kind"] in ("leased", "lease_ended")} == {"lake"}
