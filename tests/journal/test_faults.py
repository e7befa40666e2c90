"""A fault at every place. Everything read back was written, and confirmed blocks are never missing silently: they are
there, or the start reports what it cut off, or the start is refused.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import pytest

from penstock.journal.contract import GAP, Durability, OwnerOptions
from penstock.journal.errors import JournalDamaged, JournalRefused, LogError, LogFailed, LogFull
from penstock.journal.files import tail
from penstock.journal.files.folder import NAME as FOLDER
from penstock.journal.files.log import FileLog
from penstock.journal.format.segment import is_segment, segment_name
from support.batches import acknowledged, published
from support.simdisk import SimDisk, SimFile

DURABILITIES = list(Durability)


def options(durability: Durability = Durability.COMMIT) -> OwnerOptions:
    return OwnerOptions(durability, extent_bytes=2048, reserve=256)


@dataclass
class Story:
    """The writes to a log, and its confirmations."""

    durability: Durability = Durability.COMMIT
    written: list[tuple[int, int]] = field(default_factory=list)  # first and CRC of the blocks appended
    confirmed: int = 1
    trimmed: int = 5  # the first two segments

    def run(self, disk: SimDisk, *, close: bool = True) -> None:
        """The fixed workload: two runs, commits of several sizes, a roll, a trim."""
        first = self.open(disk)
        first.seal(1)
        self.commits(first, [b"one"], [b"two", b"3" * 50])
        self.commits(first, [], roll=True)
        self.commits(first, [b"x" * 500], roll=True)
        first.close()
        second = self.open(disk)
        self.commits(second, [b"four", b"5"], sync=False)
        self.commits(second, [b"six" * 90], roll=True)
        second.trim(self.trimmed)
        self.commits(second, [b"seven"], [b"eight"] * 9, sync=False)
        if close:
            second.close()
            self.confirmed = second.committed

    def open(self, disk: SimDisk) -> FileLog:
        return FileLog(disk, options(self.durability), identity=0xFEED, created=1)

    def commits(self, log: FileLog, *commits: list[bytes], roll: bool = False, sync: bool = True) -> None:
        """Append messages (an acknowledgement for an empty list), and sync."""
        for payloads in commits:
            batch = published(log.end, payloads) if payloads else acknowledged(log.end, [1])
            self.written.append((log.end, 0))
            log.append(batch, log.end, log.epoch, roll=roll)
            self.written[-1] = (batch.first, log.extents()[-1].chain)
            self.confirmed = log.committed
        if sync:
            log.sync()
            self.confirmed = log.committed

    def check(self, log: FileLog) -> int:
        """Check that the log contains only written blocks. Returns the number of missing confirmed blocks."""
        found = []
        for block in log.read(0):
            found.append((block.first, block.header.crc))
            rows = block.message_rows() + block.first
            assert [message.position for message in log.messages(rows.tolist())] == rows.tolist()
        known = {first: crc for first, crc in self.written if crc}
        assert [first for first, _ in found] == [first for first, _ in self.written if first >= log.start][: len(found)]
        assert all(known.get(first, crc) == crc for first, crc in found)
        there = {first for first, _ in found}
        return sum(self.trimmed <= first < self.confirmed and first not in there for first, _ in self.written)

    def goes_on(self, log: FileLog, disk: SimDisk) -> None:
        """Check that the log can be appended to, and that the next start finds the new blocks."""
        there = {block.first for block in log.read(0)}
        self.written = [each for each in self.written if each[0] in there]
        self.commits(log, [b"after the fault"])
        log.close()
        with opened(disk, self.durability) as again:
            assert again.report == []
            assert self.check(again) == 0


@contextmanager
def opened(disk: SimDisk, durability: Durability = Durability.COMMIT) -> Iterator[FileLog]:
    log = FileLog(disk, options(durability))
    try:
        yield log
    finally:
        log.close()


def calls_of_the_story(durability: Durability) -> int:
    disk = SimDisk()
    Story(durability).run(disk)
    return disk.made


def ended_by(story: Story, disk: SimDisk) -> str:
    try:
        story.run(disk)
    except (LogFailed, LogFull) as error:
        return type(error).__name__
    return "None"


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("how", ["EIO", "ENOSPC", "short"])
def test_every_disk_call_fails_once(durability: Durability, how: str) -> None:
    for number in range(1, calls_of_the_story(durability) + 1):
        for keep in ("any",) if how == "short" else ("none", "all", "any"):
            disk = SimDisk(number)
            disk.fail_at(number, how)
            story = Story(durability)
            # The free space only decides how much to reserve; with less of it, reservations are smaller.
            allowed = {"short": "None", "EIO": "LogFailed", "ENOSPC": "None LogFailed LogFull"}[how].split()
            ended = ended_by(story, disk)
            assert ended in allowed or (ended == "None" and disk.failed == "free")
            disk.crash(keep)
            with opened(disk, durability) as log:
                assert story.check(log) == 0 or (durability is Durability.OS and log.end > 2**32), f"call {number}"
                if log.epoch:
                    story.goes_on(log, disk)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_power_is_lost_after_every_disk_call(durability: Durability) -> None:
    """The process ends without an error, with unsynced changes in any state."""

    class PowerLoss(BaseException):
        pass

    class Mortal(SimDisk):
        last = 0

        def call(self, name: str) -> bool:
            if self.made >= self.last:
                raise PowerLoss
            return super().call(name)

    for number in range(calls_of_the_story(durability)):
        for seed in range(4):
            disk = Mortal(seed * 10_000 + number)
            disk.last = number
            story = Story(durability)
            with pytest.raises(PowerLoss):
                story.run(disk)
            disk.last = 1 << 60
            disk.crash()
            with opened(disk, durability) as log:
                assert story.check(log) == 0 or (durability is Durability.OS and log.end > 2**32)


def test_a_failed_log_refuses_everything() -> None:
    disk = SimDisk()
    story = Story()
    log = story.open(disk)
    story.commits(log, [b"a"])
    disk.fail_at(disk.made + 4, "EIO")  # after the free space: allocate and write
    for _ in range(3):
        with pytest.raises(LogFailed, match="simulated EIO in sync"):
            story.commits(log, [b"b"])
    with pytest.raises(LogFailed):
        log.sync()
    assert log.committed == 2
    assert [block.first for block in log.read(0)] == [1]
    log.close()
    disk.crash("none")
    with opened(disk) as again:
        assert (again.end, again.report) == (2, [])


def test_space_can_be_freed_on_a_full_disk() -> None:
    """The folder file cannot be rewritten then; the journal's beginning in `tail` suffices for the next start."""
    disk, story = SimDisk(), Story()
    log = story.open(disk)
    for letter in b"abc":
        story.commits(log, [bytes([letter])], roll=True)
    disk.create = no_room  # type: ignore[method-assign]
    log.trim(3)
    del disk.create
    assert log.start == 3
    disk.crash("none")
    with opened(disk) as again:
        assert (again.start, again.report) == (3, [])


