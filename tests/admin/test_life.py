"""A message's life, read from a journal without a broker: in bounded pieces, same result for any size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.admin import journal_view
from penstock.admin.journal_view import JournalView, LifeEvent
from penstock.journal.contract import OwnerOptions
from penstock.journal.files.journal import OwnedFiles
from penstock.journal.format.block import Block
from support.batches import acknowledged, published
from support.folders import QuickDisk


@pytest.fixture
def view(tmp_path: Path) -> Iterator[JournalView]:
    """Messages 1 to 20 wait; 3,000 more are published and acknowledged one by one; message 7 is acknowledged last."""
    owned = OwnedFiles(QuickDisk(tmp_path), OwnerOptions(extent_bytes=100_000, reserve=4096))
    owned.begin()
    log = owned.log
    log.append(published(log.end, [b"x"] * 20), log.end, log.epoch)
    for number in range(3000):
        at = log.end
        log.append(published(at, [b"payload" * 9]), at, log.epoch)
        log.append(acknowledged(at + 1, [at]), at + 1, log.epoch, roll=number % 1000 == 999)
    log.append(acknowledged(log.end, [7]), log.end, log.epoch)
    yield JournalView(f"file:{tmp_path}", str(tmp_path))
    owned.close()


def whole(view: JournalView, position: int) -> tuple[list[LifeEvent], int]:
    """All events of a message, and how many requests it took to read them."""
    found: list[LifeEvent] = []
    start = requests = 0
    while True:
        events, start, since = view._life(position, start)
        found += events
        requests += 1
        assert since == 0
        if not start:
            return found, requests


@pytest.mark.parametrize(("events", "size"), [(10**9, 10**9), (1000, 10**9), (10**9, 100_000), (10**9, 1)])
def test_a_life_is_read_piece_by_piece(
    view: JournalView, events: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_view, "SCANNED_EVENTS", events)
    monkeypatch.setattr(journal_view, "SCANNED_BYTES", size)
    last = view.reader.latest - 1
    for position in (1, 2, 7, 20):
        found, requests = whole(view, position)
        assert [event.position for event in found] == [position, *([last] if position == 7 else [])]
        assert (requests == 1) == (events == size)
        assert [event.kind for event in found] == ["published", "acknowledged"][: len(found)]
    found, requests = whole(view, 21)  # acknowledged at once: nothing behind that is read
    assert ([event.position for event in found], requests) == ([21, 22], 1)


def test_few_of_many_blocks_are_read(view: JournalView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few blocks are read, because reading one takes longer than scanning thousands of bytes."""
    read: list[int] = []
    events_of = journal_view._events_of

    def counted(block: Block, position: int, start: int, stop: int) -> list[LifeEvent]:
        read.append(block.first)
        return events_of(block, position, start, stop)

    monkeypatch.setattr(journal_view, "_events_of", counted)
    for position, blocks in ((1, 0), (7, 1), (501, 1), (5001, 1)):
        read.clear()
        whole(view, position)
        assert len(read) == blocks, position
