"""The newest messages are kept where that is of use, and no longer."""

from __future__ import annotations

from penstock.core.events import EventBatch
from penstock.schema import Kind
from penstock.server.engine.cache import LEAST_BYTES, MISSED_BYTES, RecentMessages

SIZE = 64 * 1024
MOST = 16 * LEAST_BYTES


def batch(first: int, messages: int = 4) -> EventBatch:
    made = EventBatch(first)
    made.add_messages(Kind.PUBLISHED, 1, 1, b"test", [bytes(SIZE)] * messages, {})
    made.close()
    return made


def small(first: int) -> EventBatch:
    made = EventBatch(first)
    made.add_messages(Kind.PUBLISHED, 1, 1, b"test", [b"x"], {})
    made.close()
    return made


def publish(cache: RecentMessages, first: int, size: int) -> int:
    """Remember so many bytes. Returns the next position."""
    while size > 0:
        one = batch(first)
        cache.add(one)
        first, size = one.end, size - one.size
    return first


def test_a_backlog_that_nobody_asks_for() -> None:
    cache = RecentMessages(MOST)
    publish(cache, 1, 3 * MOST)
    assert cache.bytes <= LEAST_BYTES


def test_single_messages_cost_what_their_batches_do() -> None:
    cache = RecentMessages(MOST)
    for first in range(1, 20_000):
        cache.add(small(first))
    assert len(cache._batches) * 1_500 < LEAST_BYTES
    assert len(cache._missed) < 2 * MOST / MISSED_BYTES


def test_a_large_batch_goes_when_it_is_committed() -> None:
    cache = RecentMessages(MOST)
    cache.add(batch(1, 2 * LEAST_BYTES // SIZE))
    cache.committed(1)
    assert cache.bytes > LEAST_BYTES
    cache.committed(batch(1, 2 * LEAST_BYTES // SIZE).end)
    assert cache.bytes == 0
    assert cache.payloads([1]) == [None]
    cache.add(large := batch(1_000, 2 * LEAST_BYTES // SIZE))
    cache.committed(large.end)
    assert cache.payloads([1_000]) == [bytes(SIZE)], "somebody has asked for the first one"


def test_a_consumer_that_keeps_up() -> None:
    cache = RecentMessages(MOST)
    for first in range(1, 4_000, 4):
        publish(cache, first, SIZE)
        cache.committed(first + 4)
        assert cache.payloads(range(first, first + 4)) == [bytes(SIZE)] * 4


def test_a_consumer_that_lags_a_little() -> None:
    """It is noticed by the first message that it asks for: from then on all are kept."""
    cache = RecentMessages(MOST)
    end = before = publish(cache, 1, MOST // 2)
    asked, missed = 1, []
    while asked < 4000:
        end = publish(cache, end, 4 * SIZE)
        missed += [asked] * cache.payloads(range(asked, asked + 4)).count(None)
        asked += 4
    assert max(missed) < before


def test_a_consumer_that_comes_near_is_noticed() -> None:
    """What it asks for was forgotten, but would be here if all were kept."""
    cache = RecentMessages(MOST)
    end = publish(cache, 1, 3 * MOST)
    assert cache.payloads([1]) == [None]
    publish(cache, end, MOST // 2)
    assert cache.bytes <= LEAST_BYTES
    assert cache.payloads([end]) == [None]
    publish(cache, end + 1_000_000, MOST // 2)
    assert cache.bytes > MOST // 2


def test_what_was_delivered_goes() -> None:
    cache = RecentMessages(MOST)
    end = publish(cache, 1, LEAST_BYTES // 2)
    assert cache.payloads(range(1, end)) == [bytes(SIZE)] * (end - 1)
    assert cache.numbers("with_ttl", range(1, end)) == [0] * (end - 1)  # asked after the payload, and still here
    end = publish(cache, end, SIZE)
    assert cache.bytes < LEAST_BYTES // 4
    assert cache.payloads([1]) == [None]
    publish(cache, end, 4 * SIZE)
    assert cache.payloads([end]) == [bytes(SIZE)]
    assert cache.message(end + 1) is not None
