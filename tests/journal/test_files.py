"""The log in files, beyond the contract: the folder's contents, locking, and reading from other processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import pytest

from penstock.journal.contract import FIRST_POSITION, Durability, OwnerOptions
from penstock.journal.errors import Fenced, Gone, JournalDamaged, JournalRefused
from penstock.journal.files.disk import Part, RealDisk
from penstock.journal.files.folder import Folder, store_folder
from penstock.journal.files.follower import JournalReader
from penstock.journal.files.log import FileLog
from penstock.journal.files.segment_reader import KEPT_BYTES
from penstock.journal.files.segment_writer import AHEAD, SMALL
from penstock.journal.files.tail import TailReader
from penstock.journal.format.block import VERSION
from penstock.journal.format.checksum import crc32
from penstock.journal.format.segment import HEADER_SIZE, INDEX_STEP, SegmentHeader, segment_name
from support.batches import NOW, published
from support.simdisk import SimDisk, SimFile


def add(log: FileLog, *payloads: bytes, roll: bool = False, at: int = NOW) -> None:
    log.append(published(log.end, list(payloads), at=at), log.end, log.epoch, roll=roll)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_the_files_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "backup.seg").write_text("mine")
    log = FileLog(RealDisk(tmp_path), identity=0xABC, created=5)
    log.seal(3)
    add(log, b"a")
    add(log, b"b", roll=True)
    log.close()
    assert names(tmp_path) == [
        "0000000000000001.seg",
        "0000000000000002.seg",
        "backup.seg",
        "lock",
        "notes.txt",
        "penstock.json",
        "tail",
    ]
    written = json.loads((tmp_path / "penstock.json").read_text())
    assert {**written, "checksum": None} == {
        "format": VERSION,
        "identity": "0000000000000abc",
        "created": 5,
        "epoch": 3,
        "start": 1,
        "checksum": None,
    }
    assert (tmp_path / "0000000000000001.seg").stat().st_size < 1000  # the reserved space is released
    again = FileLog(RealDisk(tmp_path))
    assert (again.identity, again.epoch, again.end, again.report) == (0xABC, 3, 3, [])
    again.close()


def test_a_start_does_not_append_to_an_old_segment(tmp_path: Path) -> None:
    for number in range(3):
        log = FileLog(RealDisk(tmp_path))
        assert [segment.first for segment in log.extents()] == list(range(1, number + 1))
        add(log, b"x")
        log.close()
    idle = FileLog(RealDisk(tmp_path))
    idle.close()
    assert [name for name in names(tmp_path) if name.endswith(".seg")] == [segment_name(n) for n in (1, 2, 3)]


def test_small_commits_write_zeros_ahead_once_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing merely allocated space also updates metadata, which takes longer than a small commit."""
    ends: list[int] = []
    write = SimFile.write

    def note(file: SimFile, parts: Sequence[Part], offset: int) -> int:
        ends.append(offset + sum(map(len, parts)))
        return write(file, parts, offset)

    monkeypatch.setattr(SimFile, "write", note)

    def ahead(log: FileLog, payload: bytes) -> int:
        """Return the distance the commit has written beyond its block."""
        ends.clear()
        add(log, payload)
        return max(ends) - log.extents()[0].blocks_end

    log = FileLog(disk := SimDisk())
    assert [ahead(log, b"small") for _ in range(4)] == [AHEAD, 0, 0, 0]
    assert [ahead(log, bytes(size)) for size in (SMALL, AHEAD)] == [0, 0]
    assert [ahead(log, b"small") for _ in range(2)] == [AHEAD, 0]
    written = [block.count for block in log.read(0)]
    disk.crash()
    assert [block.count for block in FileLog(disk).read(0)] == written
    assert ahead(FileLog(SimDisk(), OwnerOptions(Durability.OS)), b"small") == 0


def test_zeros_are_left_out_on_a_full_disk() -> None:
    log = FileLog(disk := SimDisk())
    add(log, b"small")
    add(log, bytes(AHEAD))
    disk.fail_at(disk.made + 1, "ENOSPC")
    add(log, b"small")
    assert (disk.failed, [block.count for block in log.read(0)]) == ("write", [1, 1, 1])


