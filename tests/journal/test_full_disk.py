"""A full disk: appends wait and are retried, confirmed events stay, and the reserve provides the space for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from penstock.journal.committer import Committer, Staged
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.errors import LogFailed, LogFull
from penstock.journal.files.checkpoints import Checkpoints
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.log import FileLog
from penstock.journal.files.space import KEPT, NAME, START_BYTES
from support.batches import published
from support.simdisk import SimDisk

OPTIONS = OwnerOptions(extent_bytes=2048, reserve=256)


def append(log: FileLog, payload: bytes = b"x" * 100) -> None:
    log.append(published(log.end, [payload]), log.end, log.epoch, roll=log.wants_roll)


def append_until_full(log: FileLog) -> tuple[list[bytes], str]:
    """Append until the disk is full. Returns the written events and the error."""
    written: list[bytes] = []
    try:
        while True:
            append(log, payload := b"%d" % len(written) * 60)
            written.append(payload)
    except LogFull as error:
        return written, str(error)


def payloads(log: FileLog) -> list[bytes]:
    positions = [position for block in log.read(0) for position in range(block.first, block.end)]
    return [message.payload for message in log.messages(positions)]


def test_all_free_space_is_used_before_an_append_waits() -> None:
    """Space may run out anywhere in a block, header, index or footer; the same append continues when there is more."""
    begins = SimDisk()
    FileLog(begins, OPTIONS)
    least = begins.space - begins.left
    for room in range(0, 3500, 7):
        disk = SimDisk(room)
        disk.space = least + room
        log = FileLog(disk, OPTIONS)
        written, reason = append_until_full(log)
        assert "the disk under /sim is full" in reason
        assert log.committed == len(written) + 1
        disk.space += 4000
        append(log, b"the same again")
        log.close()
        log = FileLog(disk, OPTIONS)
        assert log.report == []
        assert payloads(log) == [*written, b"the same again"]
        log.close()


@pytest.mark.parametrize("keep", ["none", "all", "any"])
def test_a_power_cut_while_an_append_waits_for_space_loses_nothing_confirmed(keep: str) -> None:
    for room in range(600, 3500, 29):
        disk = SimDisk(room)
        disk.space = room
        log = FileLog(disk, OPTIONS)
        written, _ = append_until_full(log)
        disk.crash(keep)
        disk.space += 1000
        log = FileLog(disk, OPTIONS)
        assert payloads(log) == written
        append(log)
        log.close()


@pytest.mark.parametrize("durability", list(Durability))
def test_every_disk_call_fails_once_for_lack_of_space(durability: Durability) -> None:
    """Only a failed sync ends a log, because its writes may be lost. Everything else is simply retried."""
    options = OwnerOptions(durability, extent_bytes=600, reserve=256)

    def story(disk: SimDisk) -> Iterator[str]:
        """Write the log, retrying every step. Yields each step that failed."""
        while True:
            try:
                log = FileLog(disk, options)
            except LogFull:
                yield "open"
                continue
            try:
                log.seal(log.epoch + 1)
                break
            except LogFull:
                yield "seal"
                log.close()
        for number in range(12):
            while True:
                try:
                    append(log, b"%d" % number * 30)
                    break
                except LogFull:
                    yield "append"
        log.sync()
        with suppress(LogFull):  # then the next start completes it
            log.close()

    clean = SimDisk()
    assert list(story(clean)) == []
    waited: list[str] = []
    ended: set[str] = set()
    for number in range(1, clean.made + 1):
        disk = SimDisk(number)
        disk.fail_at(number, "ENOSPC")
        try:
            waited += story(disk)
        except LogFailed:
            ended.add(disk.failed)
            continue
        log = FileLog(disk, options)
        assert payloads(log) == [b"%d" % number * 30 for number in range(12)], number
        log.close()
    assert {"open", "seal", "append"} == set(waited)
    assert ended <= {"sync", "sync folder", "truncate"}


def with_reserve(size: int) -> tuple[SimDisk, FileLog]:
    disk = SimDisk()
    log = FileLog(disk, OPTIONS)
    append(log)
    log.space.fill(size)
    assert log.space.reserve == size
    return disk, log


def test_appends_continue_from_the_reserve_on_a_full_disk() -> None:
    disk, log = with_reserve(20_000)
    disk.space -= disk.left
    count = len(append_until_full(log)[0])
    assert count * 200 > 14_000
    assert log.space.reserve == 0
    log.close()  # an index and a footer always have room
    disk.space += START_BYTES
    log = FileLog(disk, OPTIONS)
    assert log.report == []
    assert len(payloads(log)) == count + 1


def test_the_reserve_is_refilled_only_if_as_much_stays_free() -> None:
    disk, log = with_reserve(20_000)
    disk.space -= disk.left
    append(log)
    kept = log.space.reserve
    assert 0 < kept < 20_000
    disk.space += 39_999 - kept - disk.left
    log.space.fill(20_000)
    assert log.space.reserve == kept
    disk.space += 1
    log.space.fill(20_000)
    assert log.space.reserve == 20_000
    assert disk.left == 20_000
    log.space.fill(9_000)
    assert log.space.reserve == 9_000
    disk.space -= disk.left
    disk.space += 1_000
    log.space.fill(12_000)  # there is no space to extend it, and the existing part stays
    assert log.space.reserve == 9_000


def test_a_start_on_a_full_disk_uses_the_reserve_or_reports_the_missing_space() -> None:
    disk, log = with_reserve(20_000)
    log.seal(1)
    log.close()
    disk.space -= disk.left
    log = FileLog(disk, OPTIONS)
    log.seal(2)
    append(log)
    assert len(payloads(log)) == 2
    log.close()
    disk.unlink(NAME)
    disk.space -= disk.left
    log = FileLog(disk, OPTIONS)
    with pytest.raises(LogFull, match=r"No space left.*Free some space"):
        log.seal(3)
    assert log.epoch == 2
    log.close()
    disk.space += START_BYTES
    log = FileLog(disk, OPTIONS)
    log.seal(3)
    log.close()


def test_a_new_journal_on_a_full_disk_waits_for_space_and_holds_no_lock() -> None:
    disk = SimDisk()
    disk.space = 10
    for _ in range(2):
        with pytest.raises(LogFull):
            FileLog(disk, OPTIONS)
    disk.space = 10_000
    append(FileLog(disk, OPTIONS))


def test_a_checkpoint_uses_the_reserve_but_leaves_some_and_never_fills_the_disk() -> None:
    disk, log = with_reserve(20_000)
    checkpoints = Checkpoints(disk, log.identity, log.space)
    checkpoints.write(2, b"{}", {"some": np.zeros(100, np.uint8)})
    disk.space -= disk.left
    before = set(disk.seen)
    with pytest.raises(LogFull, match=r"is nearly full: 16[0-9]{3} bytes needed, 15000 free"):
        checkpoints.write(3, b"{}", {"some": np.zeros(16_000, np.uint8)})
    assert (set(disk.seen), log.space.reserve) == (before, 20_000)
    checkpoints.write(3, b"{}", {"some": np.zeros(14_000, np.uint8)})
    assert checkpoints.positions() == [2, 3]
    assert log.space.reserve >= 20_000 // KEPT
    append(log)


def test_the_remains_of_a_failed_checkpoint_are_removed_at_once() -> None:
    disk = SimDisk()
    checkpoints = Checkpoints(disk, 7)
    disk.space = 1_000
    with pytest.raises(LogFull, match="no room for a checkpoint"):
        checkpoints.write(3, b"{}", {"some": np.zeros(5_000, np.uint8)})
    assert disk.left == 1_000


def test_reserved_steps_get_smaller_when_space_is_short() -> None:
    disk = SimDisk()
    log = FileLog(disk, OwnerOptions(reserve=2**20))
    disk.space = 2**20
    append(log)
    assert disk.left > 2**20 * 7 // 8


def test_a_real_reserve_occupies_its_space(tmp_path: Path) -> None:
    log = FileLog(RealDisk(tmp_path), OPTIONS)
    log.space.fill(2**20)
    assert (tmp_path / NAME).stat().st_blocks * 512 >= 2**20
    log.close()
    log = FileLog(RealDisk(tmp_path), OPTIONS)
    assert log.space.reserve == 2**20
    log.close()


class Writing:
    """A committer on a disk, with messages to write."""

    def __init__(self, disk: SimDisk) -> None:
        self.log = FileLog(disk, OPTIONS)
        self.waiting = [b"one" * 50, b"two" * 50, b"three" * 50]
        self.failures: list[Exception] = []
        self.full: list[LogFull | None] = []
        self.changed = threading.Semaphore(0)
        self.between = threading.Semaphore(0)
        self.committed = threading.Event()
        self.committer = Committer(
            self.log,
            self.take,
            lambda position: self.committed.set() if position == 4 else None,
            self.failures.append,
            on_full=self.report,
            while_full=self.between.release,
        )
        self.committer.start()
        self.committer.wake()

    def take(self) -> Staged | None:
        if not self.waiting:
            return None
        batch = published(self.log.end, [self.waiting.pop(0)])
        if self.waiting:
            self.committer.wake()
        return Staged(batch)

    def report(self, error: LogFull | None) -> None:
        self.full.append(error)
        self.changed.release()


def test_the_committer_waits_for_space_frees_some_and_continues() -> None:
    disk = SimDisk()
    disk.space = 550
    writing = Writing(disk)
    assert writing.changed.acquire(timeout=10)
    assert writing.committer.full is not None
    for _ in range(2):
        assert writing.between.acquire(timeout=10)
    assert not writing.committed.is_set()
    disk.space = 10_000
    assert writing.committed.wait(10)
    writing.committer.close()
    assert writing.failures == []
    assert writing.committer.full is None
    assert [error is None for error in writing.full] == [index % 2 == 1 for index in range(len(writing.full))]
    assert payloads(writing.log) == [b"one" * 50, b"two" * 50, b"three" * 50]
    writing.log.close()


def test_a_stop_does_not_wait_for_space() -> None:
    disk = SimDisk()
    disk.space = 550
    writing = Writing(disk)
    assert writing.changed.acquire(timeout=10)
    writing.committer.close()
    assert [type(failure) for failure in writing.failures] == [LogFull]
    there = writing.log.committed
    writing.log.close()
    disk.space = 10_000
    log = FileLog(disk, OPTIONS)
    assert log.end == there
    log.close()


def test_earlier_appends_are_committed_while_the_next_waits_for_space() -> None:
    """This applies to the interval durability, which syncs now and then."""
    disk = SimDisk()
    log = FileLog(disk, OwnerOptions(Durability.INTERVAL, reserve=1024))
    append(log)
    disk.space -= disk.left
    waiting = [published(log.end, [b"small"]), published(log.end + 1, [b"large" * 500])]
    reported: list[int] = []
    committed = threading.Semaphore(0)

    def take() -> Staged | None:
        return Staged(waiting.pop(0)) if waiting else None

    def report(position: int) -> None:
        reported.append(position)
        committed.release()

    failures: list[Exception] = []
    committer = Committer(log, take, report, failures.append, sync_every=0.3)
    assert committer.commit_now()
    assert reported == []
    committer.start()
    committer.wake()
    assert committed.acquire(timeout=10)
    assert reported == [3]
    disk.space += 10_000
    assert committed.acquire(timeout=10)
    committer.close()
    assert (reported, failures) == ([3, 4], [])
    log.close()
