"""The chain of a repaired journal: blocks after a loss are rechained, and segments after them stay unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.journal.files.disk import RealDisk
from penstock.journal.files.segment_reader import walk
from penstock.journal.format.block import BlockError, parse_header
from penstock.journal.format.encoding import chain_to
from penstock.journal.format.segment import BRIDGE, FOOTER_SIZE, HEADER_SIZE, RECHAINED, Footer, SegmentHeader
from penstock.journal.repair.plan import plan
from penstock.journal.repair.rewrite import carry_out
from penstock.journal.repair.survey import survey
from support.journals import open_folder
from support.sample_journal import NOW, make_journal

LATER = NOW + 3_600_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a journal of two segments, the second of which began after the first."""
    make_journal(str(tmp_path / "data"))
    return tmp_path / "data"


def flip(file: Path, at: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[at] ^= 1
    file.write_bytes(raw)


def repair(folder: Path) -> list[tuple[int, int]]:
    """Repair the journal, which must suffice. Returns the losses."""
    disk = RealDisk(str(folder))
    todo = plan(disk, survey(disk))
    assert not todo.idle
    carry_out(disk, todo)
    assert survey(disk).problems == []
    return todo.lost


def positions(folder: Path) -> list[int]:
    """Open it as a broker would. Returns the positions of all events."""
    opened = open_folder(RealDisk(str(folder)), LATER, min_free=0)
    opened.engine.commit(LATER)
    found = [position for block in opened.engine.log.read(0) for position in range(block.first, block.end)]
    opened.engine.log.close()
    return found


def footer_of(file: Path) -> Footer:
    found = Footer.decode(file.read_bytes()[-FOOTER_SIZE:])
    assert found is not None
    return found


def header_of(file: Path) -> SegmentHeader:
    found = SegmentHeader.decode(file.read_bytes()[:HEADER_SIZE])
    assert found is not None
    return found


def test_blocks_after_a_loss_are_rechained_and_the_next_segment_stays_unchanged(folder: Path) -> None:
    first, second = sorted(folder.glob("*.seg"))
    before, chain = second.read_bytes(), footer_of(first).chain
    flip(first, first.read_bytes().index(b"xxxx"))
    assert repair(folder) == [(1, 13)]
    bridge = min(folder.glob("*.seg"))
    footer = footer_of(bridge)
    assert footer.flags & (BRIDGE | RECHAINED) == BRIDGE | RECHAINED
    assert footer.chain == chain == header_of(second).chain
    assert second.read_bytes() == before
    file = RealDisk(str(folder)).open(bridge.name)
    blocks = [header for header, _, _ in walk(file, HEADER_SIZE, footer.blocks_end, footer.first)]
    file.close()
    assert (blocks[0].first, blocks[-1].end) == (12, 16)
    assert [block.reserved_2 for block in blocks] == [0, 0]
    assert blocks[-1].crc != chain
    assert positions(folder)[:7] == list(range(12, 19))


def test_a_lost_segment_is_bridged_to_the_checksum_the_next_one_expects(folder: Path) -> None:
    positions(folder)  # a third segment
    _, second, third = sorted(folder.glob("*.seg"))
    second.unlink()
    for checkpoint in folder.glob("*.ckpt"):
        checkpoint.unlink()
    before = third.read_bytes()
    assert repair(folder) == [(16, 19)]
    footer = footer_of(folder / "0000000000000012.seg")
    assert (footer.flags & RECHAINED, footer.chain) == (RECHAINED, header_of(third).chain)
    assert third.read_bytes() == before


def test_a_repaired_segment_can_be_repaired_again(folder: Path) -> None:
    first, second = sorted(folder.glob("*.seg"))
    before = second.read_bytes()
    flip(first, first.read_bytes().index(b"xxxx"))
    repair(folder)
    bridge = min(folder.glob("*.seg"))
    flip(bridge, HEADER_SIZE + 85)  # the bridge itself
    assert repair(folder) == [(12, 13)]
    assert footer_of(bridge).chain == header_of(second).chain
    assert second.read_bytes() == before
    assert positions(folder)[:7] == list(range(12, 19))


def test_a_repaired_segment_loses_its_footer(folder: Path) -> None:
    """The checksum that the next segment expects is unknown, so it is rechained, and nothing is lost."""
    first, second = sorted(folder.glob("*.seg"))
    flip(first, first.read_bytes().index(b"xxxx"))
    repair(folder)
    bridge = min(folder.glob("*.seg"))
    flip(bridge, bridge.stat().st_size - 10)
    assert repair(folder) == []
    assert footer_of(bridge).chain == header_of(second).chain
    assert positions(folder)[:7] == list(range(12, 19))


def test_a_foreign_segment_behind_a_repaired_one_is_detected(folder: Path) -> None:
    first, second = sorted(folder.glob("*.seg"))
    flip(first, first.read_bytes().index(b"xxxx"))
    repair(folder)
    raw, header = second.read_bytes(), header_of(second)
    second.write_bytes(header._replace(chain=header.chain ^ 1).encode() + raw[HEADER_SIZE:])
    problems = survey(RealDisk(str(folder))).problems
    assert "it is not the segment that 0000000000000010.seg was begun after" in [each.text for each in problems]


def test_a_block_is_chained_to_another(folder: Path) -> None:
    raw = min(folder.glob("*.seg")).read_bytes()
    header = parse_header(raw, HEADER_SIZE)
    chained, data = chain_to(header._replace(reserved_2=7), 0x01020304)
    assert parse_header(data) == chained == header._replace(previous=0x01020304, reserved_2=0, crc=chained.crc)
    assert chained.crc != header.crc
    with pytest.raises(BlockError, match="the header's checksum is wrong"):
        parse_header(data[:-4] + bytes(4))
