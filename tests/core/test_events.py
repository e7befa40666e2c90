"""Staged rows: every column has a value for every row of its sort, and positions have no gaps."""

from __future__ import annotations

from array import array
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.events import BATCH_SPAN, ROW_BYTES, EventBatch, EventLog
from penstock.journal.format.encoding import encode
from penstock.schema import COLUMN, FOREVER, Kind, Rows

NOW = 1_700_000_000_000_000
MINUTE = 60_000_000


def test_columns_that_begin_late_or_end_early_are_padded_with_their_default() -> None:
    log = EventLog(1)
    log.messages(NOW, 1, b"x", [b"a", b"b"], {})
    log.messages(NOW, 1, b"x", [b"c"], {"retries": array("B", [3]), "asked_id": [b"id"]})
    log.messages(NOW, 1, b"x", [b"d"], {})
    (batch,) = log.take()
    assert batch.columns["payload"] == [b"a", b"b", b"c", b"d"]
    assert list(batch.columns["retries"]) == [FOREVER, FOREVER, 3, FOREVER]
    assert batch.columns["asked_id"] == [b"", b"", b"id", b""]
    assert "priority" not in batch.columns


def test_rows_of_the_two_sorts_are_counted_apart() -> None:
    log = EventLog(1)
    log.other(Kind.POPPED, NOW, 1, b"x", message=7)
    log.messages(NOW, 1, b"x", [b"a"], {})
    log.other(Kind.DROPPED, NOW, 1, b"x", message=8, reason=3)
    (batch,) = log.take()
    assert (batch.messages, batch.others, len(batch)) == (1, 2, 3)
    assert batch.kinds == bytes([Kind.POPPED, Kind.PUBLISHED, Kind.DROPPED])
    assert list(batch.columns["message"]) == [7, 8]
    assert list(batch.columns["reason"]) == [0, 3]
    assert batch.columns["payload"] == [b"a"]


def test_sources_are_written_once() -> None:
    log = EventLog(1)
    for source in (b"x", b"y", b"x"):
        log.other(Kind.POPPED, NOW, 1, source)
    (batch,) = log.take()
    assert batch.sources == [b"x", b"y"]
    assert list(batch.source) == [0, 1, 0]


def test_without_staged_rows_nothing_is_taken() -> None:
    log = EventLog(5)
    assert not log.staged
    assert log.take() == []
    assert log.next_position == 5


def test_a_batch_ends_before_it_is_too_large() -> None:
    """Blocks have a maximum size, however large the next message and however many empty rows there are."""
    log = EventLog(1)
    log.bound(1000)
    for size in (400, 300, 300, 5000, 10):
        log.messages(NOW, 1, b"x", [bytes(size)], {})
    assert [(batch.first, len(batch)) for batch in log.take()] == [(1, 2), (3, 1), (4, 1), (5, 1)]


def test_smaller_batches_still_keep_related_rows_together() -> None:
    """The end of a lease is many rows and one more, which must survive a crash together."""
    log = EventLog(1)
    log.bound(1000)
    for size in (400, 300, 300):
        log.messages(NOW, 1, b"x", [bytes(size)], {})
    log.make_room(NOW, 20 * ROW_BYTES)
    log.others(Kind.RETURNED, NOW, 1, b"x", 10, {})
    log.others(Kind.RETURNED, NOW, 1, b"x", 9, {})
    log.other(Kind.LEASE_ENDED, NOW, 1, b"x")
    log.other(Kind.POPPED, NOW, 1, b"x")
    assert [(batch.first, len(batch)) for batch in log.take()] == [(1, 2), (3, 1), (4, 20), (24, 1)]
    log.others(Kind.RETURNED, NOW, 1, b"x", 25, {})
    assert [len(batch) for batch in log.take()] == [10, 10, 5]


def test_rows_and_details_count_for_the_size_of_a_batch() -> None:
    log = EventLog(1)
    log.messages(NOW, 1, b"x", [b""] * 10, {"correlation_id": [b"1234"] * 10})
    log.other(Kind.CATALOGUE, NOW, 0, b"x", detail=bytes(100))
    assert log.size == 11 * ROW_BYTES + 40 + 100


def test_a_batch_ends_when_the_clock_moves_too_far_either_way() -> None:
    log = EventLog(1)
    for at in (NOW, NOW + BATCH_SPAN, NOW + BATCH_SPAN + 1, NOW, NOW - BATCH_SPAN):
        log.other(Kind.POPPED, at, 1, b"x")
    batches = log.take()
    assert [len(batch) for batch in batches] == [2, 1, 2]
    assert all(max(batch.at) - min(batch.at) < 2**32 for batch in batches)


def test_a_batch_ends_when_it_has_too_many_sources() -> None:
    with patch("penstock.core.events.BATCH_SOURCES", 2):
        log = EventLog(1)
        for number in range(7):
            log.other(Kind.POPPED, NOW, 1, b"%d" % number)
        assert [len(batch) for batch in log.take()] == [3, 3, 1]


