"""A broker whose journal is in PostgreSQL: all readers work as with a folder, and the password stays secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.demo.postgresql import Server
from penstock.flight.calls import Shared
from penstock.flight.machine import machine
from penstock.journal import open_journal
from penstock.journal.backup import restore_backup
from penstock.journal.shared_extents import SharedExtentReader
from penstock.journal.views import arrow
from support.brokers import FREE
from support.commands import penstock_here
from support.databasebackup import dump, put_back
from support.flights import Flight, problem
from support.postgres import fresh_schema
from support.web import Api, WebBroker, eventually

#: Small, so that there are several segments.
SEGMENT = 4096
PAYLOADS = [f"order {number:03} {500 * 'x'}" for number in range(60)]


class Running:
    """A broker, and the URL of its journal."""

    def __init__(self, broker: WebBroker, url: str) -> None:
        self.broker = broker
        self.url = url

    @property
    def api(self) -> Api:
        return self.broker.api

    def flight(self) -> Flight:
        return Flight(self.broker.addresses["flight"])


@pytest.fixture(scope="module")
def running(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    url = fresh_schema(postgres)
    journal = {"url": url, "segment_bytes": SEGMENT}
    with WebBroker(
        tmp_path_factory.mktemp("broker"), flight=FREE, journal=journal, queues={"default/orders": {}}
    ) as broker:
        eventually(lambda: json.loads(broker.ready.read_text()).get("role") == "serving")
        broker.wait_until_ready()
        for at in range(0, len(PAYLOADS), 4):
            broker.api.publish("default/orders", *PAYLOADS[at : at + 4])
        yield Running(broker, url)


def test_flight_returns_history_and_waiting_messages(running: Running) -> None:
    with running.flight() as flight:
        rows = flight.rows(pattern="default/orders")
        assert [row["payload"].decode() for row in rows] == PAYLOADS
        live = flight.rows(view="live", pattern="default/orders")
        assert sorted(row["payload"].decode() for row in live) == PAYLOADS


def test_readers_of_positions_lost_in_a_restore_learn_them_exactly(postgres: Server, tmp_path: Path) -> None:
    url = fresh_schema(postgres)
    given: dict[str, Any] = {"flight": FREE, "journal": {"url": url}, "queues": {"default/orders": {}}}
    with WebBroker(tmp_path, **given) as broker:
        eventually(lambda: json.loads(broker.ready.read_text()).get("role") == "serving")
        broker.wait_until_ready()
        broker.api.publish("default/orders", "kept")
        broker.stop()
        backup = dump(url)
        broker.begin()
        eventually(lambda: broker.ready.exists() and json.loads(broker.ready.read_text()).get("role") == "serving")
        broker.wait_until_ready()
        broker.api.publish("default/orders", *(f"lost {number}" for number in range(50)))
        with Flight(broker.addresses["flight"]) as flight:
            position = flight.act("status")["latest"]
        broker.stop()
        put_back(url, backup)
        kept = open_journal(url).follow().latest
        assert penstock_here("journal", "accept-loss", "--yes", url).code == 0
        broker.begin()
        eventually(lambda: broker.ready.exists() and json.loads(broker.ready.read_text()).get("role") == "serving")
        broker.wait_until_ready()
        broker.api.publish("default/orders", *(f"new {number}" for number in range(100)))
        with Flight(broker.addresses["flight"]) as flight:
            raised = problem(lambda: flight.read(start=position, pattern="default/orders"))
            assert raised.code == "data-loss"
            assert f"positions {kept} to {position - 1} are lost" in raised.text
            assert raised.lost is not None
            assert [row["payload"] for row in flight.rows(start=raised.lost[1], pattern="default/orders")] == [
                b"new %d" % number for number in range(100)
            ]
            lag = flight.act("progress", reader="lake", view="messages", pattern="default/orders", position=position)
            assert (lag["rows"], lag["lost_from"]) == (100, kept)
        token = f"--token-file={broker.folder / 'admin-token'}"
        listed = penstock_here("readers", "list", f"--url={broker.addresses['http']}", token)
        assert f"{kept} to {position - 1}" in listed.out


def test_a_process_on_this_machine_maps_the_copies(running: Running) -> None:
    with running.flight() as flight:
        answer = flight.act("share", pattern="default/o*", machine=machine())
    shared = msgspec.json.decode(json.dumps(answer), type=Shared)
    assert len(shared.extents) > 3
    reader = SharedExtentReader(int(shared.identity, 16), shared.extents)
    batches = arrow.read(reader, "messages", 1, queues=lambda name: True, columns=["payload"])
    assert [text.decode() for batch in batches for text in batch["payload"].to_pylist()] == PAYLOADS
    assert postgres_password(running.url) not in json.dumps(answer)


def test_sql_reads_it(running: Running) -> None:
    answer = running.api.do("POST", "sql", {"query": "select count(*) as n from messages where queue = 'orders'"})
    assert answer["rows"] == [[len(PAYLOADS)]]


def test_the_api_reports_it(running: Running) -> None:
    journal = running.api.get("journal")
    assert (journal["kind"], journal["folder"]) == ("database", "")
    segments = running.api.get("journal/segments")["items"]
    assert len(segments) == journal["segments"] > 3
    assert journal["bytes"] == sum(each["bytes"] for each in segments)
    assert running.api.get("queues/default/orders")["ready"] == len(PAYLOADS)


def test_a_broker_can_start_on_a_backup(running: Running, tmp_path: Path) -> None:
    made = running.api.job(running.api.do("POST", "backups", {"name": "one"}))
    restore_backup(made["detail"], str(tmp_path / "data"))
    restored = open_journal(str(tmp_path / "data"))
    assert restored.tools().verify(lambda size: None).startable
    reader, there = restored.follow(), open_journal(running.url).follow()
    stop = min(reader.latest, there.latest)
    old, new = (list(each.read(1, stop)) for each in (there, reader))
    assert [bytes(found.block.view) for found in old] == [bytes(found.block.view) for found in new]
    there.close()


def test_the_commands_read_it(running: Running) -> None:
    info = penstock_here("journal", "info", "--json", running.url).json[0]
    assert {"number", "queue", "published"} <= set(info["queues"][0])
    dumped = penstock_here("journal", "dump", "--json", "--kind", "published", running.url).json
    assert len(dumped) == len(PAYLOADS)
    verdict = penstock_here("journal", "verify", running.url)
    assert (verdict.code, "is sound" in verdict.out) == (0, True)
    assert penstock_here("journal", "init", running.url).out.endswith("has a journal: nothing was changed.\n")
    refused = penstock_here("journal", "repair", "--yes", running.url)
    assert (refused.code, "is not repaired here" in refused.err) == (3, True)
    copied = penstock_here("journal", "copy", running.url, "/tmp/nowhere-at-all")
    assert (copied.code, "is in use by another broker" in copied.err) == (3, True)
    assert postgres_password(running.url) not in verdict.out + refused.err + copied.err


def test_the_password_stays_secret(running: Running) -> None:
    secret = postgres_password(running.url)
    texts = [
        running.broker.log.read_text(),
        json.dumps(running.api.get("journal")),
        json.dumps(running.api.get("overview")),
    ]
    texts += [
        each.read_bytes().decode() for each in Path("/proc").glob("[0-9]*/cmdline") if is_of_broker(each, running)
    ]
    assert len(texts) > 4
    assert all(secret not in each for each in texts)


def postgres_password(url: str) -> str:
    return url.partition("@")[0].rpartition(":")[2]


def is_of_broker(path: Path, running: Running) -> bool:
    """Whether a process is the broker or one that it started."""
    try:
        group = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return False
    return str(running.broker.pid) in (path.parent.name, group)