def test_the_beginning_of_a_journal_survives_a_torn_tail() -> None:
    """As above; then the machine fails while a commit overwrites the record, and half of it is on disk."""
    disk, story = SimDisk(), Story()
    log = story.open(disk)
    for letter in b"abc":
        story.commits(log, [bytes([letter])], roll=True)
    disk.create = no_room  # type: ignore[method-assign]
    log.trim(3)
    del disk.create
    disk.crash("none")
    disk.flip(tail.NAME, 8 * 20)
    with opened(disk) as again:
        assert (again.start, [each.segment for each in again.report]) == (3, [])
        story.commits(again, [b"d"])
    disk.crash("all")
    disk.flip(tail.NAME, 8 * 20)
    with opened(disk) as again:
        assert (again.start, [block.first for block in again.read(0)]) == (3, [3, 4])


def no_room(name: str) -> SimFile:
    raise OSError(errno.ENOSPC, "no space left", name)


def left_behind(*, close: bool) -> tuple[SimDisk, Story]:
    disk, story = SimDisk(), Story()
    story.run(disk, close=close)
    disk.crash("all")
    return disk, story


def copy_of(disk: SimDisk) -> SimDisk:
    copy = SimDisk()
    for name, inode in disk.seen.items():
        file = copy.create(name)
        file.write([bytes(inode.seen)], 0)
        file.sync()
    copy.sync()
    return copy


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {name: bytes(inode.seen) for name, inode in disk.seen.items()}


