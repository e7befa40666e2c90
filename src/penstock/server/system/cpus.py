"""How many CPUs this process may use. A thread that polls must leave enough for the others."""

from __future__ import annotations

import os
from pathlib import Path

#: The root of control groups, version 2.
_GROUPS = "sys/fs/cgroup"


def usable_cpus(root: Path = Path("/")) -> float:
    """The CPUs of its affinity mask, or fewer if a control group's quota, such as a container's limit, is lower."""
    cpus = float(len(os.sched_getaffinity(0)))
    for folder in _own_groups(root):
        try:
            quota, period = (folder / "cpu.max").read_text("ascii").split()
        except (OSError, ValueError):  # the root group has no such file
            continue
        if quota != "max":
            cpus = min(cpus, int(quota) / int(period))
    return cpus


def _own_groups(root: Path) -> list[Path]:
    """The folders of the process's control group and its ancestors."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    name = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if name is None:
        return []
    groups = root / _GROUPS
    return [groups, *(groups.joinpath(*Path(name).parts[:depth]) for depth in range(1, len(Path(name).parts) + 1))]
