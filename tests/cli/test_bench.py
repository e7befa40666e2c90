"""``penstock bench`` runs, its counts add up, and it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import connect
from support.brokers import BrokerProcess
from support.commands import penstock


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as live:
        yield live


def depth(broker: BrokerProcess, queue: str) -> int | None:
    with connect(broker.url("kokaq")) as client:
        return client.queue_info(queue).depth


@pytest.mark.parametrize("protocol", ["phpmq", "sspq", "kokaq"])
def test_a_number_of_messages(broker: BrokerProcess, protocol: str) -> None:
    outcome = penstock(
        "bench", broker.url(protocol), "--count=1000", "--size=50", "--producers=3", "--consumers=2", "--json"
    )
    assert outcome.code == 0, outcome
    [report] = outcome.json
    assert (report["sent"], report["received"]) == (1000, 1000)
    assert report["messages_per_second"] > 0
    assert 0 < report["end_to_end_ms"]["p50"] <= report["end_to_end_ms"]["max"]
    assert ("confirmed_ms" in report) == (protocol == "kokaq")
    assert depth(broker, "default/sspq" if protocol == "sspq" else "default/penstock-bench") == 0


def test_a_duration_in_several_processes(broker: BrokerProcess) -> None:
    url = broker.url("phpmq", "/other")
    arguments = ["--duration=1", "--processes=2", "--producers=2", "--consumers=2", "--rate=500", "--size=8", "--json"]
    [report] = penstock("bench", url, *arguments).json
    assert report["sent"] == report["received"]
    assert report["sent"] <= 1000
    assert depth(broker, "default/other") == 0


def test_one_at_a_time(broker: BrokerProcess) -> None:
    outcome = penstock("bench", broker.url("kokaq"), "--one-at-a-time", "--consumers=0", "--count=50", "--json")
    [report] = outcome.json
    assert report["confirmed_ms"]["p50"] > 0
    assert "end_to_end_ms" not in report
    assert depth(broker, "default/penstock-bench") == 0, "it cleans up"


def test_a_broker_of_its_own_a_table_and_a_plot() -> None:
    outcome = penstock("bench", "--duration=1", "--protocol=phpmq", "--durability=os", "--size=100", "--size=1024")
    assert outcome.code == 0, outcome
    assert "messages/s" in outcome.out
    assert "1024 B" in outcome.out
    assert "█" in outcome.out


def test_over_a_unix_socket(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, phpmq=[{"address": f"unix:{tmp_path}/p.sock"}]):
        [report] = penstock("bench", f"phpmq+unix://{tmp_path}/p.sock", "--count=100", "--json").json
    assert report["received"] == 100


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["phpmq://127.0.0.1:1", "--protocol=sspq"], 2, "a URL names its own protocol"),
        (["phpmq://127.0.0.1:1", "--one-at-a-time"], 2, "PHPMQ has none; Kokaq can confirm"),
        (["kokaq://127.0.0.1:1", "--size=70000"], 2, "at most 65535 bytes"),
        (["--size=7"], 2, "7 is not in the range x>=8"),
        (["phpmq://127.0.0.1:1"], 1, "Connection refused"),
        (["nonsense"], 2, "a URL starts with"),
    ],
)
def test_wrong_use(arguments: list[str], code: int, expected: str) -> None:
    outcome = penstock("bench", *arguments)
    assert outcome.code == code, outcome
    assert expected in outcome.err