def start(disk: SimDisk, story: Story) -> JournalRefused | None:
    """Start on a damaged disk. Returns the refusal, or None if nothing is lost or the loss was reported."""
    had_tail, before = tail.NAME in disk.seen, contents(disk)
    try:
        log = FileLog(disk, options())
    except JournalRefused as error:
        if contents(disk) != before:
            pytest.fail("a refused start changed the folder")
        return error
    try:
        lost = story.check(log)
    except JournalDamaged as error:
        return error
    finally:
        log.close()
    assert not lost or (log.report and not had_tail), "silent loss"
    return None


@pytest.mark.parametrize("close", [True, False], ids=["after a clean stop", "after kill -9"])
@pytest.mark.parametrize("with_tail", [True, False], ids=["with tail", "without tail"])
def test_the_last_segment_is_cut_at_every_byte(close: bool, with_tail: bool) -> None:
    original, story = left_behind(close=close)
    if not with_tail:
        original.unlink(tail.NAME)
    last = max(filter(is_segment, original.seen))
    for size in range(len(original.seen[last].seen)):
        disk = copy_of(original)
        disk.open(last).truncate(size)
        refused = start(disk, story)
        assert with_tail or refused is None
        assert not isinstance(refused, JournalDamaged) or refused.lost[1] == story.confirmed
        if refused is None and size % 16 == 0:
            with opened(disk) as log:
                Story(written=story.written, trimmed=log.end).goes_on(log, disk)


@pytest.mark.parametrize("close", [True, False], ids=["after a clean stop", "after kill -9"])
@pytest.mark.parametrize("with_tail", [True, False], ids=["with tail", "without tail"])
def test_every_byte_is_flipped(close: bool, with_tail: bool) -> None:
    original, story = left_behind(close=close)
    if not with_tail:
        original.unlink(tail.NAME)
    random = Random(7)
    refused: Counter[str] = Counter()
    for name, inode in sorted(original.seen.items()):
        for at in range(len(inode.seen)):
            disk = copy_of(original)
            disk.flip(name, at * 8 + random.randrange(8))
            refused[name] += start(disk, story) is not None
    assert not refused[tail.NAME]
    assert refused.total() > 500


def offsets(disk: SimDisk) -> dict[int, int]:
    """Return the offsets of the blocks by position."""
    with opened(copy_of(disk)) as log:
        return {block.first: block.offset for block in log.read(0)}


def three_blocks(payload: bytes = b"middle") -> SimDisk:
    disk, story = SimDisk(), Story()
    log = story.open(disk)
    story.commits(log, [b"first"], [payload, payload], [b"last"])
    story.commits(log, [b"next segment"], roll=True)
    log.close()
    return disk


def test_damage_in_the_middle_names_the_lost_range() -> None:
    disk = three_blocks()
    offset = offsets(disk)[2]
    disk.flip(segment_name(1), (offset + 100) * 8)
    with opened(disk) as log, pytest.raises(JournalDamaged) as caught:
        list(log.read(0))
    assert (caught.value.segment, caught.value.offset, caught.value.lost) == (segment_name(1), offset, (2, 4))
    assert "Lost: positions 2 to 3. To keep the rest: penstock journal repair /sim" in str(caught.value)


def test_a_valid_block_from_elsewhere_is_detected() -> None:
    disk, other = three_blocks(), three_blocks(b"fiddle")
    start, stop = offsets(disk)[2], offsets(disk)[4]
    disk.open(segment_name(1)).write([other.open(segment_name(1)).read(stop - start, start)], start)
    with opened(disk) as log, pytest.raises(JournalDamaged, match="does not continue the block before it"):
        list(log.read(0))


def test_a_valid_segment_from_elsewhere_is_detected() -> None:
    disk, other = three_blocks(), three_blocks(b"fiddle")
    disk.seen[segment_name(1)] = other.seen[segment_name(1)]
    with pytest.raises(JournalRefused, match=r"is not the segment that 0000000000000005\.seg was begun after"):
        FileLog(disk)