ROWS = st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.booleans()), max_size=12)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(rows=ROWS, first=st.integers(1, 2**40), taken=st.sets(st.integers(0, 11)))
def test_positions_continue_whatever_is_staged_and_taken(
    rows: list[tuple[bool, int, bool]], first: int, taken: set[int]
) -> None:
    with patch("penstock.core.events.BATCH_BYTES", 5):
        log = EventLog(first)
        batches: list[EventBatch] = []
        position = first
        for step, (message, count, marked) in enumerate(rows):
            assert log.next_position == position
            if message:
                columns = {"priority": array("Q", [1]) * count} if marked else {}
                assert log.messages(NOW, 1, b"x", [b"ab"] * count, columns) == position
            else:
                columns = {"message": array("Q", [1]) * count} if marked else {}
                assert log.others(Kind.RETURNED, NOW, 1, b"x", count, columns) == position
            position += count
            batches += log.take() if step in taken else []
        batches += log.take()
    for batch in batches:
        assert batch.first == first
        first = batch.end
        assert batch.messages + batch.others == len(batch) == len(batch.at) == len(batch.queues) == len(batch.source)
        for name, values in batch.columns.items():
            assert len(values) == (batch.messages if COLUMN[name].rows is Rows.MESSAGES else batch.others)
    assert first == position


def test_a_clock_that_jumps_makes_no_batch_too_wide_for_a_block() -> None:
    log = EventLog(1)
    for at in (NOW, NOW - 34 * MINUTE, NOW + 34 * MINUTE, NOW - 29 * MINUTE, NOW + 29 * MINUTE):
        log.other(Kind.STARTED, at, 0, b"x")
    for batch in log.take():
        assert encode(batch, 1, 0)


def test_more_rows_than_a_block_holds_go_into_several_batches() -> None:
    log = EventLog(7)
    log.bound(10 * ROW_BYTES)
    first = log.others(Kind.POPPED, NOW, 1, b"x", 25, {"message": array("Q", range(25)), "detail": [b""] * 25})
    batches = log.take()
    assert (first, log.next_position) == (7, 32)
    assert [(batch.first, len(batch)) for batch in batches] == [(7, 10), (17, 10), (27, 5)]
    assert [number for batch in batches for number in batch.columns["message"]] == list(range(25))


STEPS = st.lists(st.sampled_from(["end", "end", "end", "others", "messages", "other", "take"]), max_size=200)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(steps=STEPS)
def test_end_stages_the_same_rows_as_others(steps: list[str]) -> None:
    """``end`` stages the same blocks as ``others`` with one row each, byte for byte, whatever is staged in between."""
    logs = EventLog(7), EventLog(7)
    blocks: tuple[list[bytes], list[bytes]] = ([], [])
    for number, step in enumerate(steps):
        at, source = NOW + number * number, b"s%d" % (number % 3)
        for log, found in zip(logs, blocks, strict=True):
            position = log.next_position
            columns = {
                "message": array("Q", [number + 2**40]),
                "deliveries": array("I", [number]),
                "delivered_at": array("q", [at - 5]),
            }
            match step:
                case "end" if log is logs[0]:
                    kind = Kind.POPPED if number % 2 else Kind.ACKNOWLEDGED
                    assert log.end(kind, at, 3, source, number + 2**40, number, at - 5) == position
                case "end":
                    log.others(Kind.POPPED if number % 2 else Kind.ACKNOWLEDGED, at, 3, source, 1, columns)
                case "others":
                    log.others(Kind.RETURNED, at, 4, source, 2, {"reason": array("B", [1, 2])})
                case "messages":
                    log.messages(at, 4, source, [b"ab", b""], {})
                case "other":
                    log.other(Kind.CATALOGUE, at, 0, source, detail=b"d")
                case "take":
                    found += [encode(batch, 1, 0).data for batch in log.take()]
        assert logs[0].size == logs[1].size
        assert logs[0].next_position == logs[1].next_position
    assert [encode(each, 1, 0).data for each in logs[0].take()] == [encode(each, 1, 0).data for each in logs[1].take()]
    assert blocks[0] == blocks[1]


def test_many_ends_are_split_into_batches_by_size_time_and_sources_too() -> None:
    log = EventLog(1)
    log.bound(10 * ROW_BYTES)
    for number in range(25):
        log.end(Kind.ACKNOWLEDGED, NOW, 1, b"x", number, 1, NOW)
    log.end(Kind.ACKNOWLEDGED, NOW + BATCH_SPAN + 1, 1, b"x", 25, 1, NOW)
    batches = log.take()
    assert [len(batch) for batch in batches] == [10, 10, 5, 1]
    assert [list(batch.columns["message"]) for batch in batches] == [
        [*range(10)],
        [*range(10, 20)],
        [*range(20, 25)],
        [25],
    ]
