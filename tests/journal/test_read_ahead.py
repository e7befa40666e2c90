"""Blocks of a database that are read ahead: nobody waits long for one, and what is kept is bounded."""

from __future__ import annotations

from array import array
from contextlib import suppress
from threading import Event

import pytest

from penstock.journal.errors import LogAway
from penstock.journal.format.encoding import encode
from penstock.journal.postgresql import readahead
from penstock.journal.postgresql.database import BlockRow
from penstock.journal.postgresql.log import _Fence
from penstock.journal.postgresql.readahead import BlockCache, ReadAhead

EXTENT = 1


def row(position: int, size: int = 10) -> BlockRow:
    """A block with one event at a position."""
    fence = _Fence(position, array("q", [0]), {"detail": [b"x" * size]})
    data = encode(fence, 1, 0, synced=True).data
    return BlockRow(EXTENT, position, position + 1, 1, 0, data)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readahead, "PATIENCE", 0.05)


@pytest.mark.usefixtures("quick")
def test_who_asks_a_silent_database_is_turned_away_and_finds_the_block_later() -> None:
    answers, asked = Event(), []

    def fetch(extent: int, position: int, size: int) -> list[BlockRow]:
        asked.append(position)
        answers.wait()
        return [row(position)]

    ahead = ReadAhead(fetch)
    for position in (5, 5, 7):
        with pytest.raises(LogAway, match="the database does not answer in time"):
            ahead.find(EXTENT, position)
    assert asked == [5], "nothing else is begun meanwhile"
    answers.set()
    assert [found(ahead, position) for position in (5, 7)] == [5, 7]
    ahead.close()


def found(ahead: ReadAhead, position: int) -> int | None:
    """The block that is there once the database has answered."""
    while True:
        with suppress(LogAway):
            block = ahead.find(EXTENT, position)
            return block.first if block is not None else None


def test_an_error_is_told_to_who_asked_for_it_and_another_try_is_made() -> None:
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


def test_those_that_were_asked_for_longest_ago_go_first() -> None:
    cache = BlockCache(limit=5 * len(row(1, 1000).data))
    for position in range(1, 6):
        keep(cache, row(position, 1000))
    assert cache.find(EXTENT, 1) is not None
    for position in (6, 7):
        keep(cache, row(position, 1000))
    assert [position for position in range(1, 8) if cache.has(EXTENT, position)] == [1, 4, 5, 6, 7]
    cache.forget(EXTENT)
    assert not any(cache.has(EXTENT, position) for position in range(1, 8))