def test_a_full_reserve_is_not_mistaken_for_a_cut() -> None:
    for reserve in range(8, 400, 8):
        disk = SimDisk()
        log = FileLog(disk, OwnerOptions(reserve=reserve))
        for _ in range(2):
            log.append(published(log.end, [b"x"]), log.end, 0)
        disk.crash("all")
        with opened(disk) as again:
            assert (again.end, again.report) == (3, []), reserve


def test_a_missing_segment_is_detected() -> None:
    for close in (True, False):
        original, _ = left_behind(close=close)
        names = sorted(filter(is_segment, original.seen))
        assert len(names) >= 3
        for name in names[1:]:
            disk = copy_of(original)
            disk.unlink(name)
            with pytest.raises(JournalDamaged, match=r"begun when the log ended at|was confirmed"):
                FileLog(disk)


@pytest.mark.parametrize("durability", [Durability.INTERVAL, Durability.OS])
def test_positions_that_may_have_been_seen_are_not_reused(durability: Durability) -> None:
    disk, story = SimDisk(), Story(durability)
    log = story.open(disk)
    story.commits(log, [b"a"])
    log.append(published(2, [b"lost"]), 2, 0)
    disk.crash("none")
    for _ in range(3):  # the gap counts from the last existing event, however often the journal is opened
        with opened(disk, durability) as again:
            assert again.end == again.committed == 2 + GAP
        disk.crash("none")
    with opened(disk, durability) as again:
        story.commits(again, [b"b"])
        assert [block.first for block in again.read(0)] == [1, 2 + GAP]
        assert again.messages([2 + GAP])[0].payload == b"b"
        with pytest.raises(LogError, match="position 2 is not in the journal"):
            again.messages([2])
    with opened(disk, durability) as clean:
        assert clean.end == 3 + GAP


def test_a_gap_remains_when_nothing_of_the_last_segment_is_left() -> None:
    disk, story = SimDisk(), Story(Durability.OS)
    log = story.open(disk)
    story.commits(log, [b"a"])
    log.append(published(2, [b"seen by a reader, then lost"]), 2, 0, roll=True)
    disk.crash("none")
    for _ in range(2):
        with opened(disk, Durability.OS) as again:
            assert again.end == 2 + GAP


def test_nothing_is_missing_in_a_gap() -> None:
    """The first segment was empty and trimmed. Neither the folder nor the torn `tail` records that."""
    disk, story = SimDisk(), Story(Durability.OS)
    story.commits(story.open(disk), [b"seen by a reader, then lost"], sync=False)
    disk.crash("none")
    log = story.open(disk)
    story.commits(log, [b"a"])
    folder = disk.seen[FOLDER]
    log.trim(log.end)
    disk.crash("all")
    disk.seen[FOLDER] = folder  # a rewrite needs space elsewhere, which a full disk does not have
    disk.unlink(tail.NAME)
    assert list(filter(is_segment, disk.seen)) == [segment_name(1 + GAP)]
    with opened(disk, Durability.OS) as again:
        assert [block.first for block in again.read(0)] == [1 + GAP]


def test_interval_damage_below_the_synced_position_is_not_a_torn_tail() -> None:
    disk, story = SimDisk(), Story(Durability.INTERVAL)
    log = story.open(disk)
    story.commits(log, [b"a"])
    story.commits(log, [b"b"])
    log.append(published(3, [b"c"]), 3, 0)
    log.append(published(4, [b"d"]), 4, 0)
    disk.crash("all")
    disk.unlink(tail.NAME)
    at = offsets(disk)
    unsynced = copy_of(disk)
    unsynced.flip(segment_name(1), (at[3] + 50) * 8)
    with opened(unsynced, Durability.INTERVAL) as again:
        assert [found.first for found in again.read(0)] == [1, 2]
        assert [finding.position for finding in again.report] == [3]
    synced = copy_of(disk)
    synced.flip(segment_name(1), (at[1] + 50) * 8)
    with pytest.raises(JournalDamaged), opened(synced, Durability.INTERVAL):
        pass
