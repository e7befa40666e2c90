"""What every log must do. A new implementation is added to ``KINDS`` and has to pass all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.journal.errors import Fenced, Gone, LogClosed
from penstock.journal.files.disk import RealDisk
from penstock.journal.contract import JournalOptions
from penstock.journal.files.log import FileLog
from penstock.journal.contract import FIRST_POSITION, Log
from penstock.journal.memory import MemoryLog
from support.batches import NOW, Rowset, acknowledged, published
from support.simdisk import SimDisk

OPTIONS = JournalOptions(extent_bytes=4096, reserve=4096)
KINDS: dict[str, Callable[[Path], Log]] = {
    "memory": lambda _: MemoryLog(),
    "files": lambda path: FileLog(RealDisk(path), OPTIONS),
    "simulated files": lambda _: FileLog(SimDisk(), OPTIONS),
}


@pytest.fixture(params=KINDS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    log = KINDS[request.param](tmp_path)
    yield log
    log.close()


def add(log: Log, *payloads: bytes, roll: bool = False) -> Rowset:
    batch = published(log.end, list(payloads))
    log.append(batch, log.end, log.epoch, roll=roll)
    return batch


def positions(log: Log, start: int = 0) -> list[tuple[int, int]]:
    return [(block.first, block.end) for block in log.read(start)]


def test_a_new_log_is_empty(log: Log) -> None:
    assert (log.start, log.end, log.committed, log.epoch) == (FIRST_POSITION, FIRST_POSITION, FIRST_POSITION, 0)
    assert positions(log) == []
    assert log.wants_roll


def test_what_is_appended_is_read(log: Log) -> None:
    add(log, b"a", b"b")
    add(log, b"c")
    first, second = log.read(0)
    assert [first.value("payload", 0), first.value("payload", 1), second.value("payload", 0)] == [b"a", b"b", b"c"]
    assert (log.start, log.end, log.committed) == (1, 4, 4)


def test_reading_starts_with_the_block_that_has_the_position(log: Log) -> None:
    add(log, b"a", b"b")
    add(log, b"c")
    add(log, b"d", roll=True)
    assert positions(log, 1) == positions(log, 2) == [(1, 3), (3, 4), (4, 5)]
    assert positions(log, 3) == [(3, 4), (4, 5)]
    assert positions(log, 4) == [(4, 5)]
    assert positions(log, 5) == []


def test_a_reader_sees_what_was_there_when_it_began(log: Log) -> None:
    add(log, b"a")
    add(log, b"b")
    reader = log.read(0)
    assert next(reader).first == 1
    add(log, b"c")
    assert [block.first for block in reader] == [2]


@pytest.mark.parametrize(("position", "first", "epoch"), [(1, 1, 0), (3, 3, 0), (2, 3, 0), (2, 1, 0), (2, 2, 1)])
def test_a_second_writer_is_fenced_off(log: Log, position: int, first: int, epoch: int) -> None:
    add(log, b"a")
    with pytest.raises(Fenced, match="position 2, epoch 0"):
        log.append(published(first, [b"x"]), position, epoch)
    assert positions(log) == [(1, 2)]
    add(log, b"b")


def test_a_seal_shuts_out_the_epoch_before(log: Log) -> None:
    add(log, b"a")
    log.seal(5)
    assert log.epoch == 5
    with pytest.raises(Fenced):
        log.append(published(2, [b"x"]), 2, 0)
    for older in (5, 4):
        with pytest.raises(Fenced, match="not a newer one"):
            log.seal(older)
    log.append(published(2, [b"b"]), 2, 5)
    assert [block.epoch for block in log.read(0)] == [0, 5]


def test_a_batch_that_is_no_block_leaves_the_log_as_it_was(log: Log) -> None:
    with pytest.raises(ValueError, match="split it"):
        log.append(published(1, []), 1, 0)
    add(log, b"a")
    with pytest.raises(ValueError, match="split it"):
        log.append(published(2, []), 2, 0)
    add(log, b"b")
    assert positions(log) == [(1, 2), (2, 3)]


def test_trimming_keeps_what_is_at_the_position_or_later(log: Log) -> None:
    for letter in b"abcdef":
        add(log, bytes([letter]), roll=True)
    log.trim(4)
    assert positions(log) == [(4, 5), (5, 6), (6, 7)]
    assert log.start == 4
    with pytest.raises(Gone, match="goes from 4 to 6"):
        log.messages([3])
    log.trim(2)
    assert log.start == 4
    add(log, b"g")
    assert log.end == 8


def test_messages_come_in_the_order_asked_for(log: Log) -> None:
    payloads = [b"%d" % number for number in range(1, 41)]
    for at in range(0, 40, 4):
        add(log, *payloads[at : at + 4], roll=at % 16 == 0)
    wanted = [40, 1, 17, 18, 3, 3, 22]
    found = log.messages(wanted)
    assert [message.position for message in found] == wanted
    assert [message.payload for message in found] == [payloads[position - 1] for position in wanted]
    assert {(m.at, m.queue, m.source, m.retries) for m in found} == {(NOW, 1, b"sspq 127.0.0.1:4000", 255)}
    assert log.messages([]) == []


def test_only_messages_are_messages(log: Log) -> None:
    add(log, b"a")
    log.append(acknowledged(2, [1]), 2, 0)
    for position in (0, 2, 3):
        with pytest.raises(Gone):
            log.messages([1, position])


def test_the_floor_is_not_below_the_start(log: Log) -> None:
    for letter in b"abc":
        add(log, bytes([letter]), roll=True)
    log.set_floor(2)
    assert log.floor == 2
    log.trim(3)
    assert log.floor == 3


def test_a_closed_log_takes_nothing(log: Log) -> None:
    add(log, b"a")
    log.close()
    log.close()
    for use in (lambda: add(log, b"b"), log.sync, lambda: log.seal(9), lambda: log.trim(1)):
        with pytest.raises(LogClosed):
            use()


def test_memory_can_be_bounded() -> None:
    log = MemoryLog(most_bytes=10_000)
    for number in range(200):
        add(log, b"%d" % number * 50)
        assert sum(block.header.length for block in log.read(0)) <= 10_000
    assert log.start > 100
    assert log.messages([200])[0].payload == b"199" * 50
