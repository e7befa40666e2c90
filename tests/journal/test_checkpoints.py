"""Checkpoints alone: whole or not at all, two of them, and the older one when the newer is bad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.journal.contract import Columns
from penstock.journal.files.checkpoints import Checkpoints
from penstock.journal.files.disk import RealDisk
from support.simdisk import SimDisk

COLUMNS: Columns = {
    "position": np.arange(5, dtype=np.uint64),
    "nothing": np.empty(0, np.int64),
    "reason": np.array([1, 2, 3], np.uint8),
    "every other": np.arange(10, dtype=np.int32)[::2],
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    checkpoints = Checkpoints(RealDisk(tmp_path), 7)
    assert checkpoints.newest_good() is None
    checkpoints.write(42, b'{"queues": 3}', COLUMNS, clean=True)
    found = checkpoints.newest_good()
    assert found is not None
    assert (found.position, found.meta, found.clean) == (42, b'{"queues": 3}', True)
    assert list(found.columns) == list(COLUMNS)
    for name, column in COLUMNS.items():
        assert found.columns[name].dtype == column.dtype
        assert found.columns[name].tolist() == column.tolist()
    assert [each.name for each in tmp_path.iterdir()] == ["000000000000002a.ckpt"]


def test_two_are_kept() -> None:
    checkpoints = Checkpoints(SimDisk(), 7)
    for position in (10, 20, 30, 30, 40):
        checkpoints.write(position, b"{}", {})
    assert checkpoints.positions() == [30, 40]


def test_the_older_one_stands_in_for_a_bad_one() -> None:
    disk = SimDisk()
    Checkpoints(disk, 7).write(1, b"old", {})
    Checkpoints(disk, 7).write(2, b"new", COLUMNS)
    name = f"{2:016x}.ckpt"
    for bit in range(disk.open(name).size() * 8):
        disk.flip(name, bit)
        checkpoints = Checkpoints(disk, 7)
        found = checkpoints.newest_good()
        disk.flip(name, bit)
        assert found is not None
        assert found.meta == b"old"
        assert checkpoints.report[0].startswith(f"{name} is passed over: it")
    for size in reversed(range(disk.open(name).size())):
        disk.open(name).truncate(size)
        found = Checkpoints(disk, 7).newest_good()
        assert found is not None, size
        assert found.meta == b"old"


def test_one_of_another_journal_is_not_used() -> None:
    disk = SimDisk()
    Checkpoints(disk, 7).write(1, b"{}", {})
    other = Checkpoints(disk, 8)
    assert other.newest_good() is None
    assert "belongs to another journal" in other.report[0]


@pytest.mark.parametrize("keep", ["none", "all", "any"])
def test_a_crash_at_any_call_leaves_a_good_one(keep: str) -> None:
    disk = SimDisk()
    Checkpoints(disk, 7).write(1, b"old", {})
    before = disk.made
    Checkpoints(disk, 7).write(2, b"new", COLUMNS)
    for number in range(before + 1, disk.made + 1):
        disk = SimDisk(number)
        Checkpoints(disk, 7).write(1, b"old", {})
        disk.fail_at(number, "EIO")
        with pytest.raises(OSError, match="simulated EIO"):
            Checkpoints(disk, 7).write(2, b"new", COLUMNS)
        disk.crash(keep)
        checkpoints = Checkpoints(disk, 7)
        found = checkpoints.newest_good()
        assert found is not None
        assert found.meta in {b"old", b"new"}
        assert checkpoints.report == []
        checkpoints.write(3, b"next", {})
