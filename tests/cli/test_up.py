"""``penstock up``: everything with one command; interrupted, killed, and started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.cli.login_link import create_login_link
from penstock.demo.agreement import Comparison, JournalEvents, compare
from penstock.demo.pipelines import Failed
from penstock.demo.traffic import ClientCounts
from support.commands import environment, penstock
from support.web import Api, WebBroker

FREE = [part for name in ("phpmq", "sspq", "kokaq", "flight", "http") for part in (f"--{name}", "127.0.0.1:0")]


def folders(where: Path) -> list[str]:
    return ["--data", str(where / "data"), "--lake", str(where / "lake"), "--every", "0.5"]


def start(where: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start it in a session of its own, like in a separate terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "up", *folders(where), *FREE, "--json", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], number: int) -> tuple[str, str]:
    """Send a signal, and wait for the end. Returns standard output and standard error."""
    process.send_signal(number)
    return process.communicate(timeout=120)


def check_the_login_link(report: dict[str, Any]) -> None:
    """It leads to the console, and the token in its fragment logs in an admin."""
    link = urlsplit(report["console"])
    assert f"{link.scheme}://{link.netloc}" == report["addresses"]["http"]
    assert link.query == ""
    route, _, query = link.fragment.partition("?")
    assert route == "/login"
    answer = Api(report["addresses"]["http"]).do("POST", "session", {"token": parse_qs(query)["token"][0]})
    assert answer["role"] == "admin"


def test_interrupted_killed_and_then_the_demo(tmp_path: Path) -> None:
    """After an interrupted and a killed run, the demo's counts must still equal the journal's exactly."""
    first = start(tmp_path)
    assert first.stdout is not None
    report: dict[str, Any] = json.loads(first.stdout.readline())
    assert set(report["addresses"]) == {"phpmq", "sspq", "kokaq", "flight", "http"}
    check_the_login_link(report)
    sent = penstock("send", f"phpmq://{report['addresses']['phpmq']}/jobs", "one", "two")
    assert sent.code == 0, sent
    first.kill()  # its processes end by themselves, and the next run waits for that
    first.communicate(timeout=60)

    second = start(tmp_path, "--demo")
    while not list((tmp_path / "lake").glob("messages/**/*.parquet")) and second.poll() is None:
        time.sleep(0.05)
    _, errors = end(second, signal.SIGINT)
    assert second.returncode in (0, 130), errors

    third = start(tmp_path, "--demo")
    out, errors = third.communicate(timeout=400)
    assert third.returncode == 0, errors
    report = json.loads(out)
    assert report["agree"] is True
    counts = {(line["what"], line["queue"]): line["found"] for line in report["counts"]}
    assert counts["archived", "default/jobs"] == 2
    assert counts["this run, sent", "default/orders"] == 500
    assert counts["this run, dead: retries", "default/sspq"] == 5
    assert (tmp_path / "lake" / "insight" / "report.html").exists()


def test_a_login_link_works_until_it_is_revoked(tmp_path: Path) -> None:
    with WebBroker(tmp_path) as broker:
        address, file = broker.addresses["http"], tmp_path / "admin-token"
        login = create_login_link(address, file)
        assert login is not None
        report = {"addresses": broker.addresses, "console": login.link}
        check_the_login_link(report)
        login.revoke()
        with pytest.raises(AssertionError, match="is unknown"):
            check_the_login_link(report)
        file.write_text("another broker's token")
        assert create_login_link(address, file) is None
        assert create_login_link(address, tmp_path / "missing") is None


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = penstock("up", *folders(tmp_path), *FREE, "--kokaq", address)
    assert outcome.code == 3
    assert "the broker did not start" in outcome.err
    assert address in outcome.err


def test_a_lake_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    outcome = penstock("up", *folders(tmp_path), *FREE)
    assert outcome.code == 3
    assert "the lake" in outcome.err
    assert "can't be written to" in outcome.err
    assert not (tmp_path / "data").exists()


def test_wrong_use() -> None:
    assert penstock("up", "--every", "never").code == 2


def test_discrepancies_are_reported(tmp_path: Path) -> None:
    """A table that lacks a row, has one twice, or counts wrong must not pass."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    counts = ClientCounts("abc")
    list(counts.bodies("default/orders", "phpmq", 2))
    payload = b'{"run": "abc", "number": 0}'
    folder = tmp_path / "messages" / "namespace=default" / "queue=orders"
    os.makedirs(folder)
    pq.write_table(pa.table({"position": [6, 6], "payload": [payload, payload]}), folder / "a.parquet")
    events = pa.table(
        {
            "message": [6, 7],
            "kind": ["published", "published"],
            "at": pa.array([1, 1], pa.timestamp("us", tz="UTC")),
            "namespace": ["default", "default"],
            "queue": ["orders", "orders"],
            "reason": pa.array([None, None], pa.string()),
        }
    )
    lines = compare(counts, JournalEvents(events, 1), tmp_path)
    assert Comparison("this run, sent", "default/orders", 2, 2) in lines
    assert [line for line in lines if not line.agrees] == [
        Comparison("distinct positions", "(all)", 2, 1),
        Comparison("published", "default/orders", 2, 0),
    ]


def test_the_cause_of_a_pipelines_failure_is_reported() -> None:
    """The reported line is the one that names the cause."""
    driver = pytest.importorskip("penstock.demo.driver")
    full = OSError("An error occurred while calling o63.start.\n: java.io.IOException: No space left\n\tat x.y.Z")
    assert driver.failed({"archive": full}) == Failed(reason="archive: java.io.IOException: No space left")
