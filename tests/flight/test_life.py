"""The endpoint's process: started, supervised and ended by its broker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest

from penstock.client import Refused, connect
from support.brokers import BrokerProcess, wait_for
from support.certificates import Authority
from support.commands import COMMAND, environment
from support.flights import Flight, problem

FREE = {"address": "127.0.0.1:0"}
#: Stands for a variable that is not set.
DEFAULT = "not set"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, flight=FREE) as live:
        yield live


def children(pid: int) -> list[int]:
    """The running child processes of a process."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(folder.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def events(broker: BrokerProcess) -> list[str]:
    return [json.loads(line)["event"] for line in broker.log.read_text().splitlines()]


def answers(flight: Flight) -> bool:
    try:
        return bool(flight.act("status"))
    except fl.FlightUnavailableError:
        return False


class TestSupervised:
    def test_a_killed_endpoint_is_restarted_at_its_address(self, broker: BrokerProcess) -> None:
        with Flight(broker.addresses["flight"]) as flight:
            assert answers(flight)
            [child] = children(broker.pid)
            os.kill(child, signal.SIGKILL)
            wait_for(lambda: "the Flight endpoint is ready" in events(broker))
            assert "the Flight endpoint has ended and is started again" in events(broker)
            wait_for(lambda: answers(flight))
            assert children(broker.pid) != [child]
            with connect(broker.url("kokaq")) as client:
                client.publish(b"x", queue="default/x")
            assert flight.read(queue="default/x").num_rows == 1

    def test_it_ends_when_its_broker_is_killed(self, broker: BrokerProcess) -> None:
        [child] = children(broker.pid)
        broker.kill()
        wait_for(lambda: not is_running(child))

    def test_it_ends_when_its_broker_stops_during_a_read(self, broker: BrokerProcess) -> None:
        [child] = children(broker.pid)
        with connect(broker.url("kokaq")) as client:
            client.publish_many([bytes(60_000)] * 1000, queue="default/x")
        with Flight(broker.addresses["flight"]) as flight:
            stream = flight.client.do_get(fl.Ticket(b"{}"), flight.options)
            assert stream.read_chunk().data.num_rows
            broker.stop()
            assert not is_running(child)
            assert events(broker)[-1] == "stopped"

    def test_a_client_continues_after_a_restart_of_the_broker(self, broker: BrokerProcess) -> None:
        with Flight(broker.addresses["flight"]) as flight:
            before = flight.act("status")
            broker.kill()
            broker.start()  # at once: the killed broker's endpoint may still be running
            wait_for(lambda: answers(flight))
            assert flight.act("status")["identity"] == before["identity"]


class TestEphemeral:
    @pytest.fixture
    def broker(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
        (tmp_path / "temporary").mkdir()
        monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
        with BrokerProcess(tmp_path, flight=FREE, ephemeral=True) as live:
            yield live

    def test_a_killed_endpoint_is_restarted_and_continues_reading(self, broker: BrokerProcess) -> None:
        with Flight(broker.addresses["flight"]) as flight, connect(broker.url("kokaq")) as client:
            client.publish(b"x", queue="default/x")
            before = flight.rows()
            [child] = children(broker.pid)
            os.kill(child, signal.SIGKILL)
            wait_for(lambda: "the Flight endpoint is ready" in events(broker))
            wait_for(lambda: answers(flight))
            assert flight.rows() == before
            client.publish(b"y", queue="default/x")
            assert [row["payload"] for row in flight.rows(view="live")] == [b"x", b"y"]

    def test_a_killed_broker_leaves_no_files(self, broker: BrokerProcess, tmp_path: Path) -> None:
        with Flight(broker.addresses["flight"]) as flight, connect(broker.url("kokaq")) as client:
            client.publish_many([bytes(1000)] * 100, queue="default/x")
            assert flight.read().num_rows == 100
            [child] = children(broker.pid)
            broker.kill()
        wait_for(lambda: not is_running(child))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "penstock.toml", "ready.json", "temporary"]
        assert list((tmp_path / "temporary").iterdir()) == []

    def test_history_is_bounded_and_waiting_messages_are_carried(self, tmp_path: Path) -> None:
        """History takes 1/8 of the memory, in extents of 64 KiB; with little memory it is short."""
        limits = {"state_bytes": 4 * 2**20}
        with (
            BrokerProcess(tmp_path, flight=FREE, ephemeral=True, limits=limits) as live,
            Flight(live.addresses["flight"]) as flight,
            connect(live.url("kokaq")) as client,
        ):
            client.publish_many([b"kept %d" % number for number in range(30)], queue="default/kept")
            kept = flight.rows(queue="default/kept")

            def churn() -> bool:
                with suppress(Refused):  # refused if it is more than compaction removes in a second
                    client.publish_many([bytes(10_000)] * 30, queue="default/churn")
                while (message := client.lock("default/churn")) is not None:
                    message.ack()
                return bool(flight.act("status")["earliest"] > kept[-1]["position"])

            wait_for(churn, "history grows without bound")
            assert problem(lambda: flight.read(start=kept[0]["position"])).code == "data-loss"
            alive = sorted(flight.rows(view="live", queue="default/kept"), key=lambda row: row["position"])
            assert [row["payload"] for row in alive] == [row["payload"] for row in kept]


