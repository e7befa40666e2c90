"""What processes have used: on a busy machine seconds of the processor tell more than those of the clock."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

#: Of the processor, by sort of process.
Seconds = dict[str, float]

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> Seconds:
    """Seconds of the processor so far, by sort, of this process and all that came of it, those that ended included."""
    found: Seconds = defaultdict(float)
    children: dict[int, list[int]] = {}
    told: dict[int, tuple[str, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text()
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        children.setdefault(int(fields[1]), []).append(int(folder.name))
        # Of itself, and of those of its children that have ended and were waited for.
        told[int(folder.name)] = (_sort(command), sum(map(int, fields[11:15])) / _TICKS)
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        sort, seconds = told.get(process, ("", 0.0))
        found[sort] += seconds
        waiting += children.get(process, [])
    return found


def _sort(command: str) -> str:
    """What a process is, by its command."""
    words = command.split("\0")
    if "penstock.flight" in words:
        return "Flight"
    if "penstock" in words:
        return "broker"
    if words[0].endswith("java"):
        return "JVM"
    return "workers" if any(word.startswith("pyspark.") for word in words) else "bench"
