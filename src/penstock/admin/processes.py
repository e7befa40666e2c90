"""CPU, memory and files used by the broker's processes, from Linux's ``/proc``. Other systems report nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessFigures(NamedTuple):
    """Figures of one process. ``started_at`` is in seconds since 1970."""

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    most_files: float
    started_at: float


def own_processes() -> dict[str, ProcessFigures]:
    """Figures by role: this process serves HTTP, its parent is the broker, and a sibling may serve Flight."""
    broker = os.getppid()
    found = {"broker": figures_of(broker), "http": figures_of(os.getpid())}
    for child in _children(broker):
        with suppress(OSError):
            if b"penstock.flight" in (_PROC / str(child) / "cmdline").read_bytes().split(b"\0"):
                found["flight"] = figures_of(child)
    return {name: figures for name, figures in found.items() if figures is not None}


def figures_of(process: int) -> ProcessFigures | None:
    """None if the process has ended, or there is no ``/proc``."""
    folder = _PROC / str(process)
    try:
        # after the name, which may contain spaces and parentheses
        values = (folder / "stat").read_text().rpartition(")")[2].split()
        [limit] = [line for line in (folder / "limits").read_text().splitlines() if line.startswith("Max open files")]
        [booted] = [line for line in (_PROC / "stat").read_text().splitlines() if line.startswith("btime ")]
        open_files = len(os.listdir(folder / "fd"))
    except (OSError, ValueError):
        return None
    soft = limit.split()[3]
    return ProcessFigures(
        cpu_seconds=(int(values[11]) + int(values[12])) / _TICKS,
        resident_bytes=int(values[21]) * _PAGE,
        virtual_bytes=int(values[20]),
        open_files=open_files,
        most_files=float("inf") if soft == "unlimited" else int(soft),
        started_at=int(booted.split()[1]) + int(values[19]) / _TICKS,
    )


def _children(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in (_PROC / str(process) / "task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found
