"""How many processors this process may use: what a thread that polls takes must not be what others need."""

from __future__ import annotations

import os
from pathlib import Path

#: Where the control groups of version 2 are.
_GROUPS = "sys/fs/cgroup"


def usable_processors(root: Path = Path("/")) -> float:
    """By the processors it may run on, and by the quotas of its control groups: a container's limit is one."""
    processors = float(len(os.sched_getaffinity(0)))
    for folder in _own_groups(root):
        try:
            quota, period = (folder / "cpu.max").read_text("ascii").split()
        except (OSError, ValueError):  # the outermost group has no such file
            continue
        if quota != "max":
            processors = min(processors, int(quota) / int(period))
    return processors


def _own_groups(root: Path) -> list[Path]:
    """The group this process is in, and those around it."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    name = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if name is None:
        return []
    groups = root / _GROUPS
    return [groups, *(groups.joinpath(*Path(name).parts[:depth]) for depth in range(1, len(Path(name).parts) + 1))]
