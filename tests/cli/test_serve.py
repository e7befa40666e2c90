"""``penstock serve`` and ``penstock config``, used as an operator does."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.client import connect
from support.commands import COMMAND, environment, penstock

ROOT = Path(__file__).parents[2]
FREE = ["--phpmq=127.0.0.1:0", "--sspq=off", "--kokaq=off"]


class Serving(subprocess.Popen[str]):
    """A broker started by its command."""

    def __init__(self, folder: Path, *arguments: str, **env: str) -> None:
        self.ready = folder / "ready.json"
        command = [*COMMAND, "serve", f"--data={folder / 'data'}", f"--ready-file={self.ready}", *arguments]
        super().__init__(command, stderr=subprocess.PIPE, text=True, env=environment(**env), cwd=folder)

    def listeners(self) -> list[dict[str, str]]:
        """The listeners in the ready file, once it exists."""
        until = time.monotonic() + 20
        while not self.ready.exists():
            assert self.poll() is None, self.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.02)
        ready = json.loads(self.ready.read_text())
        assert ready["pid"] == self.pid
        listeners = ready["listeners"]
        assert isinstance(listeners, list)
        return listeners

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal. Returns exit code and log."""
        self.send_signal(number)
        log = self.communicate(timeout=20)[1]
        return self.returncode, log


@contextmanager
def serving(folder: Path, *arguments: str, **env: str) -> Iterator[Serving]:
    with Serving(folder, *arguments, **env) as process:
        try:
            yield process
        finally:
            process.kill()


class TestLife:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_stops_it_cleanly(self, tmp_path: Path, number: int) -> None:
        with serving(tmp_path, *FREE) as broker:
            [listener] = broker.listeners()
            with connect(f"phpmq://{listener['address']}/q") as client:
                client.publish("kept")
            code, log = broker.end(number)
            assert (code, broker.ready.exists()) == (0, False)
            assert json.loads(log.splitlines()[-1])["event"] == "stopped"

    def test_all_protocols_several_times_and_a_unix_socket(self, tmp_path: Path) -> None:
        arguments = ["--phpmq=127.0.0.1:0", "--phpmq=unix:p.sock,dialect=32", "--sspq=127.0.0.1:0", "--kokaq=[::1]:0"]
        if not socket.has_ipv6:
            arguments[-1] = "--kokaq=127.0.0.1:0"
        with serving(tmp_path, *arguments) as broker:
            found = [(each["protocol"], each["address"].rpartition(":")[0]) for each in broker.listeners()]
        assert found[:3] == [("phpmq", "127.0.0.1"), ("phpmq", "unix"), ("sspq", "127.0.0.1")]
        assert found[3][0] == "kokaq"

    def test_options_come_from_everywhere(self, tmp_path: Path) -> None:
        (tmp_path / "penstock.toml").write_text('sspq = "off"\n[log]\nformat = "text"\n')
        with serving(
            tmp_path, "--config=penstock.toml", "--phpmq=127.0.0.1:0", "--ephemeral", PENSTOCK_KOKAQ="off"
        ) as broker:
            assert [each["protocol"] for each in broker.listeners()] == ["phpmq"]
            code, log = broker.end()
        assert code == 0
        assert "warning ephemeral" in log
        assert not (tmp_path / "data").exists()

    def test_systemd_is_notified(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.bind(str(tmp_path / "notify"))
            channel.settimeout(20)
            with serving(tmp_path, *FREE, NOTIFY_SOCKET=str(tmp_path / "notify")) as broker:
                assert channel.recv(100) == b"READY=1\nSTATUS=serving"
                assert broker.end()[0] == 0
            assert channel.recv(100) == b"STOPPING=1"

    def test_tls_as_documented(self, tmp_path: Path) -> None:
        page = (ROOT / "docs" / "operations.md").read_text()
        block = next(text for text in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "openssl" in text)
        script = "\n".join(line for line in block.splitlines() if not line.startswith("penstock"))
        subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True, capture_output=True)
        arguments = ["--phpmq=off", "--sspq=off", "--kokaq=127.0.0.1:0,tls_certificate=server.pem,tls_key=server.key"]
        with serving(tmp_path, *arguments) as broker:
            [listener] = broker.listeners()
            address = listener["address"]
            assert penstock("ping", f"kokaq+tls://{address}?ca={tmp_path}/ca.pem").code == 0
            assert penstock("ping", f"kokaq+tls://{address}").code == 1, "an unknown authority"
            assert penstock("ping", f"kokaq://{address}?timeout=2").code == 1, "no TLS"
            broker.send_signal(signal.SIGHUP)
            assert penstock("ping", f"kokaq+tls://{address}?ca={tmp_path}/ca.pem").code == 0
            code, log = broker.end()
        assert (code, "certificate read again" in log) == (0, True)


def taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(any(map(taken, (9100, 8888, 9420))), reason="somebody listens on a default port")
def test_the_quick_start_as_written(tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text()
    script = next(text for text in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "penstock serve" in text)
    command = tmp_path / "bin" / "penstock"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {COMMAND[0]} -m penstock "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    env = environment(PATH=path)
    shell = ["bash", "-em", "-c", script]
    done = subprocess.run(shell, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[1:3] == ["hello", "world"]
    assert (tmp_path / "penstock-data").is_dir()


class TestRefused:
    def test_the_folder_is_in_use(self, tmp_path: Path) -> None:
        with serving(tmp_path, *FREE) as broker:
            broker.listeners()
            code, _, log = penstock("serve", "--data", tmp_path / "data", *FREE)
        assert code == 3
        assert "the journal cannot be opened" in log

    def test_the_address_is_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            code, _, log = penstock("serve", "--ephemeral", "--sspq=off", "--kokaq=off", "--phpmq", address)
        assert code == 3
        assert "cannot listen" in log
        assert address in log

    def test_a_damaged_journal(self, tmp_path: Path) -> None:
        with serving(tmp_path, *FREE) as broker:
            broker.listeners()
            assert broker.end()[0] == 0
        for segment in (tmp_path / "data").glob("*.seg"):
            with segment.open("r+b") as file:
                file.write(b"x" * 64)
        code, _, log = penstock("serve", "--data", tmp_path / "data", *FREE)
        assert (code, "the journal cannot be opened" in log) == (3, True), log


class TestWrongUse:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["--nope"], "No such option '--nope'"),
            (["--http=nowhere"], "penstock: the flag --http: http.address: 'nowhere' is not an address"),
            (["--durability=never"], "'never' is not one of 'commit', 'interval', 'os'"),
            (["--log-level=loud"], "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
            (["--phpmq=nowhere"], "penstock: the flag --phpmq: phpmq[0].address: 'nowhere' is not an address"),
            (
                ["--kokaq=0.0.0.0:1"],
                "penstock: the flag --kokaq: kokaq[0].address: 0.0.0.0:1 can be reached from other",
            ),
            (["--sspq=127.0.0.1:1,queue=x"], "penstock: the flag --sspq: sspq[0].queue: a queue is namespace/name"),
            (
                ["--journal=postgresql://u:hush@h:0/d"],
                "journal.url: postgresql://u:***@h:0/d is not the URL of a journal",
            ),
            (["--journal=postgresql://h/d", "--durability=os"], "journal.durability: a database commits every append"),
            (["--drain-seconds=-1"], "penstock: the flag --drain-seconds: drain_seconds: -1.0 is not accepted"),
            (["--config=/missing"], "penstock: /missing: No such file or directory"),
            (["extra"], "Got unexpected extra argument (extra)"),
        ],
    )
    def test_flags(self, arguments: list[str], expected: str) -> None:
        code, out, err = penstock("serve", *arguments)
        assert (code, out) == (2, "")
        assert expected in err

    def test_a_variable(self) -> None:
        code, _, err = penstock("serve", PENSTOCK_JOURNAL_DURABILITY="x")
        assert code == 2
        assert err.startswith("penstock: the environment variable PENSTOCK_JOURNAL_DURABILITY: journal.durability: ")


