"""Deadlines fire on time after any changes, and cost nothing once their message is gone."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.policy import Policy
from penstock.core.queue import Queue
from penstock.core.structures.item import Item
from penstock.schema import FOREVER

SECOND = 1_000_000
NOW = 1_000 * SECOND

# Ranks increase in steps of 10, which leaves gaps to put messages back into.
STEPS = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 7), st.integers(0, 40), st.integers(0, 2)),
    st.tuples(st.just("put"), st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 2)),
    st.tuples(st.just("take"), st.integers(1, 9)),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.just("expire"), st.integers(0, 12), st.sampled_from([1, 9, 1_000])),
)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with patch("penstock.core.structures.lane.CHUNK", 3), patch("penstock.core.structures.ordered.CHUNK", 3):
        yield


def order(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: (-item.priority, item.rank))


class World:
    """A queue, and a plain list of its messages."""

    def __init__(self) -> None:
        self.queue = Queue(1, "default", "q", Policy(on_full="drop-oldest"), 0)
        self.model: list[Item] = []
        self.now = NOW
        self.top = 10

    def step(self, step: tuple[object, ...]) -> None:
        match step:
            case ("run", int(count), int(ttl), int(priority)):
                expires = self.now + ttl if ttl else 0
                self.queue.ready.append_run(self.top, [1] * count, priority, expires, FOREVER)
                ranks = range(self.top, self.top + count)
                self.model += [Item(rank, rank, 1, expires, FOREVER, priority) for rank in ranks]
                self.top += count + 10
            case ("put", list(ttls), int(priority)):
                free = sorted(set(range(1, self.top)) - {item.rank for item in self.model})[: len(ttls)]
                items = [Item(r, r, 1, self.now + t, FOREVER, priority) for r, t in zip(free, ttls, strict=False)]
                self.queue.ready.insert_many(items)
                self.model += items
            case ("take", int(count)):
                assert self.queue.ready.take(count) == order(self.model)[:count]
                self.model = order(self.model)[count:]
            case ("remove", int(index)) if index < len(self.model):
                item = self.model.pop(index)
                assert self.queue.ready.remove(item) == item
            case ("expire", int(span), int(budget)):
                self.expire(span, budget)

    def expire(self, span: int, budget: int) -> None:
        self.now += span
        due = [item for item in self.model if 0 < item.expires <= self.now]
        while True:
            expired, left = self.queue.ready.take_expired(self.now, budget)
            assert len(expired) <= budget
            assert expired == order(expired)
            assert set(expired) <= set(due)
            due = [item for item in due if item not in expired]
            self.model = [item for item in self.model if item not in expired]
            if left > 0:
                break
        assert not due

    def check(self) -> None:
        assert len(self.queue.ready) == self.queue.ready.bytes == len(self.model)
        assert self.queue.ready.oldest() == min(self.model, default=None)
        times = [item.expires for item in self.model if item.expires]
        following = self.queue.next_deadline()
        assert not times or (following is not None and following <= min(times))
        chunks = [chunk for lane in self.queue.ready.lanes.values() for chunk in lane._chunks]
        noted = {chunk: chunk.deadline for chunk in chunks if chunk.deadline}
        assert noted == {chunk: deadline for deadline, _, _, chunk in self.queue.ready.deadlines}


@settings(max_examples=300, derandomize=True, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_each_fires_exactly_when_due_and_nothing_is_left_behind(steps: list[tuple[object, ...]]) -> None:
    world = World()
    for step in steps:
        world.step(step)
        world.check()
    world.expire(1_000, 5)
    assert not world.queue.ready.deadlines


@pytest.mark.parametrize("same", [True, False])
def test_deadlines_of_messages_that_come_and_go_do_not_pile_up(same: bool) -> None:
    """One message always waits, so the lane never closes; the deadlines are days away, so none ever fires."""
    queue = Queue(1, "default", "q", Policy(), 0)
    later = NOW + 86_400 * SECOND
    queue.ready.append_run(1, [1], 0, later, FOREVER)
    for position in range(2, 200):
        item = Item(2 if same else position, position, 1, later + position)
        queue.ready.insert_many([item])
        queue.ready.remove(item)
        assert len(queue.ready.deadlines) <= 2
