"""Checkpoints alone: complete or absent, two are kept, and the older one replaces a damaged newer one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from penstock.journal.contract import Columns
from penstock.journal.files.checkpoints import Checkpoints
from penstock.journal.files.disk import File, Part, RealDisk, write_all
from penstock.journal.format.checkpoint import PIECE
from support.simdisk import SimDisk

COLUMNS: Columns = {
    "position": np.arange(5, dtype=np.uint64),
    "nothing": np.empty(0, np.int64),
    "reason": np.array([1, 2, 3], np.uint8),
    "every other": np.arange(10, dtype=np.int32)[::2],
}


def test_a_checkpoint_survives_the_round_trip(tmp_path: Path) -> None:
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


def test_large_columns_in_pieces(tmp_path: Path) -> None:
    """Constant columns are read back as constant."""
    rows = 3 * PIECE // 8 + 5
    columns: Columns = {
        "position": np.arange(rows, dtype=np.uint64),
        "queue": np.broadcast_to(np.array(3, np.uint32), rows),
        "size": np.full(rows, 100, np.uint32),
        "late": np.append(np.zeros(rows - 1, np.uint8), np.uint8(1)),
    }
    checkpoints = Checkpoints(RealDisk(tmp_path), 7)
    checkpoints.write(42, b"{}", columns)
    found = checkpoints.newest_good()
    assert found is not None
    for name, column in columns.items():
        assert (found.columns[name] == column).all()
    assert [name for name, column in found.columns.items() if column.strides == (0,)] == ["queue", "size"]


class Slow:
    """A file that takes a few bytes at a time."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, parts: Sequence[Part], offset: int) -> int:
        assert offset == len(self.data)
        taken = b"".join(parts)[:3]
        self.data += taken
        return len(taken)


def test_a_file_that_writes_less_than_requested() -> None:
    file = Slow()
    parts: list[Part] = [b"", b"ab", memoryview(b"cdefg"), b"", b"h" * 7, b""]
    assert write_all(cast(File, file), parts, 0) == 14
    assert file.data == b"abcdefg" + b"h" * 7
    many: list[Part] = [b"x", b"yz"] * 1500
    assert write_all(cast(File, Slow()), many, 0) == 4500
    with pytest.raises(OSError, match="no more bytes"):
        write_all(cast(File, Full()), parts, 0)


class Full:
    def write(self, parts: Sequence[Part], offset: int) -> int:
        return 0


def test_two_are_kept() -> None:
    checkpoints = Checkpoints(SimDisk(), 7)
    for position in (10, 20, 30, 30, 40):
        checkpoints.write(position, b"{}", {})
    assert checkpoints.positions() == [30, 40]


def test_the_older_checkpoint_replaces_a_damaged_one() -> None:
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
        assert checkpoints.report[0].startswith(f"{name} is skipped: it")
    for size in reversed(range(disk.open(name).size())):
        disk.open(name).truncate(size)
        found = Checkpoints(disk, 7).newest_good()
        assert found is not None, size
        assert found.meta == b"old"


def test_a_checkpoint_of_another_journal_is_not_used() -> None:
    disk = SimDisk()
    Checkpoints(disk, 7).write(1, b"{}", {})
    other = Checkpoints(disk, 8)
    assert other.newest_good() is None
    assert "belongs to another journal" in other.report[0]


@pytest.mark.parametrize("keep", ["none", "all", "any"])
def test_a_crash_at_any_call_leaves_a_valid_checkpoint(keep: str) -> None:
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