class TestConfig:
    def test_check(self, tmp_path: Path) -> None:
        file = tmp_path / "x.toml"
        file.write_text("[limits]\nqueues = 5\n")
        assert penstock("config", "check", file) == (0, f"{file}: good\n", "")
        assert penstock("config", "check", PENSTOCK_CONFIG=str(file)).code == 0
        assert penstock("config", "check", file, "--json").json == [{"ok": True, "error": None, "unknown": []}]

    def test_check_reports_a_fault(self, tmp_path: Path) -> None:
        file = tmp_path / "x.toml"
        file.write_text("\n[limits]\nconnections = 0\n")
        fault = f"{file}, line 3: limits.connections: 0 is not accepted; it is a whole number from 1 up"
        assert penstock("config", "check", file) == (2, "", f"penstock: {fault}\n")
        outcome = penstock("config", "check", file, "--json")
        assert (outcome.code, outcome.json) == (2, [{"ok": False, "error": fault, "more": []}])

    def test_show_reports_origins(self, tmp_path: Path) -> None:
        file = tmp_path / "x.toml"
        file.write_text("[limits]\nqueues = 5\n")
        out = penstock("config", "show", "--config", file, "--durability=os", PENSTOCK_LOG_LEVEL="debug").out
        lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
        assert lines["limits.queues"].split("  # ")[1] == f"{file}, line 2"
        assert lines["journal.durability"].split("# ")[1] == "the flag --durability"
        assert lines["log.level"].split("# ")[1] == "the environment variable PENSTOCK_LOG_LEVEL"
        assert lines["limits.window"] == "65535"

    def test_show_as_json(self) -> None:
        [report] = penstock("config", "show", "--ephemeral", "--json").json
        assert report["options"]["ephemeral"] is True
        assert report["origins"]["ephemeral"] == "the flag --ephemeral"
        assert report["origins"]["data"] == "default"

    def test_show_hides_passwords(self) -> None:
        url = "postgresql://mq:hush@h/d?sslpassword=hush&lease=5"
        shown = penstock("config", "show", PENSTOCK_JOURNAL_URL=url).out
        [report] = penstock("config", "show", "--json", PENSTOCK_JOURNAL_URL=url).json
        assert report["options"]["journal"]["url"] == "postgresql://mq:***@h/d?sslpassword=***&lease=5"
        assert report["options"]["journal"]["url"] in shown
        assert "hush" not in shown

    def test_token(self) -> None:
        [made] = penstock("config", "token", "--json").json
        assert hashlib.sha256(made["token"].encode()).hexdigest() == made["token_sha256"]
        lines = dict(line.split() for line in penstock("config", "token").out.splitlines())
        assert hashlib.sha256(lines["token"].encode()).hexdigest() == lines["token_sha256"]
        assert lines["token"] != made["token"]


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux a process can change its visible arguments")
def test_passwords_in_arguments_are_hidden_from_other_users() -> None:
    program = """from pathlib import Path
from penstock.cli.process_arguments import hide_passwords
hide_passwords()
print(Path("/proc/self/cmdline").read_text())"""
    given = ["--journal=postgresql://mq:hu/sh@h/d", "postgres://mq@h/d?password=hush&lease=3", "kokaq://h:1/a@b"]
    seen = subprocess.run([sys.executable, "-c", program, *given], capture_output=True, check=True, text=True).stdout
    shown = ["--journal=postgresql://mq:*****@h/d", "postgres://mq@h/d?password=****&lease=3", "kokaq://h:1/a@b"]
    assert seen.split("\0")[-4:-1] == shown


def test_variables_of_a_service_do_not_end_the_broker(tmp_path: Path) -> None:
    """Kubernetes sets such variables in containers beside a service named penstock. A misspelt option is reported."""
    others = {
        "PENSTOCK_PORT": "tcp://10.0.0.1:9100",
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_PORT_9100_TCP_ADDR": "10.0.0.1",
        "PENSTOCK_LIMIT_WINDOW": "7",
    }
    with serving(tmp_path, *FREE, "--log-level=debug", **others) as process:
        process.listeners()
        code, log = process.end()
    lines = [json.loads(line) for line in log.splitlines()]
    assert code == 0
    unknown = [line for line in lines if line["event"] == "an environment variable names no option and is ignored"]
    assert [each["variable"] for each in unknown] == ["PENSTOCK_LIMIT_WINDOW"]
    assert unknown[0]["nearest"] == "PENSTOCK_LIMITS_WINDOW"
    (passed,) = [line for line in lines if line["event"] == "environment variables of a service are ignored"]
    assert passed["variables"].split() == sorted(set(others) - {"PENSTOCK_LIMIT_WINDOW"})
    checked = penstock("config", "check", PENSTOCK_LIMIT_WINDOW="7")
    assert (checked.code, "did you mean PENSTOCK_LIMITS_WINDOW?" in checked.err) == (0, True)
    (report,) = penstock("config", "check", "--json", PENSTOCK_LIMIT_WINDOW="7").json
    assert report["unknown"] == [{"variable": "PENSTOCK_LIMIT_WINDOW", "nearest": "PENSTOCK_LIMITS_WINDOW"}]


def test_the_line_about_readiness_names_every_listener(tmp_path: Path) -> None:
    arguments = ["--phpmq=127.0.0.1:0", "--phpmq=127.0.0.1:0,dialect=32", "--sspq=off", "--kokaq=127.0.0.1:0"]
    with serving(tmp_path, *arguments) as process:
        listeners = process.listeners()
        _, log = process.end()
    (ready,) = [line for line in map(json.loads, log.splitlines()) if line["event"] == "ready"]
    assert ready["phpmq"].split() == [each["address"] for each in listeners if each["protocol"] == "phpmq"]
    assert len(ready["phpmq"].split()) == 2
    assert ready["kokaq"] == listeners[-1]["address"]


LOADED = """
import gc, os, sys
from penstock.cli.entry import main
sys.argv = ["penstock", "serve", "--help"]
try:
    main()
except SystemExit:
    pass
unneeded = {"rich", "penstock.client", "pyarrow", "psycopg"} & set(sys.modules)
print(unneeded, "numpy" in sys.modules, len(os.listdir("/proc/self/task")), gc.isenabled(), file=sys.stderr)
"""


def test_a_start_imports_only_what_it_needs_and_starts_no_threads() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stderr == "set() True 1 True\n"
