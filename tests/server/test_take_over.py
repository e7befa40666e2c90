"""Brokers on one journal in a real PostgreSQL: one serves, the others stand by and take over."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.client import connect
from penstock.demo.postgresql import Server
from support.brokers import FREE, BrokerProcess, wait_for
from support.commands import penstock, penstock_here
from support.databaseproxy import database_proxy
from support.postgres import fresh_schema, running_pair
from support.raw import PUSH, consume, kokaq

#: Seconds; short, so that tests do not wait long.
LEASE = 1.0
FENCED = "the journal is lost to this broker, which stands by from now on"
#: The first bytes of the answer to a push.
PUSHED = bytes.fromhex("04200100")
HELD = "the lease on the journal has run out: nothing is handed out until it is renewed"


class Broker(BrokerProcess):
    """A broker that shares its journal."""

    def ready_file(self) -> dict[str, Any]:
        """The contents of the ready file."""
        state: dict[str, Any] = json.loads(self.ready.read_text())
        return state

    def wait_for_role(self, role: str) -> None:
        """Wait until the ready file shows this role."""
        wait_for(lambda: self.ready.exists() and self.ready_file()["role"] == role, f"the broker is not {role} in time")
        self.wait_until_ready()


@contextmanager
def brokers(tmp_path: Path, url: str, count: int = 2, lease: float = LEASE, **options: Any) -> Iterator[list[Broker]]:
    """Brokers that share a journal; the first one serves."""
    with ExitStack() as stack:
        started = []
        for number in range(count):
            folder = tmp_path / f"broker{number}"
            folder.mkdir()
            broker = Broker(folder, journal={"url": f"{url}&lease={lease}"}, **options)
            stack.callback(broker.kill)
            started.append(stack.enter_context(broker))
            broker.wait_for_role("standby" if number else "serving")
        yield started


def push(broker: BrokerProcess, *payloads: bytes) -> None:
    """Publish, and wait for the confirmation."""
    with connect(broker.url("kokaq", "/default/jobs")) as client:
        assert client.publish_many(payloads).confirmed


def taken(broker: BrokerProcess) -> list[bytes]:
    """Receive and settle all messages."""
    with connect(broker.url("kokaq", "/default/jobs")) as client:
        payloads = []
        for message in client.consume(idle=0.5):
            payloads.append(bytes(message.body))
            message.ack()
        return payloads


def http_address(broker: Broker) -> str:
    """The URL of the broker's HTTP process."""
    return next(str(each["address"]) for each in broker.ready_file()["listeners"] if each["protocol"] == "http")


