"""The load generator of ``scripts/bench-peers``, compiled, against a real broker: all protocols and workloads."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benches.peers import generator
from benches.peers.generator import GeneratorError
from benches.peers.servers import echo, penstock
from benches.peers.servers.base import Running, running
from benches.peers.sitting import CheckError, check


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generator.compiled(tmp_path_factory.mktemp("generator"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(penstock.COMMIT, tmp_path_factory.mktemp("broker")) as found:
        yield found


FLOWS: list[tuple[str, dict[str, Any]]] = [
    ("phpmq", {"producers": 1, "consumers": 1, "window": 1}),
    ("phpmq", {"producers": 2, "consumers": 2, "size": 1024}),
    ("phpmq", {"producers": 20, "consumers": 20, "queues": 20, "both": True, "idle": 30}),
    ("kokaq", {"producers": 1, "consumers": 1}),
    ("kokaq", {"producers": 8, "consumers": 8, "queues": 8, "both": True, "size": 1024}),
    ("kokaq-pop", {"producers": 1, "consumers": 1}),
    ("sspq", {"producers": 5, "consumers": 5}),
]


@pytest.mark.parametrize("number", range(len(FLOWS)), ids=lambda number: f"{FLOWS[number][0]}-{number}")
def test_everything_published_is_received(load: Path, broker: Running, number: int) -> None:
    protocol, flags = FLOWS[number]
    outcome = generator.run(load, protocol, broker.ports[protocol], count=1000, queue=f"flow{number}", **flags)
    assert (outcome.published, outcome.confirmed, outcome.distinct, outcome.settled) == (1000, 1000, 1000, 1000)
    assert outcome.repeated == outcome.idle_lost == 0
    assert outcome.rate > 0
    check(outcome, consumed=True)


def test_publishing_for_a_time_one_at_a_time(load: Path, broker: Running) -> None:
    flags: dict[str, Any] = {"producers": 3, "unconfirmed": 1, "seconds": 0.2, "warm": 0.05}
    outcome = generator.run(load, "kokaq", broker.ports["kokaq"], queue="one", **flags)
    assert outcome.published == outcome.confirmed > 0
    assert 0 < outcome.p50_us <= outcome.p99_us
    assert outcome.seconds == pytest.approx(0.15, abs=0.1)


@pytest.mark.parametrize("protocol", ["phpmq", "kokaq", "sspq"])
def test_a_backlog_is_filled_sampled_and_drained(load: Path, broker: Running, protocol: str) -> None:
    queue = "sspq" if protocol == "sspq" else f"backlog-{protocol}"
    filled = generator.run(load, protocol, broker.ports[protocol], producers=2, count=500, queue=queue)
    assert filled.confirmed == 500
    port = broker.ports["phpmq"]
    first = generator.run(load, "phpmq", port, consumers=1, expect=500, window=1, first=True, queue=queue)
    assert first.first_delivery > 0
    drained = generator.run(load, "phpmq", port, consumers=1, expect=500, queue=queue)
    assert (drained.distinct, drained.repeated) == (500, 0)


def test_the_echo(load: Path, tmp_path: Path) -> None:
    with running(echo.ECHO, tmp_path) as found:
        outcome = generator.run(load, "echo", found.ports["echo"], producers=2, unconfirmed=10, count=1000)
    assert outcome.confirmed == 1000


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "usage: load PROTOCOL"),
            (["stomp", "--port=1"], "there is no protocol stomp; there are: phpmq kokaq"),
            (["phpmq", "--producers=1", "--count=1"], "--port is missing"),
            (["phpmq", "--port=1", "--count=1"], "neither --producers nor --consumers"),
            (["phpmq", "--port=1", "--producers=x"], "--producers is a number from 0 to 10000, not x"),
            (["phpmq", "--port=1", "--producers=1"], "--count or --seconds says when to stop"),
            (["phpmq", "--port=1", "--consumers=1"], "--expect says how many messages there are"),
            (["phpmq", "--port=1", "--producers=1", "--count=1", "--size=3"], "--size is a number from 16 to 60000"),
            (["phpmq", "--port=1", "--what"], "unrecognized option '--what'"),
        ],
    )
    def test_wrong_use(self, load: Path, arguments: list[str], message: str) -> None:
        done = subprocess.run([load, *arguments], capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr

    def test_connection_refused(self, load: Path) -> None:
        with pytest.raises(GeneratorError, match=r"can't connect to 127\.0\.0\.1:1: Connection refused"):
            generator.run(load, "phpmq", 1, producers=1, count=1)

    def test_the_wrong_protocol(self, load: Path, broker: Running) -> None:
        with pytest.raises(GeneratorError, match=r"the server closed connection 0|the server is gone"):
            generator.run(load, "kokaq", broker.ports["sspq"], producers=1, count=1)

    def test_missing_messages_are_reported(self, load: Path, broker: Running) -> None:
        flags: dict[str, Any] = {"consumers": 1, "expect": 1, "timeout": 0.3, "queue": "empty"}
        with pytest.raises(GeneratorError, match="stalled after 0 s: 0 published, 0 confirmed, 0 delivered"):
            generator.run(load, "phpmq", broker.ports["phpmq"], **flags)

    def test_without_a_compiler(self, tmp_path: Path) -> None:
        with pytest.raises(GeneratorError, match=r"there is no C compiler 'no-such-cc'\. Install one"):
            generator.compiled(tmp_path, "no-such-cc")

    def test_a_wrong_count_fails_the_check(self, load: Path, broker: Running) -> None:
        outcome = generator.run(load, "kokaq", broker.ports["kokaq"], producers=1, count=10, queue="fits")
        check(outcome, consumed=False)
        with pytest.raises(CheckError, match="10 messages were confirmed, 0 delivered"):
            check(outcome, consumed=True)
