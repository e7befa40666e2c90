"""Find and kill Spark's Python workers."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

#: Part of the command lines of a worker and of the process that it is forked from.
DAEMON = b"pyspark.daemon"


def python_workers(sessions: Iterable[int]) -> list[int]:
    """The Python processes that Spark has started in these process sessions to run tasks and sources."""
    wanted = set(sessions)
    return sorted(pid for pid, session, command in _processes() if session in wanted and DAEMON in command)


def kill_python_worker(sessions: Iterable[int], choice: random.Random) -> int:
    """SIGKILL one of them, if there is any. Returns how many were killed."""
    found = python_workers(sessions)
    if not found:
        return 0
    with suppress(ProcessLookupError):
        os.kill(choice.choice(found), signal.SIGKILL)
    return 1


def _processes() -> Iterator[tuple[int, int, bytes]]:
    """Number, session and command line of all processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            yield int(folder.name), int(after_name[3]), (folder / "cmdline").read_bytes()
