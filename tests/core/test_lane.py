"""A lane compared with a sorted list. Chunks are tiny here, so that they fill, split and vanish all the time."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.structures.deadlines import Deadlines
from penstock.core.structures.indexed_lanes import PriorityLane, RankedLane
from penstock.core.structures.item import Item
from penstock.core.structures.lane import Lane
from penstock.schema import FOREVER

PRIORITY = 5
EXPIRES = st.sampled_from([0, 0, 7, 2**62])
RETRIES = st.sampled_from([FOREVER, FOREVER, 0, 3])
SIZES = st.integers(0, 9)

# A step is a name and its values. Ranks increase in steps of 10, which leaves gaps to insert into.
STEPS = st.one_of(
    st.tuples(st.just("run"), st.lists(SIZES, min_size=1, max_size=9), EXPIRES, RETRIES),
    st.tuples(st.just("extend"), st.lists(SIZES, min_size=1, max_size=9), EXPIRES, st.sampled_from([0, 1])),
    st.tuples(st.just("insert"), st.integers(0, 300), EXPIRES, st.sampled_from([PRIORITY, 2**64 - 1])),
    st.tuples(st.just("insert_many"), st.sets(st.integers(0, 300), max_size=12), EXPIRES),
    st.tuples(st.just("take"), st.integers(0, 12)),
    st.tuples(st.just("remove"), st.integers(0, 60)),
    st.tuples(st.just("remove_many"), st.sets(st.integers(0, 60), max_size=12)),
)


@contextmanager
def sized(chunk: int, gone: int) -> Iterator[None]:
    """Set the size of chunks, and the number of removed rows at which a chunk drops them."""
    with patch("penstock.core.structures.lane.CHUNK", chunk), patch("penstock.core.structures.chunk.GONE", gone):
        yield


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with sized(3, 2):
        yield


def items(lane: Lane) -> list[Item]:
    return [Item._make(row) for row in zip(*(column.tolist() for column in lane.columns()), strict=True)]


def assert_same(lane: Lane, model: list[Item]) -> None:
    assert items(lane) == list(lane) == model
    assert len(lane) == len(model)
    assert bool(lane) == bool(model)
    assert lane.bytes == sum(item.size for item in model)
    assert lane.head() == (model[0] if model else None)


def run_step(lane: Lane, model: list[Item], step: tuple[object, ...], top: int) -> int:
    """Apply one step to both and compare the results. Returns the highest rank so far."""
    match step:
        case ("run", list(sizes), int(expires), int(retries)):
            lane.append_run(top + 1, sizes, expires, retries)
            model += [Item(top + 1 + i, top + 1 + i, s, expires, retries, PRIORITY) for i, s in enumerate(sizes)]
            return top + len(sizes)
        case ("extend", list(sizes), int(expires), int(reason)):
            more = [Item(top + 10 * (i + 1), i, s, expires, 9, PRIORITY, reason) for i, s in enumerate(sizes)]
            lane.insert_many(more)
            model += more
            return top + 10 * len(sizes)
        case ("insert", int(rank), int(expires), int(priority)):
            if rank not in {item.rank for item in model}:
                item = Item(rank, rank + 1, 4, expires, FOREVER, priority)
                lane.insert_many([item])
                insort(model, item)
            return max(top, rank)
        case ("insert_many", set(ranks), int(expires)):
            free = sorted(ranks - {item.rank for item in model}, reverse=True)
            more = [Item(rank, rank + 1, 4, expires, FOREVER, PRIORITY) for rank in free]
            lane.insert_many(more)
            model[:] = sorted(model + more)
            return max([top, *(item.rank for item in more)])
        case ("take", int(count)):
            assert lane.take(count) == model[:count]
            del model[:count]
        case ("remove", int(index)):
            expected = model.pop(index) if index < len(model) else None
            assert lane.remove(expected.rank if expected else top + 1) == expected
        case ("remove_many", set(indexes)):
            chosen = [item for index, item in enumerate(model) if index in indexes]
            assert lane.remove_many([item.rank for item in reversed(chosen)] + [top + 1]) == chosen
            model[:] = [item for item in model if item not in chosen]
    return top


@settings(max_examples=300, derandomize=True, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_lane_is_a_sorted_list(steps: list[tuple[object, ...]]) -> None:
    lane, model, top = Lane(PRIORITY), list[Item](), 0
    for step in steps:
        top = run_step(lane, model, step, top)
        assert_same(lane, model)
    for item in model:
        assert lane.get(item.rank) == lane.get(item.rank, item.position) == item
        assert lane.get(item.rank, 10**6) is None
    again = Lane(PRIORITY)
    again.fill(lane.columns())
    assert_same(again, model)
    assert again.priority == PRIORITY


@settings(max_examples=100, derandomize=True, deadline=None)
@given(sizes=st.lists(SIZES, max_size=20), start=st.integers(0, 22), count=st.integers(0, 22))
def test_columns_of_a_part(sizes: list[int], start: int, count: int) -> None:
    lane = Lane()
    lane.append_run(1, sizes, 0, FOREVER)
    assert lane.columns(start, count)[2].tolist() == sizes[start : start + count]


@pytest.mark.parametrize("chunk", [3, 70, 2048])
@pytest.mark.parametrize("priority", [0, PRIORITY])
@pytest.mark.parametrize("expires", [0, 2**62])
def test_appending_many_at_once_equals_appending_one_by_one(chunk: int, priority: int, expires: int) -> None:
    with patch("penstock.core.structures.lane.CHUNK", chunk):
        lane, model = Lane(priority), []
        for first, sizes in ((1, [7] * 130), (131, list(range(90))), (221, [3])):
            lane.append_run(first, sizes, expires)
            model += [Item(first + i, first + i, size, expires, FOREVER, priority) for i, size in enumerate(sizes)]
        assert_same(lane, model)
        taken = [item for count in (1, 60, 2) for item in lane.take(count)]
        assert taken == model[:63]
        assert {type(item) for item in taken} == {Item}
        assert_same(lane, model[63:])


def test_columns_of_an_empty_lane_have_their_types() -> None:
    lane = Lane()
    lane.append_run(1, [1])
    assert [column.dtype for column in Lane().columns()] == [column.dtype for column in lane.columns()]


@settings(max_examples=50, derandomize=True, deadline=None)
@given(steps=st.lists(STEPS, max_size=15), limit=st.integers(1, 8))
def test_rows_behind_a_place(steps: list[tuple[object, ...]], limit: int) -> None:
    lane, model, top = Lane(PRIORITY), list[Item](), 0
    for step in steps:
        top = run_step(lane, model, step, top)
    for rank, position in [(0, -1), *(item[:2] for item in model), (top + 1, 0)]:
        behind = [item for item in model if item[:2] > (rank, position)]
        assert lane.after((rank, position), limit) == behind[:limit]
    assert_same(lane, model)


def test_rows_behind_a_place_among_messages_of_one_rank() -> None:
    lane = Lane()
    for position in range(10):
        lane.insert_many([Item(50, position, 1)])
    lane.append_run(51, [1] * 5)
    assert [item.position for item in lane.after((50, 7), 4)] == [8, 9, 51, 52]
    assert [item.position for item in lane.after((50, 9), 2)] == [51, 52]


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_both_halves_of_a_split_chunk_are_indexed_by_deadline(together: bool) -> None:
    deadlines = Deadlines()
    lane = Lane(0, deadlines)
    more = [Item(rank, rank, 1, expires=100 + rank) for rank in range(1, 8)]
    lane.append_run(9, [1], expires=50)
    if together:
        for start in (0, 3):
            lane.insert_many(more[start : start + 3])
        lane.insert_many(more[6:])
    else:
        for item in more:
            lane.insert_many([item])
    assert len(deadlines) == 2
    expired = [item for _, _, _, chunk in list(deadlines) for item in lane.take_expired(chunk, 200, 10)]
    assert sorted(item.rank for item in expired) == [1, 2, 3, 4, 5, 6, 7, 9]
    assert (len(lane), list(deadlines)) == (0, [])


def test_a_lane_of_many_priorities_knows_the_priority_of_each_message() -> None:
    places = Lane()
    lane = PriorityLane(7, Deadlines(), places)
    lane.append_run(3, [1, 1])
    lane.insert_many([Item(1, 1, 1)])
    lane.insert_many([Item(9, 9, 1), Item(8, 8, 1)])
    assert [(item.rank, item.position) for item in places] == [(1, 7), (3, 7), (4, 7), (8, 7), (9, 7)]


def test_an_optional_column_begun_by_an_insert_accepts_later_appends() -> None:
    lane = Lane()
    lane.append_run(1, [1], 0, FOREVER)
    lane.insert_many([Item(2, 2, 1, expires=77)])
    lane.append_run(3, [1], 99, FOREVER)
    assert [item.expires for item in items(lane)] == [0, 77, 99]


def test_messages_of_one_rank_keep_their_order_and_are_distinguished_by_position() -> None:
    lane = Lane()
    for position in range(10):
        lane.insert_many([Item(50, position, 1)])
    assert [item.position for item in items(lane)] == list(range(10))
    for position in (7, 0, 9):
        removed = lane.remove(50, position)
        assert removed is not None
        assert removed.position == position
    assert lane.remove(50, 7) is None
    assert [item.position for item in items(lane)] == [1, 2, 3, 4, 5, 6, 8]


def test_absent_messages_are_not_found() -> None:
    lane = Lane()
    lane.append_run(10, [1, 1], 0, FOREVER)
    for rank in (1, 9, 12, 100):
        assert lane.get(rank) is None
        assert lane.remove(rank) is None
    assert lane.remove_many([9, 12]) == []
    assert Lane().head() is None
    assert Lane().take(5) == []


def test_a_plain_message_costs_no_optional_column() -> None:
    lane = Lane(3)
    lane.append_run(1, [5] * 7, 0, FOREVER)
    lane.insert_many([Item(100, 100, 1, priority=3)])
    assert not any(chunk.columns.extra for chunk in lane._chunks)


def test_ranked_lanes_find_a_message_by_its_position_whatever_its_rank() -> None:
    lane = RankedLane()
    lane.insert_many(Item(50, position, 1) for position in (4, 6, 8, 10, 12))
    lane.insert_many([Item(20, 14, 1)])
    lane.insert_many([Item(60, 2, 1), Item(61, 3, 1)])
    again = RankedLane()
    again.fill(lane.columns())
    for each in (lane, again):
        assert each.find(8) == Item(50, 8, 1)
        assert each.find(7) is None
        assert each.lowest() == 2
        assert each.remove(50, 8) == Item(50, 8, 1)
        assert each.remove(50, 8) is None
        assert each.find(8) is None
        assert each.take(1) == [Item(20, 14, 1)]
        assert each.remove_many([60]) == [Item(60, 2, 1)]
        assert sorted(item.position for item in each) == [number for number in range(20) if each.find(number)]
        assert each.lowest() == 3
    assert RankedLane().lowest() is None


@pytest.mark.parametrize(("expires", "retries"), [(0, FOREVER), (7, FOREVER), (0, 3)])
def test_messages_taken_one_by_one_move_less_than_themselves(expires: int, retries: int) -> None:
    """Otherwise, with thousands waiting, each would move all rows behind it in its chunk."""
    moved = 0
    with sized(2048, 128):
        lane = Lane()
        lane.append_run(1, [1] * 2000, expires, retries)
        for position in range(1, 6001):
            (first,) = lane._chunks[:1]
            before = first.rows
            assert [item.position for item in lane.take(1)] == [position]
            if lane._chunks[0] is first and first.rows < before:
                moved += first.rows
            lane.append_run(2000 + position, [1], expires, retries)
            assert lane.head() == Item(position + 1, position + 1, 1, expires, retries)
            assert lane.positions(2) == [position + 1, position + 2]
        assert all(chunk.rows <= 2048 for chunk in lane._chunks)
    assert len(lane) == lane.bytes == 2000
    assert moved <= 6000


def test_removed_rows_appear_in_no_result() -> None:
    """No operation on a chunk returns the messages already taken from its front."""
    with sized(100, 50):
        for count in (1, 2, 30):
            lane = Lane()
            lane.append_run(1, [1] * 80)
            assert len(lane.take(count)) == count
            left = range(count + 1, 81)
            for look in (
                lambda lane: [item.position for item in lane],
                lambda lane: lane.columns()[0].tolist(),
                lambda lane: lane.positions(100),
                lambda lane: [item.position for item in lane.after((0, 0), 100)],
            ):
                assert look(lane) == list(left)
                assert len(lane.take(1)) == 1
                left = left[1:]
            assert lane.first_rank == left[0]
            assert lane.count_up_to(left[3], 100) == 4
            assert lane.get(left[0] - 1) is None
            assert lane.remove(left[2]) == Item(left[2], left[2], 1)
            lane.insert_many([Item(left[2], left[2], 1)])
            lane.append_run(81, [1] * 100)
            assert [item.position for item in lane.take(500)] == [*left, *range(81, 181)]
            assert not lane
