"""Which filters narrow a read, and which are left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.flight.calls import Pick
from penstock.spark.filters import Narrowed

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
POSITION, QUEUE, NAMESPACE, TIME = ("position",), ("queue",), ("namespace",), ("published_at",)


def narrowed(*filters: Filter, view: str = "messages") -> tuple[Narrowed, list[Filter]]:
    found = Narrowed()
    return found, [one for one in filters if not found.take(view, one)]


@pytest.mark.parametrize(
    ("one", "start", "stop"),
    [
        (EqualTo(POSITION, 7), 7, 8),
        (GreaterThan(POSITION, 7), 8, None),
        (GreaterThanOrEqual(POSITION, 7), 7, None),
        (LessThan(POSITION, 7), 1, 7),
        (LessThanOrEqual(POSITION, 7), 1, 8),
        (In(POSITION, (7,)), 7, 8),
        (GreaterThan(POSITION, -5), 1, None),
    ],
)
def test_positions(one: Filter, start: int, stop: int | None) -> None:
    found, left = narrowed(one)
    assert (found.start, found.stop, left) == (start, stop, [])


def test_several_at_once() -> None:
    found, left = narrowed(GreaterThan(POSITION, 5), LessThan(POSITION, 20), LessThan(POSITION, 10))
    assert (found.start, found.stop, found.empty, left) == (6, 10, False, [])
    assert narrowed(GreaterThan(POSITION, 5), LessThan(POSITION, 6))[0].empty


def test_a_list_of_positions_is_also_filtered_by_spark() -> None:
    one = In(POSITION, (3, 9))
    found, left = narrowed(one)
    assert (found.start, found.stop, left) == (3, 10, [one])


@pytest.mark.parametrize("one", [EqualTo(TIME, NOON), GreaterThan(TIME, NOON), GreaterThanOrEqual(TIME, NOON)])
def test_times_narrow_from_below(one: Filter) -> None:
    found, left = narrowed(one)
    assert (found.since, left) == (1_769_860_800_000_000, [one])


@pytest.mark.parametrize(
    "one",
    [
        LessThan(TIME, NOON),
        Not(EqualTo(POSITION, 3)),
        IsNotNull(POSITION),
        EqualTo(("payload",), b"x"),
        EqualTo(QUEUE, "a*"),
        In(QUEUE, ("a", "b")),
        StringStartsWith(QUEUE, "a"),
        EqualTo(POSITION, None),
    ],
)
def test_left_to_spark(one: Filter) -> None:
    found, left = narrowed(one)
    assert (found, left) == (Narrowed(), [one])


def test_live_has_no_positions() -> None:
    found, left = narrowed(one := EqualTo(POSITION, 3), view="live")
    assert (found, left) == (Narrowed(), [one])


@pytest.mark.parametrize(
    ("had", "namespace", "queue", "left"),
    [
        (Pick(), None, None, Pick()),
        (Pick(), "a", None, Pick(pattern="a/*")),
        (Pick(), None, "b", Pick(pattern="*/b")),
        (Pick(pattern="a*/b*"), "ax", "by", Pick(pattern="ax/by")),
        (Pick(pattern="a*/b*"), "x", None, None),
        (Pick(pattern="a*/b*"), None, "x", None),
        (Pick(queue="a/b"), "a", "b", Pick(queue="a/b")),
        (Pick(queue="a/b"), "a", "c", None),
        (Pick(queue="a/b/c"), None, "b/c", Pick(queue="a/b/c")),
    ],
)
def test_queues(had: Pick, namespace: str | None, queue: str | None, left: Pick | None) -> None:
    filters = [EqualTo(NAMESPACE, namespace)] * (namespace is not None) + [EqualTo(QUEUE, queue)] * (queue is not None)
    found, rest = narrowed(*filters)
    assert rest == []
    assert found.pick(had) == left


def test_two_queues_at_once_match_nothing() -> None:
    assert narrowed(EqualTo(QUEUE, "a"), EqualTo(QUEUE, "b"))[0].pick(Pick()) is None