def test_a_read_that_ends_early_closes_its_file(tmp_path: Path) -> None:
    """Compiled generators do not run ``finally`` when they are dropped, so the file must be closed in another way."""
    log = FileLog(RealDisk(tmp_path))
    for _ in range(5):
        add(log, b"x")
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        assert [block.first for block in takewhile(lambda block: block.first < 3, log.read(1))] == [1, 2]
        assert next(log.check(log.extents()[0]))[1] is None
        with pytest.raises(ZeroDivisionError):
            _ = [1 // 0 for _ in log.read(1)]
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_segments_report_their_size_and_times() -> None:
    log = FileLog(SimDisk())
    add(log, b"a", at=NOW)
    add(log, b"b", at=NOW + 50)
    add(log, b"c", roll=True, at=NOW + 90)
    described = [(each.first, each.end, each.created, each.last_at, each.size > 100) for each in log.extents()]
    assert described == [(1, 3, NOW, NOW + 50, True), (3, 4, NOW + 90, NOW + 90, True)]
    assert log.space.look() > 0


def test_a_roll_is_due_by_size_and_by_age() -> None:
    log = FileLog(SimDisk(), OwnerOptions(extent_bytes=3000, extent_age=1000))
    add(log, b"a")
    assert not log.wants_roll
    add(log, b"x" * 3000)
    assert log.wants_roll
    add(log, b"b", roll=True)
    assert not log.wants_roll
    add(log, b"c", at=NOW + 1000)
    assert log.wants_roll


# Locking


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    code = "from penstock.journal import open_journal; import sys; open_journal(sys.argv[1]).own().close()"
    log = FileLog(RealDisk(tmp_path))
    second = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"{tmp_path} is in use by another broker (process {os.getpid()}): stop it first" in second.stderr
    log.close()
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_the_same_process_is_refused_too(tmp_path: Path) -> None:
    log = FileLog(RealDisk(tmp_path))
    with pytest.raises(JournalRefused, match="in use"):
        FileLog(RealDisk(tmp_path))
    add(log, b"still mine")
    log.close()


def test_a_failed_open_releases_the_lock(tmp_path: Path) -> None:
    (tmp_path / segment_name(1)).write_bytes(b"")
    for _ in range(2):
        with pytest.raises(JournalRefused, match=r"files of a journal but no penstock\.json"):
            FileLog(RealDisk(tmp_path))


def test_an_older_epoch_is_fenced_off_after_a_restart() -> None:
    disk = SimDisk()
    log = FileLog(disk)
    log.seal(4)
    log.close()
    again = FileLog(disk)
    with pytest.raises(Fenced):
        again.seal(4)


# Refusals


@pytest.mark.parametrize("number", [VERSION - 1, VERSION + 1])
def test_a_folder_of_another_format_is_refused(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    disk = SimDisk()
    monkeypatch.setattr("penstock.journal.files.folder.VERSION", number)
    FileLog(disk).close()
    monkeypatch.undo()
    with pytest.raises(JournalRefused, match=f"written in format {number}: this Penstock reads format {VERSION}. Use"):
        FileLog(disk)


@pytest.mark.parametrize("number", [VERSION - 1, VERSION + 1])
def test_a_segment_of_another_format_is_refused(number: int) -> None:
    disk = SimDisk()
    log = FileLog(disk)
    add(log, b"a")
    log.close()
    name = next(name for name in disk.names() if name.endswith(".seg"))
    raw = disk.open(name).read(HEADER_SIZE - 4, 0)
    raw = raw[:4] + number.to_bytes(2, "little") + raw[6:]
    disk.open(name).write([raw + crc32(raw).to_bytes(4, "little")], 0)
    with pytest.raises(JournalRefused, match=f"written in format {number}: this Penstock reads format {VERSION}. Use"):
        FileLog(disk)


@pytest.mark.parametrize("number", [VERSION - 1, VERSION + 1])
def test_a_tail_of_another_format_is_refused(tmp_path: Path, number: int) -> None:
    FileLog(RealDisk(tmp_path)).close()
    raw = (tmp_path / "tail").read_bytes()[:-4]
    raw = raw[:4] + number.to_bytes(2, "little") + raw[6:]
    (tmp_path / "tail").write_bytes(raw + crc32(raw).to_bytes(4, "little"))
    refused = f"written in format {number}: this Penstock reads format {VERSION}. Use"
    with pytest.raises(JournalRefused, match=refused):
        JournalReader(tmp_path)
    with pytest.raises(JournalRefused, match=refused):
        FileLog(RealDisk(tmp_path))


def test_a_segment_of_another_journal_is_refused() -> None:
    disk = SimDisk()
    FileLog(disk, identity=1).close()
    foreign = SegmentHeader(Durability.COMMIT, 2, 1, 1, NOW, 0, 0)
    disk.create(segment_name(1)).write([foreign.encode()], 0)
    with pytest.raises(JournalRefused, match="belongs to another journal"):
        FileLog(disk)


def test_a_checkpoint_must_lie_within_the_journal() -> None:
    disk = SimDisk()
    log = FileLog(disk)
    for letter in b"abcd":
        add(log, bytes([letter]), roll=True)
    log.trim(3)
    log.close()
    again = FileLog(disk)
    for good in (3, 4, 5):
        assert again.check_reach(good)
    with pytest.raises(JournalDamaged, match="ends at position 5, but there is a checkpoint at 6"):
        again.check_reach(6)
    assert not again.check_reach(2)  # the events between were trimmed, so this one is just too old
    again.close()
    store_folder(disk, Folder(again.identity, 1))  # as older versions wrote it, without the trimmed position
    older = FileLog(disk)
    with pytest.raises(JournalDamaged, match="between the checkpoint at 2 and this one are missing"):
        older.check_reach(2)


def test_opening_does_not_read_finished_segments() -> None:
    disk = SimDisk()
    log = FileLog(disk)
    for letter in b"abcd":
        add(log, bytes([letter]) * 100_000, roll=True)
    log.close()
    before = disk.calls["read"]
    again = FileLog(disk)
    opening = disk.calls["read"] - before
    assert opening == 2 + 2 * 4 + 1  # penstock.json, tail; header and footer of each; tail again
    assert [block.first for block in again.read(4)] == [4]
    assert disk.calls["read"] - before - opening <= 3  # the index, and the one block


def test_the_folder_file_is_checked() -> None:
    good = Folder(5, 6, 7).encode()
    assert Folder.decode(good) == Folder(5, 6, 7)
    for bad in (b"", b"[]", b"{}", good.replace(b"7", b"8")):
        with pytest.raises(ValueError):  # noqa: PT011 - each in its own words
            Folder.decode(bad)


# Finding messages


def test_messages_are_found_with_the_index() -> None:
    disk = SimDisk()
    log = FileLog(disk, OwnerOptions(extent_bytes=1 << 20))
    for number in range(3000):
        add(log, b"%d" % number * 100, roll=log.wants_roll)
    assert len(log.extents()) > 1
    active = log.extents()[-1]
    assert active.index is not None
    assert abs(len(active.index.offsets) - active.blocks_end // INDEX_STEP) <= 1
    for position in (1, 2, 777, 1500, 2999, 3000):
        assert log.messages([position])[0].payload == b"%d" % (position - 1) * 100
    log.close()
    again = FileLog(disk)
    assert again.messages([778])[0].payload == b"777" * 100
    assert [block.first for block in again.read(2998)] == [2998, 2999, 3000]


def test_a_damaged_index_is_rebuilt() -> None:
    disk = SimDisk()
    log = FileLog(disk)
    add(log, b"a", b"b")
    add(log, b"c")
    log.close()
    size = len(disk.seen[segment_name(1)].seen)
    disk.flip(segment_name(1), (size - 64 - 1) * 8)
    again = FileLog(disk)
    assert [message.payload for message in again.messages([3, 1])] == [b"c", b"a"]


def test_a_damaged_block_is_not_returned() -> None:
    disk = SimDisk()
    log = FileLog(disk)
    add(log, b"precious")
    log.close()
    disk.flip(segment_name(1), (64 + 130) * 8)
    again = FileLog(disk)
    with pytest.raises(JournalDamaged, match="checksum is wrong"):
        again.messages([1])


def test_the_cache_for_look_ups_is_bounded() -> None:
    log = FileLog(SimDisk())
    for _ in range(40):
        add(log, bytes(1 << 20))
    for position in range(1, 41):
        log.messages([position])
    assert sum(stop - start for _, start, stop in log._locator._stretches) <= KEPT_BYTES
    assert not log.forget_unused(), "some of it was used just now"
    assert log.forget_unused()
    assert (log._locator._stretches, log._locator._kept) == ({}, 0)
    assert not log.forget_unused()


def test_readers_in_other_threads(tmp_path: Path) -> None:
    log = FileLog(RealDisk(tmp_path), OwnerOptions(Durability.OS, extent_bytes=20_000))
    errors: list[BaseException] = []
    done = threading.Event()

    def look_at(end: int) -> None:
        wanted = [end - 1, end - 9, end - 1]
        try:
            assert [m.payload for m in log.messages(wanted)] == [b"%d" % (p * 7919) for p in wanted]
            assert next(log.read(end - 5)).first <= end - 5 or log.start > end - 9
        except Gone:
            assert log.start > end - 9  # on a busy machine the writer may be 500 events ahead by now

    def look() -> None:
        try:
            while not done.is_set():
                if (end := log.committed) > 10:
                    look_at(end)
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(1000):
        add(log, *(b"%d" % (position * 7919) for position in range(log.end, log.end + 3)), roll=log.wants_roll)
        log.trim(log.end - 500)
    done.set()
    for reader in readers:
        reader.join()
    log.close()
    assert errors == []
    assert len(names(tmp_path)) < 12


# Other processes


def test_the_tail_follows_the_commits(tmp_path: Path) -> None:
    log = FileLog(RealDisk(tmp_path), OwnerOptions(Durability.INTERVAL), identity=9)
    log.seal(2)
    reader = TailReader(tmp_path)
    first = reader.read()
    assert (first.durability, first.identity, first.committed, first.epoch) == (Durability.INTERVAL, 9, 1, 2)
    add(log, b"a", b"b")
    assert reader.read() == first
    log.set_floor(2)
    log.sync()
    second = reader.read()
    assert (second.committed, second.floor, second.start) == (3, 2, 1)
    assert second.generation > first.generation
    log.close()
    again = FileLog(RealDisk(tmp_path))
    assert again.floor == 2
    add(again, b"c")
    assert reader.read().committed == 4  # the same file, so a reader need not know about a restart
    again.close()
    reader.close()


def test_a_reader_never_sees_half_a_record(tmp_path: Path) -> None:
    log = FileLog(RealDisk(tmp_path), OwnerOptions(Durability.OS))
    code = """if True:
        import sys
        from penstock.journal.files.tail import TailReader
        reader, seen = TailReader(sys.argv[1]), []
        while not seen or seen[-1].committed < 2001:
            seen.append(reader.read())
        assert all(a.committed <= b.committed and a.generation <= b.generation for a, b in zip(seen, seen[1:]))
    """
    follower = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    for _ in range(2000):
        add(log, b"x")
    assert follower.wait(20) == 0
    log.close()


def test_an_unreadable_tail_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.journal.files.tail._TRIES", 3)
    FileLog(RealDisk(tmp_path)).close()
    (tmp_path / "tail").write_bytes(bytes(64))
    reader = TailReader(tmp_path)
    with pytest.raises(JournalRefused, match="start the broker"):
        reader.read()
    reader.close()


def test_an_interval_journal_that_lost_confirmed_blocks_does_not_start(tmp_path: Path) -> None:
    """Confirmed blocks were on disk, so missing ones are damage and not a torn end."""
    log = FileLog(RealDisk(tmp_path), OwnerOptions(Durability.INTERVAL, reserve=4096))
    for payload in (b"a", b"b", b"c"):
        add(log, payload)
        log.sync()
    segment = log.extents()[0]
    last = next(log.read(3)).header.length
    folder = tmp_path.with_name(f"{tmp_path.name}-copy")
    shutil.copytree(tmp_path, folder)  # as a killed broker leaves it behind
    log.close()
    with (folder / segment.name).open("r+b") as file:
        file.seek(segment.blocks_end - last)
        file.write(bytes(last))
    with pytest.raises(JournalDamaged, match="Lost: positions 3 to 3") as caught:
        FileLog(RealDisk(folder))
    assert caught.value.lost == (3, 4)


def test_the_first_segment_follows_nothing(tmp_path: Path) -> None:
    """Its header says that the log before it was empty, so nothing is missing in front of it."""
    log = FileLog(RealDisk(tmp_path))
    add(log, b"a")
    assert (log.extents()[0].header.after, log.extents()[0].first) == (FIRST_POSITION, FIRST_POSITION)
    log.close()
