"""Every example runs with the command in its docstring, and prints the output there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers import BrokerProcess

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
PROTOCOLS = {"9100": "phpmq", "8888": "sspq", "9420": "kokaq"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # A broker's defaults except the ports, because an example must not need special settings.
    with BrokerProcess(tmp_path_factory.mktemp("broker"), kokaq=[{"address": "127.0.0.1:0"}]) as live:
        yield live


def documented(example: Path) -> tuple[str, str]:
    """The command line and the output in the docstring."""
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    before, _, after = docstring.partition("\nprints\n\n")
    return before.rsplit("\n\n", 2)[1].strip(), textwrap.dedent(after) + "\n"


def run(example: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(example), *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_prints_the_documented_output(example: Path, broker: BrokerProcess) -> None:
    command, output = documented(example)
    port = command.rpartition(":")[2]
    assert command == f"python examples/{example.name} 127.0.0.1:{port}"
    done = run(example, broker.addresses[PROTOCOLS[port]])
    assert (done.returncode, done.stdout) == (0, output), done.stderr


@pytest.mark.parametrize("example", [path for path in EXAMPLES if "hello" in path.stem], ids=lambda path: path.stem)
def test_the_address_may_be_in_the_environment(example: Path, broker: BrokerProcess) -> None:
    command, output = documented(example)
    protocol = PROTOCOLS[command.rpartition(":")[2]]
    done = run(example, **{f"PENSTOCK_{protocol.upper()}": broker.addresses[protocol]})
    assert (done.returncode, done.stdout) == (0, output), done.stderr
