"""The number of CPUs that a process may use: its affinity, and the quotas of its control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.server.system.cpus import usable_cpus


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))


def groups(root: Path, own: str, **quotas: str) -> Path:
    """A system on which this process is in group ``own``; quotas by group path, with _ for /."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for name, quota in quotas.items():
        folder = root / "sys/fs/cgroup" / name.replace("_", "/").strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(quota)
    return root


@pytest.mark.parametrize(
    ("own", "quotas", "cpus"),
    [
        ("0::/\n", {}, 8),
        ("0::/\n", {"_": "50000 100000\n"}, 0.5),
        ("0::/\n", {"_": "max 100000\n"}, 8),
        ("0::/a/b\n", {"a": "150000 100000\n", "a_b": "max 100000\n"}, 1.5),
        ("0::/a/b\n", {"a": "400000 100000\n", "a_b": "200000 100000\n"}, 2),
        ("0::/a/b\n", {"a_c": "100000 100000\n"}, 8),
        ("0::/a\n", {"a": "1600000 100000\n"}, 8),
        ("4:cpu:/a\n1:name=systemd:/\n0::/a\n", {"a": "100000 100000\n"}, 1),
        ("4:cpu:/a\n", {"a": "100000 100000\n"}, 8),
        ("0::/a\n", {"a": "nonsense\n"}, 8),
    ],
)
def test_the_smallest_quota_counts(tmp_path: Path, own: str, quotas: dict[str, str], cpus: float) -> None:
    assert usable_cpus(groups(tmp_path, own, **quotas)) == cpus


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path) == 8


def test_this_system() -> None:
    assert 0 < usable_cpus() <= 8
