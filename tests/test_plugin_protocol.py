"""Protocol plugins: a separate distribution adds a protocol to every command, without a change in Penstock.

``tests/plugins/lines`` is such a distribution. It is not installed, so the test generates the metadata that an
installer would make from its ``pyproject.toml``; the rest are real processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.brokers import wait_for
from support.commands import COMMAND, Outcome, environment, penstock

PLUGIN = Path(__file__).parent / "plugins" / "lines"


def installed(folder: Path, points: dict[str, str], name: str = "lines-protocol", path: Path = PLUGIN) -> str:
    """The PYTHONPATH for a distribution with these entry points."""
    information = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{key} = {value}\n" for key, value in points.items())
    (information / "entry_points.txt").write_text(f"[penstock.protocols]\n{lines}")
    return os.pathsep.join([str(path), str(folder)])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["penstock.protocols"]
    return installed(tmp_path_factory.mktemp("installed"), points, project["name"])


class Broker:
    """A broker that speaks Lines and PHPMQ."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        self.path = path
        self.log = folder / "log"

    @contextmanager
    def running(self) -> Iterator[dict[str, str]]:
        """Run it, and kill it at the end. Yields its addresses."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        flags = ["--lines=127.0.0.1:0", "--phpmq=127.0.0.1:0", "--sspq=off", "--kokaq=off", "--log-format=json"]
        flags += [f"--data={self.folder / 'data'}", f"--ready-file={ready}"]
        with self.log.open("ab") as log:
            process = subprocess.Popen([*COMMAND, "serve", *flags], stderr=log, env=environment(PYTHONPATH=self.path))
        try:
            wait_for(lambda: ready.exists() or process.poll() is not None, "the broker was not ready in time")
            assert ready.exists(), self.log.read_text()
            listeners = json.loads(ready.read_text())["listeners"]
            yield {each["protocol"]: each["address"] for each in listeners}
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.fixture
def broker(tmp_path: Path, path: str) -> Broker:
    return Broker(tmp_path, path)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["serve"], "--lines ADDR Speak Lines here. [default: 127.0.0.1:9777]"),
        (["up"], "--lines ADDR Speak Lines here. [default: 127.0.0.1:9777]"),
        (["send"], "Some protocols confirm when a message is on disk (Kokaq, Lines)"),
        (["send"], "URL is of one of these: phpmq://, sspq://, kokaq://, lines://"),
        (["send"], "Time to live in seconds; 0 is unlimited. PHPMQ, Kokaq."),
        (["ping"], "Some protocols have a ping (Kokaq, Lines)"),
        (["pipeline", "decode"], "[phpmq|sspq|kokaq|lines]"),
    ],
)
def test_help(command: list[str], said: str, path: str) -> None:
    shown = penstock(*command, "--help", PYTHONPATH=path)
    assert said in " ".join(shown.out.split()), shown


def test_configuration(tmp_path: Path, path: str) -> None:
    shown = penstock("config", "show", "--json", PYTHONPATH=path, PENSTOCK_LINES="127.0.0.1:1,namespace=shop").json[0]
    listener = {
        "address": "127.0.0.1:1",
        "namespace": "shop",
        "tls_certificate": "",
        "tls_key": "",
        "tls_client_ca": "",
        "proxy_protocol": False,
        "proxy_from": [],
    }
    assert shown["options"]["lines"] == [listener]
    assert shown["origins"]["lines[0].namespace"] == "the environment variable PENSTOCK_LINES"
    assert "lines[0].address" in penstock("config", "show", PYTHONPATH=path).out
    file = tmp_path / "penstock.toml"
    file.write_text('[[lines]]\naddress = "127.0.0.1:1"\nnamespace = "shop"\n')
    assert penstock("config", "check", file, PYTHONPATH=path).code == 0
    file.write_text('[[lines]]\naddress = "127.0.0.1:1"\nqueue = "shop"\n')
    wrong = penstock("config", "check", file, PYTHONPATH=path)
    assert wrong.code == 2
    assert f"{file}, line 3" in wrong.err
    assert "namespace" in wrong.err
    unknown = penstock("config", "check", file)
    assert unknown.code == 2, "unknown without the distribution"


def test_messages(broker: Broker) -> None:
    """Messages confirmed over Lines survive a kill, and can be received over Lines and another protocol."""

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        return penstock(*arguments, stdin=stdin, PYTHONPATH=broker.path)

    with broker.running() as at:
        pinged = run("ping", f"lines://{at['lines']}")
        assert (pinged.code, "answered in" in pinged.out) == (0, True), pinged
        sent = run("send", f"lines://{at['lines']}/jobs", "--json", "first", "second", "third")
        assert sent.json[0] | {"seconds": 0} == {"sent": 3, "confirmed": True, "seconds": 0}
    with broker.running() as at:
        taken = run("receive", f"lines://{at['lines']}/jobs", "--format=raw", "--count=2")
        assert (taken.code, taken.out) == (0, "first\nsecond\n"), taken
        other = run("receive", f"phpmq://{at['phpmq']}/jobs", "--format=raw")
        assert (other.code, other.out) == (0, "third\n"), other
        run("send", f"phpmq://{at['phpmq']}/jobs", "back")
        assert run("receive", f"lines://{at['lines']}/jobs", "--format=raw").out == "back\n"
        assert run("shovel", f"lines://{at['lines']}/jobs", f"lines://{at['lines']}/more", "--wait=0.1").code == 0
    ready = [json.loads(line) for line in broker.log.read_text().splitlines() if '"ready"' in line]
    assert [each["lines"] for each in ready] != []


def test_unsupported_features(path: str) -> None:
    wrong = penstock("send", "lines://127.0.0.1:1/jobs", "--ttl=1", "x", PYTHONPATH=path)
    assert wrong.code == 1, "no broker is there"
    benched = penstock("bench", "lines://127.0.0.1:1/jobs", PYTHONPATH=path)
    assert (benched.code, "Lines has no load" in benched.err) == (2, True), benched
    nameless = penstock("send", "line://127.0.0.1", "x", PYTHONPATH=path)
    assert "starts with phpmq://, sspq://, kokaq:// or lines://" in nameless.err


def test_decode(broker: Broker, tmp_path: Path) -> None:
    """The real command decodes both directions of a real connection into frames."""
    sent = b"LINE PING\nLINE PUT jobs hello\nLINE GET jobs\n"
    with broker.running() as at:
        host, _, port = at["lines"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as peer:
            peer.sendall(sent)
            got = b""
            while got.count(b"\n") < 3:
                got += peer.recv(1000)
    (tmp_path / "to_server.bin").write_bytes(sent + b"WHAT\n")
    (tmp_path / "to_client.bin").write_bytes(got)
    output = tmp_path / "frames"
    captures = [tmp_path / "to_server.bin", tmp_path / "to_client.bin"]
    done = penstock("pipeline", "decode", *captures, f"--output={output}", timeout=240, PYTHONPATH=broker.path)
    assert done.code == 0, done
    rows = sorted(pq.read_table(output).to_pylist(), key=lambda row: (row["file"], row["offset"]))
    assert {row["protocol"] for row in rows} == {"lines"}
    assert [(row["direction"], row["type"], row["queue"], row["offset"], row["payload_size"]) for row in rows] == [
        ("to_client", "PONG", None, 0, None),
        ("to_client", "OK", None, 10, None),
        ("to_client", "MSG", "jobs", 10 + 8 + len(rows[1]["id"]) + 1, 5),
        ("to_server", "PING", None, 0, None),
        ("to_server", "PUT", "jobs", 10, 5),
        ("to_server", "GET", "jobs", 30, None),
        ("to_server", None, None, len(sent), None),
    ]
    assert [row["code"] for row in rows if row["code"]] == ["bad-start"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("", "can't be imported: module 'wrong' has no attribute 'P'"),
        ("P = 1", "is a int, not a penstock.protocols.Protocol"),
        ("P = Protocol(name='Wrong', title='W', port=1, listener='', session='')", "a name is a-z, then a-z and 0-9"),
        ("P = Protocol(name='wrong', title='W', port=0, listener='', session='')", "a port is 1 to 65535"),
        (
            "P = Protocol(name='wrong', title='W', port=9100, listener='', session='')",
            "port of PHPMQ (phpmq, port 9100)",
        ),
        ("P = Protocol(name='wrong', title='W', port=1, listener='', session='')", "W has no listener"),
        ("P = Protocol(name='wrong', title='W', port=1, listener='a:b', session='')", "No module named 'a'"),
        (
            "P = Protocol(name='wrong', title='W', port=1, listener='os:name', session='')",
            "not a type of listener options",
        ),
        (
            "P = Protocol(name='limits', title='W', port=1, session='',"
            " listener='penstock.server.options.listener_options:Listener')",
            "a protocol can't be named 'limits': that is another option of the broker",
        ),
    ],
)
def test_an_unusable_registration_is_reported(made: str, said: str, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "wrong.py").write_text(f"from penstock.protocols import Protocol\n{made}\n")
    path = installed(tmp_path, {"wrong": "wrong:P"}, "wrong-one", code)
    shown = penstock("config", "show", PYTHONPATH=path)
    assert shown.code == 2, shown
    assert "Traceback" not in shown.err
    assert said in shown.err
