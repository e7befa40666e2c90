"""Blocks are as large as the link to the database carries within a part of the lease."""

from __future__ import annotations

import pytest

from penstock.journal.postgresql.pace import FIRST, LEAST, MOST, PART, BlockPace

LEASE = 3.0


@pytest.mark.parametrize("rate", [100_000, 1_000_000, 10_000_000, 100_000_000])
def test_block_sizes_settle_at_the_capacity_of_the_link(rate: int) -> None:
    pace = BlockPace(LEASE)
    sizes = []
    for _ in range(40):
        sizes.append(pace.bytes)
        pace.note(pace.bytes, pace.bytes / rate)
    fair = min(MOST, max(LEAST, rate * LEASE * PART))
    assert all(fair / 2 <= size <= 2 * fair for size in sizes[10:])


def test_small_blocks_do_not_change_the_pace() -> None:
    pace = BlockPace(LEASE)
    pace.note(200, 2.0)
    assert pace.bytes == FIRST
    pace.note(LEAST, 0.001)
    assert pace.bytes == FIRST, "the size was not the limiting factor"


def test_a_large_message_reduces_the_pace_only_by_its_duration() -> None:
    pace = BlockPace(LEASE)
    pace.note(64 * 2**20, 1.0)
    assert pace.bytes == FIRST
    pace.note(64 * 2**20, 64.0)
    assert LEAST < pace.bytes < FIRST
