"""What it is measured on."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path
from statistics import median

from benches.peers.servers.base import said

#: Synchronous writes whose median duration is reported.
SYNCS = 200


def description(folder: Path | None) -> list[tuple[str, str]]:
    """Names and values: CPU, memory, system, disk."""
    where = folder or Path(tempfile.gettempdir())
    return [
        ("CPU", f"{os.cpu_count()} × {_first('/proc/cpuinfo', 'model name') or platform.machine()}"),
        ("memory", f"{int(_first('/proc/meminfo', 'MemTotal').split()[0]) / 1024**2:.0f} GiB"),
        ("system", f"{platform.system()} {platform.release()}, {_distribution()}"),
        ("file system", said("df", "--output=fstype", str(where)).split()[-1]),
        ("a write of 4 KiB and fdatasync", f"{_sync_microseconds(where):,.0f} µs (median of {SYNCS})"),
        ("Python", platform.python_version()),
        ("compiler", said("cc", "--version").partition("\n")[0]),
    ]


def _first(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return "unknown distribution"


def _sync_microseconds(folder: Path) -> float:
    with tempfile.NamedTemporaryFile(dir=folder, prefix="bench-peers-") as file:
        return median(_sync_once(file.fileno()) for _ in range(SYNCS)) * 1e6


def _sync_once(file: int) -> float:
    began = time.perf_counter()
    os.write(file, bytes(4096))
    os.fdatasync(file)
    return time.perf_counter() - began