def http(broker: Broker, path: str) -> tuple[int, dict[str, Any]]:
    """The status and the body of an HTTP response."""
    where = http_address(broker)
    try:
        with urllib.request.urlopen(f"{where}{path}", timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_broker_that_is_killed_is_replaced_and_stands_by_when_it_comes_back(tmp_path: Path, postgres: Server) -> None:
    with brokers(tmp_path, fresh_schema(postgres)) as (first, second):
        assert second.ready_file()["listeners"] == []
        [warned] = first.events("the journal's database promises less than it could")
        assert "no synchronous standby" in warned["what"]
        push(first, b"one")
        first.kill()
        second.wait_for_role("serving")
        push(second, b"two")
        assert taken(second) == [b"one", b"two"]
        first.begin()
        first.wait_for_role("standby")
        assert first.ready_file()["listeners"] == []


def test_a_planned_hand_over_does_not_wait_for_the_lease(tmp_path: Path, postgres: Server) -> None:
    """The lease is released, so the standby does not wait for it to expire."""
    with brokers(tmp_path, fresh_schema(postgres), lease=600) as (first, second):
        push(first, b"one")
        began = time.monotonic()
        first.signal(signal.SIGTERM)
        second.wait_for_role("serving")
        took = time.monotonic() - began
        assert first.ended() == 0
        assert not first.ready.exists()
        assert taken(second) == [b"one"]
        assert took < 20


def test_a_planned_hand_over_does_not_wait_for_a_checkpoint(tmp_path: Path, postgres: Server) -> None:
    url = fresh_schema(postgres)
    schema, waiting = url.rpartition("=")[2], "select 1 from pg_locks where relation = %s::regclass and not granted"
    options = {"url": f"{url}&lease=600", "segment_bytes": 1000}
    with ExitStack() as stack:
        pair = [Broker(tmp_path / f"{number}", journal=options) for number in range(2)]
        for broker, role in zip(pair, ("serving", "standby"), strict=True):
            broker.data.parent.mkdir(exist_ok=True)
            stack.callback(broker.kill)
            stack.enter_context(broker)
            broker.wait_for_role(role)
        first, second = pair
        locker = stack.enter_context(psycopg.connect(postgres.url()))
        locker.execute(f"lock table {schema}.checkpoints in exclusive mode".encode())
        while not locker.execute(waiting, (f"{schema}.checkpoints",)).fetchall():
            push(first, b"x" * 1000)
        first.signal(signal.SIGTERM)
        second.wait_for_role("serving")
        push(second, b"two")
        assert first.process is not None
        assert first.process.poll() is None, (
            "the stopping broker waits for its thread, but the standby must not wait for it"
        )
        locker.rollback()
        assert first.ended() == 0
        assert not first.events("unexpected error")
        assert taken(second)[-1] == b"two"


def test_a_database_that_is_silent_while_a_backlog_is_read_keeps_no_one_else_waiting(
    tmp_path: Path, postgres: Server
) -> None:
    with ExitStack() as stack:
        proxy = stack.enter_context(database_proxy(postgres.port))
        (broker,) = stack.enter_context(brokers(tmp_path, proxy.url(fresh_schema(postgres)), 1, lease=600))
        push(broker, b"one")
        assert broker.stop() == 0
        broker.begin()
        broker.wait_for_role("serving")
        consumer = broker.dial("phpmq")
        proxy.hold()
        consumer.send(consume("jobs", 1))
        with connect(broker.url("kokaq", "/default/jobs")) as client:
            for _ in range(3):
                client.ping()
        consumer.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            consumer.read(1)
        consumer.socket.settimeout(20)
        proxy.release()
        consumer.expect(b"H010030")


def test_an_owner_that_was_paused_confirms_and_delivers_nothing_and_stands_by(tmp_path: Path, postgres: Server) -> None:
    with brokers(tmp_path, fresh_schema(postgres)) as (first, second):
        push(first, b"one")
        peer, consumer = first.dial("kokaq"), first.dial("phpmq")
        consumer.send(consume("nothing", 1))
        first.signal(signal.SIGSTOP)
        peer.send(kokaq(PUSH, "default/jobs", b"not owned"))
        second.wait_for_role("serving")
        first.signal(signal.SIGCONT)
        first.wait_for_role("standby")
        peer.expect_end()
        consumer.expect_end()
        assert len(first.events(FENCED)) == 1
        assert taken(second) == [b"one"]
        second.kill()
        first.wait_for_role("serving")
        push(first, b"two")
        assert taken(first) == [b"two"]


def test_http_shows_the_role_and_tokens_are_shared(tmp_path: Path, postgres: Server) -> None:
    token = tmp_path / "token"
    with brokers(tmp_path, fresh_schema(postgres), http=FREE, admin_token_file=str(token)) as (first, second):
        both = ",".join(http_address(each) for each in (second, first))
        shown = penstock_here("status", f"--url={both}", f"--token-file={token}", "--json")
        assert shown.json[0]["ready"] is True, "commands try the next URL until a broker serves"
        assert http(first, "/readyz") == (200, {"ok": True, "role": "serving", "reasons": []})
        status, state = http(second, "/readyz")
        assert (status, state["ok"], state["role"]) == (503, False, "standby")
        assert "serves" in state["reasons"][0]
        for broker in (first, second):
            assert http(broker, "/healthz") == (200, {"ok": True, "reasons": []}), "only /readyz depends on the role"
        assert http(second, "/api/v1/queues")[0] == 503
        shown = penstock("status", "--url", second.addresses["http"], "--token", "whatever")
        assert (shown.code, "stands by" in shown.err) == (3, True)
        first.signal(signal.SIGTERM)
        second.wait_for_role("serving")
        assert http(second, "/readyz")[0] == 200
        assert penstock_here("status", f"--url={http_address(second)}", f"--token-file={token}").code == 0


def test_two_brokers_can_not_have_one_data_folder(tmp_path: Path, postgres: Server) -> None:
    with brokers(tmp_path, fresh_schema(postgres), 1) as (first,):
        other = Broker(tmp_path, journal={"url": fresh_schema(postgres)}, data=str(first.data))
        other.begin()
        assert other.ended() == 3
        assert "each needs a data folder of its own" in other.log.read_text()


def test_a_broker_that_is_cut_off_from_the_database_reports_it_and_resumes(tmp_path: Path, postgres: Server) -> None:
    with database_proxy(postgres.port) as proxy:
        url = proxy.url(fresh_schema(postgres))
        with brokers(tmp_path, url, 1, http=FREE) as (broker,):
            push(broker, b"one")
            proxy.refuse()
            proxy.cut()
            peer, consumer = broker.dial("kokaq"), broker.dial("phpmq")
            peer.send(kokaq(PUSH, "default/jobs", b"two"))
            wait_for(lambda: broker.events(HELD))
            consumer.send(consume("jobs", 1))
            wait_for(lambda: http(broker, "/readyz")[0] == 503)
            assert "the database does not answer" in http(broker, "/readyz")[1]["reasons"][0]
            for each in (peer, consumer):
                each.socket.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    each.read(1)
                each.socket.settimeout(20)
            proxy.accept()
            peer.expect(PUSHED)
            consumer.expect(b"H010030")
            consumer.close()
            assert taken(broker) == [b"one", b"two"]
            assert http(broker, "/readyz")[0] == 200


def test_a_broker_that_starts_without_its_database_is_up_and_waits_for_it(tmp_path: Path, postgres: Server) -> None:
    with database_proxy(postgres.port) as proxy:
        proxy.refuse()
        broker = Broker(tmp_path, journal={"url": proxy.url(fresh_schema(postgres))})
        with broker:
            broker.wait_for_role("standby")
            time.sleep(1.2)
            assert not broker.events("the journal answers again"), "it does not"
            proxy.accept()
            broker.wait_for_role("serving")
            push(broker, b"one")


def test_the_database_fails_over_and_the_broker_goes_on(tmp_path: Path) -> None:
    with running_pair() as pair, brokers(tmp_path, pair.url(), 1) as (broker,):
        push(broker, b"one")
        pair.fail_over()
        push(broker, b"two")
        assert taken(broker) == [b"one", b"two"]


def test_a_stop_does_not_wait_for_a_commit_that_waits_for_the_synchronous_standby(tmp_path: Path) -> None:
    """Neither for a claim nor for messages."""
    waiting = "select from pg_stat_activity where wait_event = 'SyncRep' and query like"
    with running_pair() as pair:
        url = fresh_schema(pair.primary)
        with brokers(tmp_path, url, lease=3.0, drain_seconds=1) as (serving, standby):
            push(serving, b"one")
            serving.kill()
            pair.standby.kill()
            wait_for(lambda: pair.primary.execute(f"{waiting} '%set epoch = %'"), "no claim waits for the standby")
            assert standby.stop() == 0
            pair.standby.start()
            serving.begin()
            serving.wait_for_role("serving")
            pair.standby.kill()
            peer = serving.dial("kokaq").send(kokaq(PUSH, "default/jobs", b"two"))
            wait_for(lambda: pair.primary.execute(f"{waiting} '%'"), "no commit waits for the standby")
            serving.stop()
            peer.close()
            pair.standby.start()
            standby.begin()
            standby.wait_for_role("serving")
            assert taken(standby)[:1] == [b"one"]


def test_a_database_that_has_lost_commits_is_refused_until_an_operator_accepts_it(tmp_path: Path) -> None:
    """An asynchronous standby is promoted, and supervisors restart the brokers."""
    with running_pair() as pair, brokers(tmp_path, pair.url(), 1) as (broker,):
        push(broker, b"one")
        pair.standby.stop()
        pair.primary.configure("synchronous_standby_names", "")
        push(broker, b"two")
        pair.primary.kill()
        pair.standby.start()
        pair.standby.promote()
        assert broker.ended() == 5
        assert "has lost commits" in broker.log.read_text()
        (tmp_path / "unaware").mkdir()
        unaware = Broker(tmp_path / "unaware", journal={"url": f"{pair.url()}&lease={LEASE}"})
        for each in (broker, unaware):
            each.begin()
            assert each.ended() == 5
            assert "penstock journal accept-loss" in each.log.read_text()
        assert penstock("journal", "accept-loss", "--yes", pair.url()).code == 0
        broker.begin()
        broker.wait_for_role("serving")
        push(broker, b"three")
        assert taken(broker) == [b"one", b"three"]


def test_a_schema_that_was_dropped_is_not_made_again(tmp_path: Path, postgres: Server) -> None:
    url = fresh_schema(postgres)
    with brokers(tmp_path, url, 1) as (broker,):
        push(broker, b"one")
        broker.stop()
        postgres.execute(f"drop schema {url.partition('schema=')[2]} cascade")
        for _ in range(2):
            broker.begin()
            assert broker.ended() == 5
        assert penstock("journal", "accept-loss", "--yes", url, "--data", broker.data).code == 0
        broker.begin()
        broker.wait_for_role("serving")
        push(broker, b"two")
        assert taken(broker) == [b"two"]
