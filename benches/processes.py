"""What processes have used: on a busy machine seconds of the processor tell more than those of the clock."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple, Self

#: Of the processor, by sort of process.
Seconds = dict[str, float]

#: Seconds between two looks. Of a process that ends, what it has used since the last one is not seen.
EVERY = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """Seconds of the processor, by sort, of this process and all that came of it, those that ended included.

    Spark's daemons do not wait for workers that end, so the system forgets what these have used: they are looked at
    again and again while they are there.
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
        """What was used so far."""
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
        told = {process: found for process in present - self._others if (found := _told(process)) is not None}
        while ours := [
            process for process, found in told.items() if process in self._used or found.parent in self._used
        ]:
            for process in ours:
                self._note(process, told.pop(process))
        self._others.update(told)

    def _note(self, process: int, found: _Told) -> None:
        sort, used = self._used.get(process, ("", 0.0))
        # One that has ended, and was not waited for, has no command.
        self._used[process] = (found.sort or sort or "bench", max(used, found.seconds))


class _Told(NamedTuple):
    """What the system tells of a process."""

    parent: int
    sort: str
    seconds: float


def _told(process: int) -> _Told | None:
    try:
        command = Path(f"/proc/{process}/cmdline").read_text()
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None  # it has ended meanwhile
    return _Told(int(fields[1]), _sort(command) if command else "", sum(map(int, fields[11:13])) / _TICKS)


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
