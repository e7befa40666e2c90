"""Deadlines fire on time, in order, and cost nothing once their message has gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.expiry import SECOND, Expiry
from penstock.core.lane import Item
from penstock.core.policy import Policy
from penstock.core.queue import Queue

NOW = 1_000 * SECOND
LIMIT = 10


def lookup(deadlines: dict[int, int]) -> Callable[[int], int]:
    return lambda rank: deadlines.get(rank, 0)


@pytest.fixture
def small_buckets() -> Iterator[None]:
    with patch("penstock.core.expiry.OPEN_LIMIT", LIMIT):
        yield


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    deadlines=st.lists(st.integers(1, 4 * SECOND), max_size=8),
    steps=st.lists(st.integers(0, SECOND), max_size=12),
    gone=st.sets(st.integers(1, 8)),
    late=st.lists(st.integers(1, 3 * SECOND), max_size=4),
)
def test_each_fires_exactly_when_due(deadlines: list[int], steps: list[int], gone: set[int], late: list[int]) -> None:
    """Ranks are 1, 2 … in the order of adding; ``late`` ones are added while time goes on."""
    expiry, pending, now, rank = Expiry(), dict[int, int](), NOW, 0
    waiting = [NOW + deadline for deadline in deadlines]
    for step in steps:
        for deadline in waiting:
            rank += 1
            expiry.add(deadline, [rank])
            if rank not in gone:
                pending[rank] = deadline
        waiting = [now + late.pop()] if late else []
        now += step
        following = expiry.next_deadline()
        if pending:
            assert following is not None
            assert following <= min(pending.values())
        due = [rank for rank in expiry.due(now, 1_000, lookup(pending)) if rank in pending]
        assert sorted(due) == sorted(rank for rank, deadline in pending.items() if deadline <= now)
        for rank_due in due:
            del pending[rank_due]


def test_within_a_second_they_fire_one_by_one_in_order() -> None:
    deadlines = {1: NOW + 700_000, 2: NOW + 200_000, 3: NOW + 200_001}
    expiry = Expiry()
    for rank, deadline in deadlines.items():
        expiry.add(deadline, [rank])
    assert expiry.next_deadline() == NOW
    assert expiry.due(NOW, 9, lookup(deadlines)) == []
    assert expiry.next_deadline() == NOW + 200_000
    assert expiry.due(NOW + 199_999, 9, lookup(deadlines)) == []
    assert expiry.due(NOW + 200_000, 9, lookup(deadlines)) == [2]
    assert expiry.due(NOW + 900_000, 9, lookup(deadlines)) == [3, 1]
    assert expiry.next_deadline() is None
    assert len(expiry) == 0


def test_one_added_to_a_second_that_has_begun_fires_on_time_too() -> None:
    expiry = Expiry()
    expiry.add(NOW + 500_000, [1])
    expiry.due(NOW, 9, lookup({1: NOW + 500_000}))
    expiry.add(NOW + 300_000, [2])
    assert expiry.next_deadline() == NOW + 300_000
    assert expiry.due(NOW + 300_000, 9, lookup({})) == [2]


def test_no_more_than_the_limit_come_at_once_and_the_rest_stays_due() -> None:
    expiry = Expiry()
    expiry.add(NOW, range(1, 8))
    seen: list[int] = []
    while (following := expiry.next_deadline()) is not None and following <= NOW + 2 * SECOND:
        part = expiry.due(NOW + 2 * SECOND, 3, lookup({}))
        assert 0 < len(part) <= 3
        seen += part
    assert sorted(seen) == list(range(1, 8))


@pytest.mark.usefixtures("small_buckets")
def test_a_heavy_bucket_fires_as_a_whole_when_its_second_is_over() -> None:
    expiry = Expiry()
    expiry.add(NOW + 5, range(1, LIMIT + 2))
    assert expiry.next_deadline() == NOW + SECOND
    assert expiry.due(NOW + SECOND - 1, 99, lookup({})) == []
    assert len(expiry.due(NOW + SECOND, 99, lookup({}))) == LIMIT + 1


def test_entries_of_messages_that_are_gone_are_dropped_when_their_bucket_opens() -> None:
    expiry = Expiry()
    expiry.add(NOW + 500_000, [1, 2, 3])
    expiry.due(NOW, 9, lookup({2: NOW + 500_000}))
    assert len(expiry) == 1
    assert expiry.due(NOW + SECOND, 9, lookup({})) == [2]


def test_a_sweep_keeps_one_entry_for_each_message_that_waits() -> None:
    expiry = Expiry()
    deadlines = {1: NOW + 1, 2: NOW + 5 * SECOND, 3: NOW + 9 * SECOND}
    for rank in (1, 2, 3, 2, 1):
        expiry.add(deadlines[rank], [rank])
    expiry.due(NOW, 9, lookup(deadlines))
    expiry.add(NOW + 1, [1])
    for _ in range(2):
        expiry.sweep(np.array([1, 2], np.uint64))
        assert len(expiry) == 2
    assert expiry.due(NOW + 10 * SECOND, 9, lookup({})) == [2, 1]


@pytest.mark.parametrize("same", [True, False])
def test_deadlines_of_messages_that_come_and_go_do_not_pile_up(same: bool) -> None:
    """One message always waits, so the lane never closes; the deadlines are days away, so none ever fires."""
    queue = Queue(1, "default", "q", Policy(), 0)
    later = NOW + 86_400 * SECOND
    with patch("penstock.core.expiry.SWEEP_SLACK", 10):
        queue.append_run(1, [1], 0, later, 255)
        for position in range(2, 200):
            queue.put(Item(2 if same else position, position, 1, later))
            queue.remove_ready(0, 2 if same else position)
        assert len(queue.expiries[0]) <= 20
