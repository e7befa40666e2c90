"""Every process that a command starts ends when that command is killed and cannot clean up."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

import penstock
from support.brokers import BrokerProcess, wait_for
from support.commands import COMMAND, environment
from support.web import WebBroker

SOURCES = Path(penstock.__file__).parent
#: Functions that start processes.
STARTS = {"Popen", "create_subprocess_exec", "create_subprocess_shell", "fork", "get_context", "posix_spawn", "run"}
#: The modules that start processes, and how those processes end with us: see ``companions/parent.py``.
KNOWN = {
    "bench/run.py": "end_with, in worker.py",
    "compiled/build.py": "standard input",
    "demo/postgresql.py": "with_parent",
    "demo/processes.py": "with_parent",
    "server/companions/companion_process.py": "standard input",
    "spark/java.py": "it only prints its version",
    "sql/pool.py": "standard input",
}
_MODULES = {"subprocess", "asyncio", "os", "multiprocessing"}


def starts_processes(file: Path) -> bool:
    """Whether a module calls a function that starts processes, qualified or imported by name."""
    tree = ast.parse(file.read_text())
    imported = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in _MODULES
        for name in node.names
    }
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in STARTS and isinstance(called.value, ast.Name):
            if called.value.id in _MODULES and (called.value.id, called.attr) != ("asyncio", "run"):
                return True
        elif isinstance(called, ast.Name) and called.id in STARTS & imported:
            return True
    return False


def test_every_module_that_starts_processes_is_known() -> None:
    """Add a new one to KNOWN, with how its processes end, and to a test below."""
    found = {str(file.relative_to(SOURCES)) for file in SOURCES.rglob("*.py") if starts_processes(file)}
    assert found == KNOWN.keys()


def descendants(pid: int) -> dict[int, str]:
    """All running descendants of a process, each with its start time, because process IDs are reused."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            parents[int(entry.name)] = stat
    found: dict[int, str] = {}
    added = {pid}
    while added:
        added = {each for each, (parent, _) in parents.items() if parent in added}
        found |= {each: parents[each][1] for each in added}
    return found


def _stat(pid: int) -> tuple[int, str] | None:
    """The parent of a process and its start time; None if the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (int(fields[1]), fields[19])


def still_running(processes: dict[int, str]) -> list[int]:
    """The processes that still run."""
    return [pid for pid, began in processes.items() if (stat := _stat(pid)) is not None and stat[1] == began]


def check_that_none_survives(pid: int, kill: Callable[[], None]) -> None:
    """Kill a process, and wait until all its descendants have ended."""
    started = descendants(pid)
    try:
        kill()
        wait_for(lambda: not still_running(started), f"processes are left behind: {started}")
    finally:
        for each in still_running(started):
            os.kill(each, signal.SIGKILL)


@contextmanager
def running(*arguments: str, folder: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "temporary").mkdir()
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(TMPDIR=str(folder / "temporary"), **env),
        cwd=folder,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_bench_with_a_broker_of_its_own(tmp_path: Path) -> None:
    with running("bench", "--duration=600", "--protocol=phpmq", folder=tmp_path) as bench:
        # the broker, a process of producers, one of consumers, and helpers of multiprocessing
        wait_for(lambda: len(descendants(bench.pid)) >= 4, "the bench did not begin")
        check_that_none_survives(bench.pid, bench.kill)


def test_bench_on_a_broker_that_stays(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        url = broker.url("kokaq", "/default/bench")
        with running("bench", url, "--duration=600", "--processes=2", folder=tmp_path) as bench:
            wait_for(lambda: len(descendants(bench.pid)) >= 3, "the bench did not begin")
            check_that_none_survives(bench.pid, bench.kill)
        assert broker.stop() == 0


def test_serve_with_all_its_companions(tmp_path: Path) -> None:
    """Flight, HTTP, and an SQL process that is busy."""
    with WebBroker(tmp_path, flight="127.0.0.1:0") as broker:
        api = broker.api
        endless = {"query": "select count(*) from range(100000000) a, range(100000000) b", "seconds": 60}

        def ask() -> None:
            with suppress(OSError, HTTPException):  # the connection breaks when the broker is killed
                api.ask("POST", "/api/v1/sql", endless)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_for(lambda: len(descendants(broker.pid)) >= 3, "no SQL is answered")
        check_that_none_survives(broker.pid, broker.kill)
        asking.join()


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
def test_compile(tmp_path: Path) -> None:
    """A copy of the sources is compiled, which leaves the compiled modules of this tree alone."""
    shutil.copytree(SOURCES, tmp_path / "penstock", ignore=shutil.ignore_patterns("native", "__pycache__"))
    with running("compile", folder=tmp_path, PYTHONPATH=str(tmp_path)) as compiling:
        wait_for(lambda: descendants(compiling.pid), "compiling did not begin")
        check_that_none_survives(compiling.pid, compiling.kill)
