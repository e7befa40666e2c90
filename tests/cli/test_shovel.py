"""``penstock shovel``: nothing is lost when it is interrupted, killed or refused."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from itertools import count, permutations
from pathlib import Path

import pytest

from penstock.client import connect
from support.brokers import BrokerProcess
from support.commands import COMMAND, environment, penstock

numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as live:
        yield live


def url(broker: BrokerProcess, protocol: str) -> str:
    """The URL of a new queue, if the protocol supports several."""
    name = f"q{next(numbers)}"
    return broker.url(protocol, {"phpmq": f"/{name}", "sspq": "", "kokaq": f"/default/{name}"}[protocol])


def fill(target: str, bodies: list[str]) -> None:
    with connect(target) as client:
        client.publish_many(bodies)


def content(source: str) -> list[str]:
    with connect(source) as client:
        bodies = []
        for message in client.consume(idle=0.5, poll=0.05):
            bodies.append(message.text)
            message.ack()
        return bodies


BODIES = [f"message {number}" for number in range(300)]


@pytest.mark.parametrize(("source", "destination"), list(permutations(["phpmq", "sspq", "kokaq"], 2)))
def test_between_protocols(broker: BrokerProcess, source: str, destination: str) -> None:
    here, there = url(broker, source), url(broker, destination)
    fill(here, BODIES)
    create = ["--create"] if destination == "kokaq" else []
    outcome = penstock("shovel", here, there, "--wait=0.5", "--json", *create)
    assert outcome.code == 0, outcome
    confirmed = destination == "kokaq"
    [report] = outcome.json
    assert (report["moved"], report["confirmed"], report["interrupted"]) == (300, confirmed, False)
    assert ("does not confirm" in outcome.err) == (not confirmed)
    assert content(there) == BODIES
    assert content(here) == []


def test_properties_of_messages_are_moved_too(broker: BrokerProcess) -> None:
    here, there = url(broker, "kokaq"), url(broker, "kokaq")
    with connect(here) as client:
        client.publish("x", ttl=1000, priority=7, correlation_id=b"c")
    assert penstock("shovel", here, there, "--count=1").code == 0
    with connect(there) as client:
        message = client.receive(timeout=5)
        assert message is not None
        assert (message.priority, message.correlation_id) == (7, b"c")
        assert message.ttl is not None
        assert 900 < message.ttl <= 1000


def test_a_count_and_several_connections(broker: BrokerProcess) -> None:
    here, there = url(broker, "phpmq"), url(broker, "kokaq")
    fill(here, BODIES)
    assert penstock("shovel", here, there, "--count=100", "--connections=4").err == "100 moved\n"
    assert sorted(content(here) + content(there)) == sorted(BODIES)


def test_a_rate(broker: BrokerProcess) -> None:
    here, there = url(broker, "phpmq"), url(broker, "kokaq")
    fill(here, BODIES[:50])
    began = time.monotonic()
    assert penstock("shovel", here, there, "--count=50", "--rate=25").code == 0
    assert time.monotonic() - began > 1


def test_resuming_after_ctrl_c(broker: BrokerProcess) -> None:
    here, there = url(broker, "phpmq"), url(broker, "kokaq")
    fill(here, BODIES)
    command = [*COMMAND, "shovel", here, there, "--rate=50", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), text=True) as process:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=20)[0]
        assert process.returncode == 130
    assert '"interrupted": true' in out
    assert penstock("shovel", here, there, "--wait=0.5").code == 0
    assert content(there) == BODIES


def test_resuming_after_a_kill(broker: BrokerProcess) -> None:
    """Messages confirmed but not yet removed are sent again, and detected by their request ID."""
    here, there = url(broker, "phpmq"), url(broker, "kokaq")
    fill(here, BODIES)
    for _ in range(3):
        with subprocess.Popen([*COMMAND, "shovel", here, there, "--rate=100"], env=environment()) as process:
            time.sleep(0.8)
            process.kill()
    assert penstock("shovel", here, there, "--wait=0.5").code == 0
    assert sorted(content(there)) == sorted(BODIES)


def test_a_destination_that_refuses_leaves_the_source_alone(broker: BrokerProcess, tmp_path: Path) -> None:
    here = url(broker, "phpmq")
    fill(here, BODIES[:10])
    with BrokerProcess(tmp_path, kokaq=[{"address": "127.0.0.1:0"}]) as other:
        outcome = penstock("shovel", here, other.url("kokaq", "/default/missing"))
    assert outcome.code == 3, outcome
    assert "0 were moved before that" in outcome.err
    assert content(here) == BODIES[:10]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["phpmq://127.0.0.1:1/a"], 2, "Missing argument 'DESTINATION'"),
        (["x://a", "phpmq://127.0.0.1:1/a"], 2, "a URL starts with"),
        (["phpmq://127.0.0.1:1/a", "phpmq://127.0.0.1:1/b"], 1, "Connection refused"),
        (["phpmq://127.0.0.1:1/a", "phpmq://127.0.0.1:1/b", "--rate=0"], 2, "0.0 is not in the range x>0"),
        (["kokaq://127.0.0.1/default/a", "kokaq://127.0.0.1:9420/default/a"], 2, "the same queue"),
    ],
)
def test_wrong_use(arguments: list[str], code: int, expected: str) -> None:
    outcome = penstock("shovel", *arguments)
    assert outcome.code == code, outcome
    assert expected in outcome.err
