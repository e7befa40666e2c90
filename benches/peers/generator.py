"""The load generator: compiled from ``generator/`` when it is needed, run as a process that prints one line of JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import msgspec

SOURCES = Path(__file__).parent / "generator"


class GeneratorError(Exception):
    """The generator could not be compiled, or a run failed."""


class Outcome(msgspec.Struct, frozen=True):
    """The counts of a run. ``rate`` is of settled messages, or of confirmed ones without consumers."""

    published: int
    confirmed: int
    delivered: int
    distinct: int
    repeated: int
    settled: int
    seconds: float
    whole_seconds: float
    rate: float
    answers: int
    p50_us: float
    p99_us: float
    cpu_share: float
    #: On the monotonic clock, which all processes of a machine share.
    first_delivery: float
    reads: int
    writes: int
    idle_lost: int


def compiled(folder: Path, compiler: str = "cc") -> Path:
    """Compile the generator in this folder."""
    if shutil.which(compiler) is None:
        raise GeneratorError(
            f"there is no C compiler {compiler!r}. Install one (Debian: apt-get install -y gcc libc6-dev)"
        )
    target = folder / "load"
    sources = sorted(map(str, SOURCES.glob("*.c")))
    done = subprocess.run(
        [compiler, "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", str(target), *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GeneratorError(f"{compiler} could not compile the generator:\n{done.stderr.strip()}")
    return target


def run(generator: Path, protocol: str, port: int, **flags: object) -> Outcome:
    """One run. Flags are those of ``generator/main.c``; one that is True is given without a value."""
    command = [str(generator), protocol, f"--port={port}"]
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        command.append(flag if value is True else f"{flag}={value}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GeneratorError(f"{' '.join(command[1:])}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return msgspec.convert(json.loads(done.stdout), Outcome)
