"""Each reader verifies every checksum once."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.journal.contract import OwnerOptions
from penstock.journal.errors import JournalDamaged
from penstock.journal.files.follower import JournalReader
from penstock.journal.files.mapped_segment import Verified
from penstock.journal.format.block import BlockHeader, check_body
from support.folders import Life

SMALL = OwnerOptions(extent_bytes=20_000, reserve=4096)


class TestRuns:
    def test_adjacent_ranges_join(self) -> None:
        found = Verified()
        found.add(10, 20)
        found.add(30, 40)
        assert found.covers(10, 20)
        assert found.covers(32, 38)
        assert not found.covers(15, 35)
        assert not found.covers(9, 12)
        assert not found.covers(20, 30)
        found.add(20, 30)
        assert found.covers(10, 40)
        found.add(0, 100)
        assert found.covers(0, 100)
        assert not found.covers(0, 101)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the offsets of the blocks whose checksums were verified."""
    offsets: list[int] = []

    def noting(header: BlockHeader, data: memoryview, start: int, offset: int, *, verify: bool = True) -> memoryview:
        if verify:
            offsets.append(offset)
        return check_body(header, data, start, offset, verify=verify)

    monkeypatch.setattr("penstock.journal.files.mapped_segment.check_body", noting)
    return offsets


class TestScans:
    @pytest.fixture
    @staticmethod
    def reader(tmp_path: Path) -> JournalReader:
        Life(tmp_path, seed=3, options=SMALL).run(500).kill()
        found = JournalReader(tmp_path)
        assert [span.finished for span in found.spans()].count(False) == 1
        assert len(found.spans()) > 2
        return found

    def test_no_block_is_verified_twice(self, reader: JournalReader, checked: list[int]) -> None:
        blocks = [(found.extent.name, found.block.offset) for found in reader.read(1)]
        assert len(checked) == len(blocks)
        checked.clear()
        assert [(found.extent.name, found.block.offset) for found in reader.read(1)] == blocks
        assert checked == []

    def test_later_blocks_are_verified(self, tmp_path: Path, checked: list[int]) -> None:
        life = Life(tmp_path, seed=3, options=SMALL)
        reader, seen = JournalReader(tmp_path), 0
        for _ in range(20):
            life.run(25)
            checked.clear()
            before, seen = seen, sum(1 for _ in reader.read(1))
            assert len(checked) == seen - before
        assert len(reader.spans()) > 2
        life.stop()

    def test_only_the_part_that_was_read_counts(self, reader: JournalReader, checked: list[int]) -> None:
        span = reader.spans()[0]
        blocks = [found.block for found in reader.read(span.first, span.end, verify=False)]
        middle = blocks[len(blocks) // 2]
        list(reader.read(span.first, middle.first))
        checked.clear()
        list(reader.read(span.first, span.end))
        assert checked == [block.offset for block in blocks if block.first >= middle.first]

    def test_a_read_that_stops_halfway_counts_half(self, reader: JournalReader, checked: list[int]) -> None:
        blocks = reader.read(1)
        first, second = next(blocks).block, next(blocks).block
        blocks.close()  # type: ignore[attr-defined]  # a generator
        checked.clear()
        list(reader.read(1, second.end))
        assert checked == [second.offset]
        assert first.offset not in checked

    def test_checked_blocks_are_remembered_after_the_file_was_closed(
        self, reader: JournalReader, checked: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.journal.files.follower.KEPT", 1)
        span = reader.spans()[0]
        list(reader.read(1))
        checked.clear()
        list(reader.read(span.first, span.end))
        assert checked == []

    def test_another_reader_verifies_again(self, reader: JournalReader, tmp_path: Path) -> None:
        list(reader.read(1))
        segment = tmp_path / reader.spans()[0].key[0]
        offset = next(reader.read(1, verify=False)).block.offset
        with segment.open("r+b") as file:
            file.seek(offset + 100)
            byte = file.read(1)
            file.seek(offset + 100)
            file.write(bytes([byte[0] ^ 1]))
        with pytest.raises(JournalDamaged):
            list(JournalReader(tmp_path).read(1))
