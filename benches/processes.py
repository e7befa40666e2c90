"""CPU time of processes: on a busy machine it is more reliable than wall-clock time."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple, Self

#: Seconds of CPU by kind of process.
Seconds = dict[str, float]

#: Seconds between two samples. A process's usage after its last sample is lost.
EVERY = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """Seconds of CPU, by kind, of this process and all its descendants, including those that have ended.

    Spark's daemons do not wait for workers that end, so the system forgets their usage: they are sampled while
    they run.
    """

    def __init__(self) -> None:
        self._used: dict[int, tuple[str, float]] = {os.getpid(): ("bench", 0.0)}
        self._others: set[int] = set()
        self._looking = Lock()
        self._ended = Event()
        self._thread = Thread(target=self._run, name="cpu-meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def seconds(self) -> Seconds:
        """The usage so far."""
        with self._looking:
            self._look()
            found: Seconds = defaultdict(float)
            for sort, used in self._used.values():
                found[sort] += used
            return found

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            with self._looking:
                self._look()

    def _look(self) -> None:
        present = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._others &= present
        unknown = {process: found for process in present - self._others if (found := _usage(process)) is not None}
        while ours := [
            process for process, found in unknown.items() if process in self._used or found.parent in self._used
        ]:
            for process in ours:
                self._note(process, unknown.pop(process))
        self._others.update(unknown)

    def _note(self, process: int, found: _Usage) -> None:
        sort, used = self._used.get(process, ("", 0.0))
        # A zombie has no command.
        self._used[process] = (found.sort or sort or "bench", max(used, found.seconds))


class _Usage(NamedTuple):
    """The parent, kind and CPU time of a process."""

    parent: int
    sort: str
    seconds: float


def _usage(process: int) -> _Usage | None:
    try:
        command = Path(f"/proc/{process}/cmdline").read_text()
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None  # it has ended meanwhile
    return _Usage(int(fields[1]), _sort(command) if command else "", sum(map(int, fields[11:13])) / _TICKS)


def _sort(command: str) -> str:
    """The kind of a process, by its command."""
    words = command.split("\0")
    if "penstock.flight" in words:
        return "Flight"
    if "penstock" in words:
        return "broker"
    if words[0].endswith("java"):
        return "JVM"
    return "workers" if any(word.startswith("pyspark.") for word in words) else "bench"
