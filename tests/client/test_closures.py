"""Refusals that a client sees only as a close: its error, with and without asking the broker over Kokaq."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import ClientError, aio, connect
from support.brokers import BrokerProcess
from support.commands import penstock

LIMIT = 10_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    limits = {"payload_bytes": LIMIT, "refused_seconds": 0.2}
    queues = {"default/full": {"max_depth": 2}, "default/sspq": {"max_depth": 3}}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), limits=limits, queues=queues) as live:
        yield live


def sent(broker: BrokerProcess, url: str, bodies: list[bytes]) -> str:
    """Publish until the client raises an error. Returns its text."""

    async def main() -> str:
        async with aio.connect(url) as client:
            try:
                for body in bodies:
                    await client.publish(body)
                for _ in range(500):  # the close is on its way: one of the next publishes meets it
                    await asyncio.sleep(0.01)
                    client.check()
            except ClientError:
                pass
            with pytest.raises(ClientError) as caught:
                await client.publish(b"after")
            return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])

    return asyncio.run(main())


@pytest.mark.parametrize("protocol", ["phpmq", "sspq"])
class TestTooLarge:
    def url(self, broker: BrokerProcess, protocol: str) -> str:
        return broker.url(protocol, "/large" if protocol == "phpmq" else "")

    def test_without_asking_the_error_lists_reasons_and_the_size(self, broker: BrokerProcess, protocol: str) -> None:
        message = sent(broker, self.url(broker, protocol), [b"x" * 20_000])
        assert "too large (the largest had 20000 bytes)" in message
        assert "its log says which" in message

    def test_with_asking_the_error_gives_the_reason(self, broker: BrokerProcess, protocol: str) -> None:
        url = f"{self.url(broker, protocol)}?ask={broker.url('kokaq')}"
        message = sent(broker, url, [b"small", b"x" * 20_000])
        assert "asked over Kokaq: a message of 20000 bytes is over its limit of 10000" in message

    def test_the_log_names_client_queue_size_and_limit(self, broker: BrokerProcess, protocol: str) -> None:
        sent(broker, self.url(broker, protocol), [b"x" * 30_000])
        lines = [json.loads(line) for line in broker.log.read_text().splitlines()]
        found = [line for line in lines if line["event"] == "protocol error" and line.get("size") == 30_000]
        (line,) = [line for line in found if line["protocol"] == protocol]
        assert (line["protocol"], line["peer"], line["limit"]) == (protocol, "127.0.0.1", LIMIT)
        assert line["queue"] == ("default/large" if protocol == "phpmq" else "default/sspq")


def test_a_full_queue(broker: BrokerProcess) -> None:
    url = f"{broker.url('phpmq', '/full')}?ask={broker.url('kokaq')}"
    message = sent(broker, url, [b"message"] * 3)
    assert "asked over Kokaq: 'full' is full: 2 of 2 messages" in message
    lines = [json.loads(line) for line in broker.log.read_text().splitlines()]
    (line,) = [line for line in lines if line["event"] == "publish refused" and line["queue"] == "default/full"]
    facts = (line["protocol"], line["peer"], line["size"], line["limit"], line["reason"])
    assert facts == ("phpmq", "127.0.0.1", 7, "2 messages", "the queue is full")


def test_asking_fails(broker: BrokerProcess) -> None:
    """If asking fails, the error still reports what the client knows."""
    message = sent(broker, f"{broker.url('phpmq', '/large')}?ask=kokaq://127.0.0.1:1", [b"x" * 20_000])
    assert "the largest had 20000 bytes" in message
    assert "asking it failed: Kokaq at 127.0.0.1:1: Connection refused" in message


def test_the_log_explains_a_close_to_a_client_that_only_publishes(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's close may arrive as a reset or an orderly end. The log gives the reason in either case."""
    ask = f"?ask={broker.url('kokaq')}"
    with caplog.at_level(logging.WARNING, "penstock.client"):
        with connect(broker.url("phpmq", f"/large{ask}")) as client:
            client.publish(b"x" * 20_000)
        with connect(broker.url("phpmq", f"/well{ask}")) as client:
            client.publish(b"x")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "a message of 20000 bytes is over its limit of 10000" in line


def test_the_command_reports_it(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"x" * 20_000)
    url = f"{broker.url('phpmq', '/large')}?ask={broker.url('kokaq')}"
    done = penstock("send", url, "--whole", "--file", file)
    assert done.code in (1, 3)  # the close arrived as a reset, or in order
    assert "a message of 20000 bytes is over its limit of 10000" in done.err
