"""``penstock send``, ``receive``, ``dead`` and ``ping`` against a real broker."""

from __future__ import annotations

import base64
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from itertools import count
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


class Queue:
    """A queue used by one test only, with its URL for each protocol."""

    def __init__(self, broker: BrokerProcess) -> None:
        name = f"q{next(numbers)}"
        self.phpmq = broker.url("phpmq", f"/{name}")
        self.kokaq = broker.url("kokaq", f"/default/{name}")


@pytest.fixture
def queue(broker: BrokerProcess) -> Queue:
    return Queue(broker)


class TestSend:
    def test_arguments(self, queue: Queue) -> None:
        sent = penstock("send", queue.phpmq, "one", "zwei", "trois …")
        assert sent == (0, "", "3 sent (PHPMQ does not confirm)\n")
        assert penstock("receive", queue.phpmq, "--count=3").out == "one\nzwei\ntrois …\n"

    def test_messages_are_confirmed_with_ids(self, queue: Queue) -> None:
        sent = penstock("send", queue.kokaq, "a", "b", "--ids", "--priority=5", "--json")
        assert sent.code == 0
        [report] = sent.json
        assert (report["sent"], report["confirmed"], len(report["ids"])) == (2, True, 2)
        got = penstock("receive", queue.kokaq, "--count=2", "--json").json
        assert [each["id"] for each in got] == report["ids"]
        assert [each["priority"] for each in got] == [5, 5]

    def test_lines_of_standard_input(self, queue: Queue) -> None:
        assert penstock("send", queue.phpmq, stdin=b"a\nb\r\n\nlast").code == 0
        assert penstock("receive", queue.phpmq, "--all", "--wait=0.5").out == "a\nb\n\nlast\n"

    def test_lines_of_a_file_and_a_whole_file(self, queue: Queue, tmp_path: Path) -> None:
        file = tmp_path / "lines"
        file.write_bytes(b"x\ny\n")
        assert penstock("send", queue.kokaq, "--file", file).err == "2 sent, and on disk\n"
        assert penstock("send", queue.kokaq, "--file", file, "--whole").err == "1 sent, and on disk\n"
        got = penstock("receive", queue.kokaq, "--count=3", "--json").json
        assert [each["body"] for each in got] == ["x", "y", "x\ny\n"]

    def test_all_of_standard_input_as_one_message(self, queue: Queue) -> None:
        assert penstock("send", queue.kokaq, "--whole", stdin=b"x\ny\n").err == "1 sent, and on disk\n"
        assert penstock("receive", queue.kokaq, "--json").json[0]["body"] == "x\ny\n"

    def test_a_device_that_cannot_be_polled(self, queue: Queue) -> None:
        assert penstock("send", queue.kokaq, "--file=/dev/null") == (0, "", "0 sent\n")

    def test_sending_to_a_broker_that_does_not_read_fails(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            sent = penstock("send", f"phpmq://127.0.0.1:{server.getsockname()[1]}/q", "m")
        assert (sent.code, "unknown whether all 1 message(s) were accepted" in sent.err) == (1, True), sent

    def test_many(self, queue: Queue) -> None:
        assert penstock("send", queue.kokaq, "--count=2500", "x", "y").err == "5000 sent, and on disk\n"
        assert penstock("receive", queue.phpmq, "--count=5000").out == "x\ny\n" * 2500

    def test_lines_are_sent_as_they_arrive(self, queue: Queue) -> None:
        with subprocess.Popen([*COMMAND, "send", queue.kokaq], stdin=subprocess.PIPE, env=environment()) as process:
            assert process.stdin is not None
            process.stdin.write(b"now\n")
            process.stdin.flush()
            assert penstock("receive", queue.phpmq, "--wait=10").out == "now\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130

    def test_a_missing_queue(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path, kokaq=[{"address": "127.0.0.1:0"}]) as strict:
            url = f"kokaq://{strict.addresses['kokaq']}/default/missing"
            outcome = penstock("send", url, "m")
            assert outcome.code == 3
            assert "there is no such queue" in outcome.err
            assert "--create creates it" in outcome.err
            assert penstock("send", url, "m", "--create").code == 0

    @pytest.mark.parametrize(
        ("arguments", "code", "expected"),
        [
            (["http://x", "m"], 2, "a URL starts with phpmq://, sspq:// or kokaq://"),
            (["phpmq://127.0.0.1:1/q", "m"], 1, "Connection refused"),
            (["PHPMQ", "--priority=1", "m"], 2, "PHPMQ can't express 'priority'; Kokaq can"),
            (["PHPMQ", "--create", "m"], 2, "--create is for Kokaq: over PHPMQ the queue is there, or is made"),
            (["PHPMQ", "--file=-", "m"], 2, "not both"),
            (["PHPMQ", "--whole", "m"], 2, "--whole is about --file or standard input"),
            (["PHPMQ", "--retries=256", "m"], 2, "256 is not in the range 0<=x<=255"),
            (["PHPMQ", "--file=/missing"], 2, "No such file or directory"),
            (["KOKAQ", "--id=zz", "m"], 2, "--id is 32 hex digits, not 'zz'"),
            ([], 2, "Missing argument 'URL'"),
        ],
    )
    def test_wrong_use(self, queue: Queue, arguments: list[str], code: int, expected: str) -> None:
        urls = {"PHPMQ": queue.phpmq, "KOKAQ": queue.kokaq}
        outcome = penstock("send", *(urls.get(each, each) for each in arguments))
        assert outcome.code == code, outcome
        assert expected in outcome.err

    def test_no_queue_named(self, broker: BrokerProcess) -> None:
        outcome = penstock("send", broker.url("phpmq"), "m")
        assert (outcome.code, "which queue?" in outcome.err) == (2, True)


class TestReceive:
    @pytest.mark.parametrize("limit", ["--all", "--count=500"])
    def test_each_is_acknowledged_once_and_in_order(self, queue: Queue, limit: str) -> None:
        lines = "".join(f"{number}\n" for number in range(500))
        penstock("send", queue.kokaq, stdin=lines.encode())
        assert penstock("receive", queue.kokaq, limit, "--wait=0.5") == (0, lines, "")
        assert penstock("receive", queue.kokaq, "--wait=0.3").code == 4

    def test_fewer_than_requested(self, queue: Queue) -> None:
        penstock("send", queue.phpmq, "only")
        assert penstock("receive", queue.phpmq, "--count=2", "--wait=0.3") == (4, "only\n", "1 of 2 were there\n")

    def test_no_more_than_requested(self, queue: Queue) -> None:
        penstock("send", queue.kokaq, "a", "b", "c")
        assert penstock("receive", queue.phpmq, "--count=2").out == "a\nb\n"
        [left] = penstock("receive", queue.kokaq, "--json").json
        assert (left["body"], left["deliveries"]) == ("c", 0), "it was never delivered"

    def test_not_acknowledged(self, queue: Queue) -> None:
        penstock("send", queue.phpmq, "a", "b")
        for _ in range(2):
            assert penstock("receive", queue.phpmq, "--count=2", "--no-ack").out == "a\nb\n"
            assert penstock("receive", queue.kokaq, "--all", "--no-ack", "--wait=0.3").out == "a\nb\n"

    def test_escaped(self, queue: Queue) -> None:
        penstock("send", queue.phpmq, stdin=b"\x1b[31mred\x07 \xff\xe2\x80\xae")
        assert penstock("receive", queue.phpmq, "--format=escaped").out == "\\x1b[31mred\\x07 \\xff\\u202e\n"

    def test_json_of_bytes(self, queue: Queue) -> None:
        penstock("send", queue.phpmq, stdin=b"\xff\x00")
        [message] = penstock("receive", queue.phpmq, "--json").json
        assert base64.b64decode(message["body_base64"]) == b"\xff\x00"

    def test_to_files(self, queue: Queue, tmp_path: Path) -> None:
        penstock("send", queue.phpmq, "a", "b")
        assert penstock("receive", queue.phpmq, "--count=2", "--to", tmp_path / "out").code == 0
        assert [path.read_text() for path in sorted((tmp_path / "out").iterdir())] == ["a", "b"]

    def test_follow_until_ctrl_c(self, queue: Queue) -> None:
        command = [*COMMAND, "receive", queue.phpmq, "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
            assert process.stdout is not None
            for text in ("a", "b"):
                penstock("send", queue.kokaq, "--create", text)
                assert process.stdout.readline() == f"{text}\n".encode()
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
        assert penstock("receive", queue.phpmq, "--wait=0.3").code == 4

    def test_a_reader_that_disconnects_loses_nothing(self, queue: Queue) -> None:
        penstock("send", queue.phpmq, *"abc")
        with subprocess.Popen(
            [*COMMAND, "receive", queue.phpmq, "--follow"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.wait(10) == 141
            assert process.stderr.read() == b""
        assert penstock("receive", queue.phpmq, "--all", "--wait=0.5").out == "a\nb\nc\n"

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["--all", "--follow"], "one of them"),
            (["--count=0"], "0 is not in the range"),
            (["--format=x"], "'x' is not one of"),
        ],
    )
    def test_wrong_use(self, queue: Queue, arguments: list[str], expected: str) -> None:
        outcome = penstock("receive", queue.phpmq, *arguments)
        assert outcome.code == 2
        assert expected in outcome.err

    def test_a_missing_queue(self, broker: BrokerProcess) -> None:
        outcome = penstock("receive", broker.url("kokaq", "/default/missing"))
        assert outcome.code == 3, outcome


class TestSspq:
    @pytest.fixture(autouse=True)
    def empty(self, broker: BrokerProcess) -> None:
        penstock("receive", broker.url("kokaq", "/default/sspq"), "--all", "--wait=0.2")
        with connect(broker.url("sspq")) as client:
            for letter in client.dead_letters(idle=0.2):
                letter.ack()

    def test_send_and_receive(self, broker: BrokerProcess) -> None:
        url = broker.url("sspq")
        penstock("send", url, "--retries=7", "a", "b")
        messages = penstock("receive", url, "--count=2", "--json").json
        assert [(each["body"], each["retries"]) for each in messages] == [("a", 7), ("b", 7)]

    def test_without_acknowledging_one_message_is_received(self, broker: BrokerProcess) -> None:
        outcome = penstock("receive", broker.url("sspq"), "--no-ack", "--count=2")
        assert (outcome.code, "one message at a time" in outcome.err) == (2, True)


class TestPing:
    def test_kokaq_answers(self, broker: BrokerProcess) -> None:
        pings = penstock("ping", broker.url("kokaq"), "--count=2", "--interval=0.01", "--json").json
        assert [each["ailment"] for each in pings] == [None, None]
        assert all(each["answer_ms"] > 0 for each in pings)

    @pytest.mark.parametrize("protocol", ["phpmq", "sspq"])
    def test_the_other_protocols_accept_a_connection(self, broker: BrokerProcess, protocol: str) -> None:
        code, out, _ = penstock("ping", broker.url(protocol))
        assert (code, out.endswith("the protocol has no ping\n")) == (0, True)

    def test_no_broker_listens(self) -> None:
        assert penstock("ping", "kokaq://127.0.0.1:1").code == 1

    def test_the_state_of_each_of_several_hosts_is_reported(self, broker: BrokerProcess) -> None:
        served = broker.url("kokaq").partition("://")[2]
        code, out, _ = penstock("ping", f"kokaq://127.0.0.1:1,{served}")
        first, second = out.splitlines()
        assert (code, first) == (0, "Kokaq at 127.0.0.1:1: does not serve: Connection refused")
        assert second.startswith(f"Kokaq at {served}: connected in")
        pings = penstock("ping", f"kokaq://127.0.0.1:1,{served}", "--json").json
        assert pings[0] == {"address": "Kokaq at 127.0.0.1:1", "reason": "Connection refused"}
        assert pings[1]["ailment"] is None
        code, _, err = penstock("ping", "kokaq://127.0.0.1:1,127.0.0.1:2")
        assert (code, "none of 2 hosts serves" in err) == (1, True)

    @pytest.mark.parametrize("protocol", ["phpmq", "sspq", "kokaq"])
    def test_tls_to_a_listener_without_it(self, broker: BrokerProcess, protocol: str) -> None:
        code, _, err = penstock("ping", broker.url(protocol).replace("://", "+tls://"))
        assert (code, "there may be no TLS at this address" in err) == (1, True)

    def test_wait_for_a_broker(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path) as live:
            url = live.url("kokaq")
            live.stop()
            with subprocess.Popen([*COMMAND, "ping", url, "--retry=20"], stdout=subprocess.DEVNULL) as waiting:
                time.sleep(0.5)
                assert waiting.poll() is None
                live.start()
                assert waiting.wait(20) == 0


def test_create_makes_the_namespace_too(broker: BrokerProcess) -> None:
    done = penstock("send", broker.url("kokaq", "/nsx/q1"), "--create", "--source-info", "billing", "m")
    assert (done.code, done.err) == (0, "1 sent, and on disk\n")
    assert penstock("receive", broker.url("kokaq", "/nsx/q1"), "--count", "1", "--json").json[0]["source"] == "billing"


def test_several_hosts(broker: BrokerProcess) -> None:
    """Every command finds the serving broker among those of its URL."""

    def near(protocol: str, path: str) -> str:
        return broker.url(protocol, path).replace("://", "://127.0.0.1:1,")

    assert penstock("send", near("kokaq", "/default/hosts"), "--create", "a", "b").err == "2 sent, and on disk\n"
    moved = penstock("shovel", near("kokaq", "/default/hosts"), near("phpmq", "/hosts2"), "--count=2", "--json")
    assert (moved.code, moved.json[0]["moved"]) == (0, 2)
    assert penstock("receive", near("phpmq", "/hosts2"), "--count=2").out == "a\nb\n"
    same = penstock("shovel", broker.url("phpmq", "/hosts2"), near("phpmq", "/hosts2"))
    assert (same.code, "are the same queue" in same.err) == (2, True)


def test_receiving_continues_at_the_broker_that_took_over(tmp_path: Path) -> None:
    """Messages that were unacknowledged when their broker stopped are reported, and the command continues."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with BrokerProcess(tmp_path / "a") as one, BrokerProcess(tmp_path / "b") as two:
        hosts = ",".join(each.url("phpmq").partition("://")[2] for each in (one, two))
        with subprocess.Popen(
            [*COMMAND, "receive", f"phpmq://{hosts}/q", "--count=2", "--wait=20"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as receiving:  # fmt: skip
            assert receiving.stdout is not None
            assert receiving.stderr is not None
            penstock("send", one.url("phpmq", "/q"), "first")
            assert receiving.stdout.readline() == "first\n"
            one.stop()
            penstock("send", two.url("phpmq", "/q"), "second")
            assert receiving.stdout.readline() == "second\n"
            assert receiving.wait(20) == 0
            assert "may come again" in receiving.stderr.read()
