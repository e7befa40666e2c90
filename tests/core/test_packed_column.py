"""Packed columns keep their values in fewer bytes."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.structures.chunk import PackedColumns
from penstock.core.structures.item import Item
from penstock.core.structures.lane import CHUNK, Lane
from penstock.core.structures.packed_column import PackedColumn, pack, unpack

LIMITS = {"B": (0, 2**8), "I": (0, 2**32), "Q": (0, 2**64), "q": (-(2**63), 2**63)}


@given(st.data())
def test_there_and_back(data: st.DataObject) -> None:
    code = data.draw(st.sampled_from(sorted(LIMITS)))
    low, end = LIMITS[code]
    base = data.draw(st.integers(low, end - 1))
    spread = data.draw(st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64]))
    values = data.draw(st.lists(st.integers(base, min(base + spread, end - 1)), min_size=1, max_size=50))
    column = array(code, values)
    assert unpack(pack(column), code) == column


@given(st.integers(0, 2**63), st.integers(2, 100))
def test_a_run_is_a_range(first: int, count: int) -> None:
    column = array("Q", range(first, first + count))
    packed = pack(column)
    assert packed == PackedColumn(first, range(count), count)
    assert unpack(packed, "Q") == column


def size_of(lane: Lane) -> int:
    """Return the bytes in the arrays of a lane."""
    arrays: list[object] = []
    for chunk in lane._chunks:
        held = chunk._columns
        if isinstance(held, PackedColumns):
            arrays += [held._ranks.distances, held._sizes.distances, *(column.distances for _, column in held._extra)]
        else:
            arrays += [held.ranks, held.sizes, *held.extra.values()]
    return sum(len(each) * each.itemsize for each in arrays if isinstance(each, array))


def test_the_memory_of_waiting_messages() -> None:
    runs, mixed = Lane(), Lane()
    runs.append_run(1, [100] * 20 * CHUNK)
    for at in range(20 * CHUNK):
        mixed.append_run(3 * at - at % 3, [at % 1000])
    assert size_of(runs) <= 12 * CHUNK
    assert size_of(mixed) <= 19 * CHUNK * 4 + 12 * CHUNK


def test_reading_does_not_unpack_and_changing_does() -> None:
    lane = Lane()
    lane.append_run(1, [7] * 10 * CHUNK)
    before = size_of(lane)
    assert list(lane) == [Item(at, at, 7) for at in range(1, 10 * CHUNK + 1)]
    assert lane.columns()[1].tolist() == lane.columns()[0].tolist() == list(range(1, 10 * CHUNK + 1))
    assert size_of(lane) == before
    assert lane.remove(5 * CHUNK) == Item(5 * CHUNK, 5 * CHUNK, 7)
    assert len(lane) == 10 * CHUNK - 1
    assert lane.take(3 * CHUNK) == [Item(at, at, 7) for at in range(1, 3 * CHUNK + 1)]
