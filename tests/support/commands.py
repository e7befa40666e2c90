"""The real ``penstock`` command, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

from click.testing import CliRunner

from penstock.cli.main import main
from penstock.compiled import VARIABLE

COMMAND = [sys.executable, "-m", "penstock"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> list[Any]:
        """The JSON values on standard output, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(**extra: str) -> dict[str, str]:
    """Our environment, without broker settings, and without companion processes, which start slowly."""
    kept = {name: value for name, value in os.environ.items() if name == VARIABLE or not name.startswith("PENSTOCK_")}
    return {**kept, "COLUMNS": "200", "PENSTOCK_FLIGHT": "off", "PENSTOCK_HTTP": "off", **extra}


def penstock(*arguments: object, stdin: bytes | None = b"", timeout: float = 60, **env: str) -> Outcome:
    """Run a command to its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin, capture_output=True, timeout=timeout, env=environment(**env), check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def penstock_here(*arguments: object, stdin: str = "", **env: str) -> Outcome:
    """Like ``penstock``, but quicker, in this process: for commands that start no process and await no signal."""
    unset = {name: None for name in os.environ if name.startswith("PENSTOCK_")}
    done = CliRunner().invoke(main, [*map(str, arguments)], input=stdin, env={**unset, "COLUMNS": "200", **env})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Outcome(done.exit_code, done.stdout, done.stderr)
