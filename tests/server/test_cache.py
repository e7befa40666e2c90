"""Recent messages are cached while that is useful, and no longer."""

from __future__ import annotations

from array import array

from penstock.core.events import EventBatch, Values
from penstock.schema import Kind
from penstock.server.engine.cache import LEAST_BYTES, MISSED_BYTES, RecentMessages
from penstock.server.engine.kept_batches import BATCH_COST, MOST_GATHERED, PlainMessage, WholeBatch

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


def contents(messages: list[PlainMessage | None]) -> list[tuple[bytes, int, bytes]]:
    return [(each.payload, each.at, each.source) for each in messages if each is not None]


def publish(cache: RecentMessages, first: int, size: int) -> int:
    """Remember ``size`` bytes of messages. Returns the next position."""
    while size > 0:
        one = batch(first)
        cache.add(one)
        first, size = one.end, size - one.size
    return first


def test_a_backlog_that_is_never_read() -> None:
    cache = RecentMessages(MOST)
    publish(cache, 1, 3 * MOST)
    assert cache.bytes <= LEAST_BYTES


def test_of_batches_that_several_share_all_are_kept_once_the_rest_is_asked_for() -> None:
    """A part of each was read before it was evicted, as when several queues take turns."""
    cache = RecentMessages(MOST)
    following = 1
    for _ in range(2 * LEAST_BYTES // SIZE):
        one = batch(following)
        cache.add(one)
        assert cache.payloads([one.first]) != [None]
        following = one.end
    assert cache.payloads([2]) == [None]
    publish(cache, following, MOST // 2)
    assert cache.bytes > MOST // 2


def test_single_messages_are_put_together() -> None:
    cache = RecentMessages(MOST)
    for first in range(1, 20_000):
        cache.add(small(first))
    assert len(cache._batches) * BATCH_COST < LEAST_BYTES
    assert len(cache._batches) < 20_000 / (MOST_GATHERED - 10)
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
    assert cache.payloads([1_000]) == [bytes(SIZE)], "the first message has been read"


def test_a_consumer_that_keeps_up() -> None:
    cache = RecentMessages(MOST)
    for first in range(1, 4_000, 4):
        publish(cache, first, SIZE)
        cache.committed(first + 4)
        assert cache.payloads(range(first, first + 4)) == [bytes(SIZE)] * 4


def test_a_consumer_that_lags_a_little() -> None:
    """Its first read is noticed: from then on all messages are cached."""
    cache = RecentMessages(MOST)
    end = before = publish(cache, 1, MOST // 2)
    position, missed = 1, []
    while position < 4000:
        end = publish(cache, end, 4 * SIZE)
        missed += [position] * cache.payloads(range(position, position + 4)).count(None)
        position += 4
    assert max(missed) < before


def test_a_consumer_that_comes_near_is_noticed() -> None:
    """Its messages were evicted, but would still be here if all were cached."""
    cache = RecentMessages(MOST)
    end = publish(cache, 1, 3 * MOST)
    assert cache.payloads([1]) == [None]
    publish(cache, end, MOST // 2)
    assert cache.bytes <= LEAST_BYTES
    assert cache.payloads([end]) == [None]
    publish(cache, end + 1_000_000, MOST // 2)
    assert cache.bytes > MOST // 2


def test_delivered_messages_are_evicted() -> None:
    cache = RecentMessages(MOST)
    end = publish(cache, 1, LEAST_BYTES // 2)
    assert cache.payloads(range(1, end)) == [bytes(SIZE)] * (end - 1)
    assert cache.numbers("with_ttl", range(1, end)) == [0] * (end - 1)  # read after the payload, and still cached
    end = publish(cache, end, SIZE)
    assert cache.bytes < LEAST_BYTES // 4
    assert cache.payloads([1]) == [None]
    publish(cache, end, 4 * SIZE)
    assert cache.payloads([end]) == [bytes(SIZE)]
    assert cache.message(end + 1) is not None


def small_batches(count: int) -> list[EventBatch]:
    """Single messages of all kinds, with other events between them."""
    made, first = [], 1
    for number in range(count):
        one = EventBatch(first)
        if number % 3:
            one.add_others(Kind.ACKNOWLEDGED, number, 1, b"consumer", 1, {"message": array("Q", [1])})
        columns: dict[str, Values] = {}
        if number % 5 == 0:
            columns = {"retries": array("B", [number % 2]), "priority": array("Q", [number])}
        one.add_messages(
            Kind.PUBLISHED, 1000 + number, 7 + number, b"peer %d" % (number % 2), [b"%d" % number], columns
        )
        if number % 4 == 0:
            one.add_messages(Kind.PUBLISHED, 2000, 1, b"another", [b"plain", b"too"], {})
        one.close()
        made.append(one)
        first = one.end + number % 2  # a batch without a message is not cached
    return made


def test_small_batches_are_put_together_and_give_the_same_messages() -> None:
    gathered, whole = RecentMessages(MOST), RecentMessages(MOST)
    batches = small_batches(200)
    for each in batches:
        gathered.add(each)
        whole._append(WholeBatch(each))
    assert len(gathered._batches) < len(batches) / 20
    positions = [each.first + row for each in batches for row, kind in enumerate(each.kinds) if kind == Kind.PUBLISHED]
    assert [gathered.message(position) for position in positions] == [whole.message(each) for each in positions]
    assert contents(gathered.plain(positions)) == contents(whole.plain(positions))
    assert gathered.payloads(positions) == whole.payloads(positions)
    for name in ("retries", "priority", "with_ttl"):
        assert gathered.numbers(name, positions) == whole.numbers(name, positions)


def test_uncommitted_messages_stay_with_committed_ones() -> None:
    cache = RecentMessages(0)
    cache.add(small(1))
    cache.add(small(2))
    cache.committed(2)
    assert cache.payloads([2]) == [b"x"]
    cache.committed(3)
    assert cache.payloads([2]) == [None]
    cache.add(small(3))
    assert cache.payloads([3]) == [b"x"]


def test_messages_consumed_one_by_one_leave_nothing() -> None:
    cache = RecentMessages(MOST)
    for each in small_batches(100):
        cache.add(each)
        positions = [each.first + row for row, kind in enumerate(each.kinds) if kind == Kind.PUBLISHED]
        assert None not in cache.payloads(positions)
    cache.add(batch(10_000))
    assert len(cache._batches) == 1
    assert cache.bytes == batch(10_000).size + BATCH_COST


def test_looking_up_one_by_one() -> None:
    """In any order; and an earlier look-up does not keep evicted messages alive."""
    cache = RecentMessages(MOST)
    end = publish(cache, 1, 40 * SIZE)
    for position in [*range(1, end), *range(end - 1, 0, -3)]:
        assert cache.payloads([position]) == [bytes(SIZE)], position
    assert cache.payloads([end]) == [None]
    publish(cache, end, SIZE)
    assert [cache.payloads([position]) for position in (1, end - 1)] == [[None], [None]]
    assert cache.payloads([end]) == [bytes(SIZE)]


def test_the_last_look_up_is_evicted_too() -> None:
    cache = RecentMessages(MOST)
    end = publish(cache, 1, SIZE)
    assert cache.payloads([1]) == [bytes(SIZE)]
    publish(cache, end, 3 * MOST)
    assert cache.payloads([1]) == [None]
