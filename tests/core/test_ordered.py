"""A sorted collection in small chunks against a sorted list."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.structures.ordered import Ordered


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with patch("penstock.core.structures.ordered.CHUNK", 3):
        yield


@settings(max_examples=300, derandomize=True, deadline=None)
@given(start=st.sets(st.integers(0, 40)), steps=st.lists(st.integers(0, 40), max_size=60))
def test_it_is_a_sorted_list_in_small_parts(start: set[int], steps: list[int]) -> None:
    """Each step removes a value that is present and adds one that is not."""
    ordered, model = Ordered(start), set(start)
    assert ordered.head == min(model, default=None)
    for value in steps:
        if value in model:
            ordered.remove(value)
            model.remove(value)
        else:
            ordered.add(value)
            model.add(value)
        assert list(ordered) == sorted(model)
        assert len(ordered) == len(model)
        assert bool(ordered) == bool(model)
        assert all(0 < len(chunk) <= 3 for chunk in ordered._chunks)
        assert ordered.head == min(model, default=None)
        if model:
            assert ordered.last == max(model)
    ordered.clear()
    assert (list(ordered), ordered.head) == ([], None)


@given(start=st.sets(st.integers(0, 20)), added=st.sets(st.integers(0, 60)))
def test_runs_are_added_anywhere(start: set[int], added: set[int]) -> None:
    ordered = Ordered(start)
    ordered.add_run(sorted(added - start))
    assert list(ordered) == sorted(start | added)
    assert (len(ordered), ordered.head) == (len(start | added), min(start | added, default=None))
    assert all(0 < len(chunk) <= 3 for chunk in ordered._chunks)


@given(start=st.sets(st.integers(0, 40)), removed=st.sets(st.integers(0, 40)))
def test_many_are_removed_from_anywhere(start: set[int], removed: set[int]) -> None:
    ordered = Ordered(start)
    ordered.remove_many(start & removed)
    assert list(ordered) == sorted(start - removed)
    assert (len(ordered), ordered.head) == (len(start - removed), min(start - removed, default=None))
    assert all(0 < len(chunk) <= 3 for chunk in ordered._chunks)


def test_removing_an_absent_value_is_a_fault() -> None:
    for values in ([2], [1, 2], [9], [1, 1, 4], [1, 2, 4]):
        with pytest.raises((AssertionError, IndexError)):
            Ordered([1, 3, 4, 5]).remove_many(values)


@given(values=st.sets(st.integers(0, 30)), value=st.integers(-1, 31))
def test_it_is_read_starting_at_a_value(values: set[int], value: int) -> None:
    ordered = Ordered(values)
    assert list(ordered.up_from(value)) == sorted(each for each in values if each > value)
    assert list(ordered.down_from(value)) == sorted((each for each in values if each <= value), reverse=True)
    assert list(ordered.down_from(None)) == sorted(values, reverse=True)
