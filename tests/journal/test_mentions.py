"""The search for blocks with events of a message finds the same blocks as reading all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.journal.files import mapped_segment
from penstock.journal.files.follower import JournalReader
from penstock.journal.format.block import MAGIC
from penstock.journal.format.mentions import mentions
from penstock.journal.format.segment import HEADER_SIZE
from support.folders import Life
from support.retaining import retain

Found = dict[int, list[int]]


def one_by_one(reader: JournalReader) -> Found:
    """Return the positions of all events of each message, from all blocks."""
    found: Found = {}
    for block, _ in reader.read(reader.earliest, accept_loss=True):
        if block.has("message"):
            for row, message in zip(block.other_rows().tolist(), block.column("message").tolist(), strict=True):
                found.setdefault(message, []).append(block.first + row)
    return found


def events_about(reader: JournalReader, message: int, start: int, stop: int) -> list[int]:
    """Return the positions for one message, from the blocks that the search finds."""
    found = []
    for block, _ in reader.mentions(message, start, stop):
        if block.has("message"):
            rows = block.other_rows()[np.flatnonzero(block.column("message") == message)]
            found += [block.first + row for row in rows.tolist() if start <= block.first + row < stop]
    return found


@pytest.mark.parametrize(("worth", "at_once"), [(0, 2**22), (4096, 2**22), (4096, 1)])
@pytest.mark.parametrize("seed", range(2))
def test_the_events_of_every_message_are_found(
    tmp_path: Path, seed: int, worth: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With random clients, rolls, restarts and compaction; also for numbers that appear in every header."""
    monkeypatch.setattr(mapped_segment, "WORTH_SCANNING", worth)
    monkeypatch.setattr(mapped_segment, "SCANNED_AT_ONCE", at_once)
    life = Life(tmp_path, seed).run(300)
    retain(life.opened.upkeep, life.workload.now)
    life.kill()
    life.restart()
    life.run(200)
    reader = JournalReader(tmp_path)
    expected = one_by_one(reader)
    assert len(expected) > 100
    first, last = reader.earliest, reader.latest
    for message in {*range(1, 80), *sorted(expected)[-50:], *sorted(expected)[::17]}:
        assert events_about(reader, message, first, last) == expected.get(message, []), message
        low, high = first + (message % 50), last - (message % 70)
        assert events_about(reader, message, low, high) == [at for at in expected.get(message, []) if low <= at < high]


def test_only_blocks_with_the_message_are_found(tmp_path: Path) -> None:
    """Therefore the cost does not grow with the journal."""
    Life(tmp_path, 3).run(400)
    reader = JournalReader(tmp_path)
    for message in range(1, 200):
        for block, _ in reader.mentions(message, 1, reader.latest):
            assert message in block.column("message")


def test_a_payload_that_looks_like_blocks_is_not_a_block(tmp_path: Path) -> None:
    """A payload of journal bytes hides no events and is not read as blocks."""
    life = Life(tmp_path, 1).run(50)
    copied = (tmp_path / sorted(each.name for each in tmp_path.glob("*.seg"))[0]).read_bytes()[HEADER_SIZE:]
    whole = copied[: len(copied) // 8 * 8]
    data = memoryview(whole)
    reader = JournalReader(tmp_path)
    ends = [block.view.nbytes for block, _ in reader.read(1)]
    end = sum(ends)
    assert data[:4] == MAGIC
    expected = {message: mentions(data, 0, end, message) for message in range(1, 60)}
    assert any(expected.values())
    # The same bytes inside the last block, which is longer now; its own columns keep their place.
    last = end - ends[-1]
    longer = bytearray(whole[:end]) + whole[:last]
    longer[last + 8 : last + 12] = (ends[-1] + last).to_bytes(4, "little")
    again = {message: mentions(memoryview(bytes(longer)), 0, len(longer), message) for message in range(1, 60)}
    assert again == expected
    life.kill()


@pytest.mark.parametrize("cut", [8, 40, 72, 80, 88])
def test_damaged_bytes_do_not_fail_the_search(tmp_path: Path, cut: int) -> None:
    """The search accepts any bytes; reading the blocks reports damage."""
    Life(tmp_path, 2).run(60)
    segment = sorted(tmp_path.glob("*.seg"))[0].read_bytes()[HEADER_SIZE:]
    rng = np.random.default_rng(cut)
    for _ in range(50):
        data = bytearray(segment[: len(segment) // 8 * 8])
        for place in rng.integers(0, len(data), 20).tolist():
            data[place] ^= 1 << int(rng.integers(8))
        stop = max(len(data) - cut, 8)
        for message in (1, 2, 5, 30):
            assert all(0 <= at < stop for at in mentions(memoryview(bytes(data)), 0, stop, message))
