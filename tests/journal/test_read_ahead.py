"""Read-ahead of blocks from a database: reads do not wait long, and the cache is bounded."""

from __future__ import annotations

import pytest

from penstock.journal.format.block import OneEvent
from penstock.journal.format.encoding import encode
from penstock.journal.postgresql.database import BlockRow
from penstock.journal.postgresql.readahead import FIRST_STRETCH, KEPT_BLOCKS, KEPT_BYTES, STRETCH, BlockCache, ReadAhead
from penstock.schema import Kind

EXTENT = 1


def row(position: int, size: int = 10) -> BlockRow:
    """Return a block with one event at this position."""
    fence = OneEvent.make(position, Kind.STARTED, 0, b"x" * size)
    data = encode(fence, 1, 0, synced=True).data
    return BlockRow(EXTENT, position, position + 1, 1, 0, data)


def test_the_event_loop_gets_only_fetched_blocks_and_never_waits() -> None:
    fetched = []

    def fetch(extent: int, position: int, size: int) -> list[BlockRow]:
        fetched.append(position)
        return [row(position)]

    ahead = ReadAhead(fetch)
    assert ahead.resident(EXTENT, 5) is None
    assert fetched == []
    assert found(ahead, 5) == 5
    assert ahead.resident(EXTENT, 5) is ahead.find(EXTENT, 5)
    assert fetched == [5]
    ahead.close()


def test_a_block_evicted_from_the_cache_meanwhile_is_still_found() -> None:
    def fetch(extent: int, position: int, size: int) -> list[BlockRow]:
        for other in range(100, 100 + KEPT_BLOCKS + 1):
            keep(ahead.cache, row(other, KEPT_BYTES))
        return [row(position), *(row(position + more, KEPT_BYTES) for more in range(1, KEPT_BLOCKS + 1))]

    ahead = ReadAhead(fetch, in_thread=False)
    assert found(ahead, 5) == 5
    ahead.close()


def test_sequential_reads_fetch_more_at_a_time() -> None:
    sizes: list[int] = []

    def fetch(extent: int, position: int, size: int) -> list[BlockRow]:
        sizes.append(size)
        return [row(position)]

    ahead = ReadAhead(fetch, in_thread=False)
    for position in (*range(1, 11), 500):
        assert found(ahead, position) == position
    assert sizes[0] == sizes[-1] == FIRST_STRETCH
    assert sizes[1:10] == [min(FIRST_STRETCH << number, STRETCH) for number in range(1, 10)]
    ahead.close()


def found(ahead: ReadAhead, position: int) -> int | None:
    """Return the first position of the block that contains this one."""
    block = ahead.find(EXTENT, position)
    return block.first if block is not None else None


def test_an_error_is_raised_to_its_reader_and_the_next_read_tries_again() -> None:
    errors: list[Exception] = [OSError("away")]

    def fetch(extent: int, position: int, size: int) -> list[BlockRow]:
        if errors:
            raise errors.pop()
        return [row(position)] if position < 9 else []

    ahead = ReadAhead(fetch)
    with pytest.raises(OSError, match="away"):
        ahead.find(EXTENT, 5)
    assert [found(ahead, position) for position in (5, 9)] == [5, None]
    ahead.close()


def keep(cache: BlockCache, block: BlockRow) -> None:
    cache.add(block.extent, block.first, block.end, block.data)


def test_the_least_recently_read_are_evicted_first() -> None:
    cache = BlockCache(limit=5 * len(row(1, 1000).data))
    for position in range(1, 6):
        keep(cache, row(position, 1000))
    assert cache.find(EXTENT, 1) is not None
    for position in (6, 7):
        keep(cache, row(position, 1000))
    assert [position for position in range(1, 8) if cache.has(EXTENT, position)] == [1, 4, 5, 6, 7]
    cache.forget(EXTENT)
    assert not any(cache.has(EXTENT, position) for position in range(1, 8))