class TestStart:
    def start(self, folder: Path, *flags: str, **env: str) -> tuple[int, str]:
        """Start a broker and stop it as soon as it is ready. Returns exit code and log."""
        ready = folder / "ready.json"
        command = [*COMMAND, "serve", f"--data={folder}/data", f"--ready-file={ready}", "--phpmq=127.0.0.1:0"]
        command += ["--sspq=off", "--kokaq=off", *flags]
        env = {name: value for name, value in environment(**env).items() if value != DEFAULT}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
            wait_for(lambda: ready.exists() or process.poll() is not None)
            process.terminate()
            log = process.communicate(timeout=20)[1]
        return process.returncode, log

    def test_an_address_in_use(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            code, log = self.start(tmp_path, f"--flight=127.0.0.1:{taken.getsockname()[1]}")
        assert code == 3
        assert "flight cannot listen on 127.0.0.1:" in log
        assert "Address already in use" in log

    def test_an_invalid_certificate(self, tmp_path: Path) -> None:
        (tmp_path / "x.pem").write_text("nonsense")
        code, log = self.start(tmp_path, f"--flight=127.0.0.1:0,tls_certificate={tmp_path}/x.pem")
        assert code == 3
        assert "check that the certificate is valid" in log

    def test_a_missing_certificate(self, tmp_path: Path) -> None:
        code, log = self.start(tmp_path, "--flight=127.0.0.1:0,tls_certificate=/nowhere.pem")
        assert code == 3
        assert "/nowhere.pem: No such file" in log

    @pytest.fixture
    @staticmethod
    def without_pyarrow(tmp_path: Path) -> str:
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
        return os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def test_without_pyarrow_there_is_no_endpoint(self, tmp_path: Path, without_pyarrow: str) -> None:
        code, log = self.start(tmp_path, PYTHONPATH=without_pyarrow, PENSTOCK_FLIGHT=DEFAULT)
        assert code == 0
        assert "no Flight endpoint" in log
        assert "pip install 'penstock[flight]'" in log

    def test_without_pyarrow_a_configured_endpoint_is_an_error(self, tmp_path: Path, without_pyarrow: str) -> None:
        code, log = self.start(tmp_path, "--flight=127.0.0.1:0", PYTHONPATH=without_pyarrow)
        assert code == 3
        assert "pip install 'penstock[flight]'" in log

    def test_an_ephemeral_broker_has_an_endpoint(self, tmp_path: Path) -> None:
        code, log = self.start(tmp_path, "--ephemeral", "--flight=127.0.0.1:0")
        assert code == 0
        assert '"flight": "grpc://127.0.0.1:' in log
        assert not (tmp_path / "data").exists()

    def test_a_unix_socket(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path, flight={"address": f"unix:{tmp_path}/flight"}) as live:
            assert live.addresses["flight"] == f"grpc+unix://{tmp_path}/flight"
            with Flight(live.addresses["flight"]) as flight:
                assert flight.act("queues") == ["default/sspq"]
            live.stop()
        assert not (tmp_path / "flight").exists()


def test_a_new_certificate_after_sighup(tmp_path: Path) -> None:
    one, two = Authority(tmp_path / "one"), Authority(tmp_path / "two")
    first, second = one.sign("localhost"), two.sign("localhost")
    pem = tmp_path / "server.pem"
    pem.write_bytes(first.path.read_bytes() + first.key.read_bytes())
    flight: dict[str, Any] = {**FREE, "tls_certificate": str(pem)}
    with BrokerProcess(tmp_path, flight=flight) as live:

        def trusting(authority: Authority) -> bool:
            roots = authority.path.read_bytes()
            with Flight(live.addresses["flight"], tls_root_certs=roots, override_hostname="localhost") as client:
                return answers(client)

        assert trusting(one)
        assert not trusting(two)
        pem.write_bytes(second.path.read_bytes() + second.key.read_bytes())
        os.kill(live.pid, signal.SIGHUP)
        wait_for(lambda: trusting(two))
        assert not trusting(one)


def test_damage_is_reported_and_reveals_no_paths(broker: BrokerProcess) -> None:
    with connect(broker.url("kokaq")) as client:
        client.publish_many([b"needle" * 100] * 50, queue="default/x")
    [segment] = (broker.folder / "data").glob("*.seg")
    data = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(data.rindex(b"needle"))
        file.write(b"NEEDLE")
    with Flight(broker.addresses["flight"]) as flight:
        found = problem(flight.read)
        assert (found.code, found.lost is not None) == ("data-loss", True)
        assert str(broker.folder) not in found.text
        assert flight.read(columns=["position"]).num_rows == 50
