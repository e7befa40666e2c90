"""The contract of every journal. A new implementation is added to ``KINDS`` and has to pass all tests."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.journal import Journal, OwnedJournal, open_journal
from penstock.journal.contract import FIRST_POSITION, Log, OwnerOptions, SharedExtent
from penstock.journal.errors import DataLoss, Fenced, Gone, JournalRefused, LogClosed, Replaced, Trimmed
from penstock.journal.files.journal import OwnedFiles
from penstock.journal.shared_extents import SharedExtentReader
from support.batches import NOW, Rowset, acknowledged, published
from support.postgres import fresh_schema
from support.simdisk import SimDisk

OPTIONS = OwnerOptions(extent_bytes=4096, reserve=4096)
#: Makes the URL of a separate journal, given a folder.
URLS: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "memory": lambda _: "memory:",
    "files": lambda request: f"file:{request.getfixturevalue('tmp_path')}/data",
    "postgresql": lambda request: fresh_schema(request.getfixturevalue("postgres")),
}
KINDS: dict[str, Callable[[pytest.FixtureRequest], OwnedJournal]] = {
    **{
        name: lambda request, url=url: open_journal(url(request), OPTIONS).own()  # type: ignore[misc]
        for name, url in URLS.items()
    },
    "simulated files": lambda _: OwnedFiles(SimDisk(), OPTIONS),
}


@pytest.fixture(params=KINDS)
def owned(request: pytest.FixtureRequest) -> Iterator[OwnedJournal]:
    """Yield an owned journal of each kind."""
    owned = KINDS[request.param](request)
    owned.begin()
    yield owned
    owned.close()


@pytest.fixture
def log(owned: OwnedJournal) -> Log:
    return owned.log


@pytest.fixture(params=URLS)
def shared(request: pytest.FixtureRequest) -> Iterator[OwnedJournal]:
    """Yield a journal of each kind that other processes can follow."""
    owned = KINDS[request.param](request)
    owned.begin()
    yield owned
    owned.close()


def add(log: Log, *payloads: bytes, roll: bool = False) -> Rowset:
    batch = published(log.end, list(payloads))
    log.append(batch, log.end, log.epoch, roll=roll)
    return batch


def positions(log: Log, start: int = 0) -> list[tuple[int, int]]:
    return [(block.first, block.end) for block in log.read(start)]


def test_a_new_log_is_empty(log: Log) -> None:
    assert (log.start, log.end, log.committed) == (FIRST_POSITION, FIRST_POSITION, FIRST_POSITION)
    assert positions(log) == []
    assert log.wants_roll


def test_appended_blocks_are_read(log: Log) -> None:
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


def test_a_reader_sees_the_log_as_of_its_start(log: Log) -> None:
    add(log, b"a")
    add(log, b"b")
    reader = log.read(0)
    assert next(reader).first == 1
    add(log, b"c")
    assert [block.first for block in reader] == [2]


@pytest.mark.parametrize(("position", "first", "newer"), [(1, 1, 0), (3, 3, 0), (2, 3, 0), (2, 1, 0), (2, 2, 1)])
def test_a_second_writer_is_fenced_off(log: Log, position: int, first: int, newer: int) -> None:
    add(log, b"a")
    with pytest.raises(Fenced, match=f"position 2, epoch {log.epoch};"):
        log.append(published(first, [b"x"]), position, log.epoch + newer)
    assert positions(log) == [(1, 2)]
    add(log, b"b")


def test_a_seal_shuts_out_the_epoch_before(log: Log) -> None:
    add(log, b"a")
    before = log.epoch
    log.seal(5)
    assert log.epoch == 5
    with pytest.raises(Fenced):
        log.append(published(2, [b"x"]), 2, before)
    for older in (5, 4):
        with pytest.raises(Fenced, match="not a newer one"):
            log.seal(older)
    log.append(published(2, [b"b"]), 2, 5)
    assert [block.epoch for block in log.read(0)] == [before, 5]


def test_an_invalid_batch_leaves_the_log_unchanged(log: Log) -> None:
    with pytest.raises(ValueError, match="split it"):
        log.append(published(1, []), 1, log.epoch)
    add(log, b"a")
    with pytest.raises(ValueError, match="split it"):
        log.append(published(2, []), 2, log.epoch)
    add(log, b"b")
    assert positions(log) == [(1, 2), (2, 3)]


def test_trimming_keeps_the_position_and_everything_after(log: Log) -> None:
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


def test_messages_come_in_the_requested_order(log: Log) -> None:
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
    log.append(acknowledged(2, [1]), 2, log.epoch)
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


def test_a_closed_log_accepts_nothing(log: Log) -> None:
    add(log, b"a")
    log.close()
    log.close()
    for use in (lambda: add(log, b"b"), log.sync, lambda: log.seal(9), lambda: log.trim(1)):
        with pytest.raises(LogClosed):
            use()


# ------------------------------------------------------------------------------------------------------------- extents


def test_extents_cover_the_log_in_order(log: Log) -> None:
    for letter in b"abc":
        add(log, bytes([letter]), bytes([letter]), roll=True)
    extents = log.extents()
    assert [(extent.first, extent.end) for extent in extents] == [(1, 3), (3, 5), (5, 7)]
    assert [extent.finished for extent in extents] == [True, True, False]
    assert all(extent.size > 0 and extent.last_at == NOW for extent in extents)
    assert log.synced == 7


def test_a_full_extent_makes_a_roll_due(log: Log) -> None:
    add(log, b"a", roll=log.wants_roll)
    assert not log.wants_roll
    add(log, bytes(OPTIONS.extent_bytes))
    assert log.wants_roll


def test_single_messages_are_read_from_kept_extents(log: Log) -> None:
    for letter in b"abcd":
        add(log, bytes([letter]), roll=True)
    log.trim(4, keep={2})
    assert log.start == 4
    assert [extent.first for extent in log.kept()] == [2]
    assert [message.payload for message in log.messages([2, 4])] == [b"b", b"d"]
    with pytest.raises(Gone):
        log.messages([1])
    [kept] = log.kept()
    log.release(kept)
    assert list(log.kept()) == []
    with pytest.raises(Gone):
        log.messages([2])


def test_a_finished_extent_is_checked_a_step_at_a_time(log: Log) -> None:
    add(log, b"a")
    add(log, b"b")
    add(log, b"c", roll=True)
    steps = list(log.check(log.extents()[0]))
    assert [bad for _, bad in steps] == [None, None]
    assert sum(size for size, _ in steps) > 0
    gone = log.extents()[0]
    log.trim(3)
    with pytest.raises((OSError, LookupError)):
        list(log.check(gone))


# ------------------------------------------------------------------------------------------------------ beside the log


def test_the_two_newest_checkpoints_are_kept(owned: OwnedJournal) -> None:
    add(owned.log, *[b"x"] * 9)
    store = owned.checkpoints
    assert (store.positions(), store.newest_good()) == ([], None)
    for position in (3, 5, 9):
        store.write(position, b"state %d" % position, {"numbers": np.arange(position)}, clean=position == 9)
    assert store.positions() == [5, 9]
    found = store.newest_good()
    assert found is not None
    assert (found.position, found.meta, found.clean) == (9, b"state 9", True)
    assert found.columns["numbers"].tolist() == list(range(9))
    assert store.size(9) > store.size(5) > 0


def test_values_are_kept_by_name(owned: OwnedJournal) -> None:
    values = owned.values
    assert values.get("readers.json") is None
    values.delete("readers.json")
    values.put("readers.json", b"one")
    values.put("readers.json", b"two")
    values.put("other", b"")
    assert (values.get("readers.json"), values.get("other")) == (b"two", b"")
    values.set_aside("readers.json")
    assert values.get("readers.json") is None
    values.delete("other")
    assert values.get("other") is None
    assert not owned.log.kept()


def test_threads_put_values_one_at_a_time(owned: OwnedJournal) -> None:
    def put(value: bytes) -> None:
        for _ in range(20):
            owned.values.put("x", value)

    threads = [threading.Thread(target=put, args=(b"%d" % number * 999,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = owned.values.get("x")
    assert found is not None
    assert found == found[:1] * 999


def test_values_survive_a_power_failure() -> None:
    disk = SimDisk()
    owned = OwnedFiles(disk, OPTIONS)
    owned.begin()
    owned.values.put("readers.json", b"one")
    owned.values.put("readers.json", b"two")
    disk.crash()
    again = OwnedFiles(disk, OPTIONS)
    assert again.values.get("readers.json") == b"two"
    again.close()


def test_there_is_room(owned: OwnedJournal) -> None:
    space = owned.space
    assert 0 < space.look() == space.free
    assert space.has_room(0)
    assert space.has_room(1000)
    space.fill_reserve(1000, 1000)
    assert owned.memory_bytes >= 0


def test_a_new_journal_has_nothing_to_report(owned: OwnedJournal) -> None:
    assert (list(owned.report), owned.given_up, owned.expects_checkpoint) == ([], (), False)
    assert owned.check_reach(FIRST_POSITION)


# ----------------------------------------------------------------------------------------------------------- followers


def test_a_follower_sees_committed_blocks(shared: OwnedJournal) -> None:
    log = shared.log
    reader = open_journal(shared.address).follow()
    assert (reader.identity, reader.earliest, reader.latest) == (log.identity, 1, 1)
    for letter in b"abcd":
        add(log, bytes([letter]), roll=letter == ord("c"))
    assert reader.latest == 5
    blocks = [found.block for found in reader.read(2)]
    assert [block.value("payload", 0) for block in blocks] == [b"b", b"c", b"d"]
    assert [(span.first, span.end, span.finished) for span in reader.spans()] == [(1, 3, True), (3, 5, False)]
    assert reader.counts(1, 4) == {1: 3}
    assert (reader.position_at(NOW), reader.position_at(NOW + 1)) == (1, 5)
    assert (reader.tail().epoch, reader.tail().start) == (log.epoch, 1)
    reader.close()


def test_a_follower_finds_the_events_of_a_message(shared: OwnedJournal) -> None:
    log = shared.log
    for letter in b"abcd":
        add(log, bytes([letter]) * 3, roll=letter == ord("c"))
        log.append(acknowledged(log.end, [1, log.end - 1]), log.end, log.epoch)
    reader = open_journal(shared.address).follow()

    def found(message: int, start: int = 1, stop: int = log.end) -> list[int]:
        return [block.first for block, _ in reader.mentions(message, start, stop) if message in block.column("message")]

    assert found(1) == [2, 5, 8, 11]
    assert (found(1, 3, 9), found(1, 4, 8), found(7), found(2), found(log.end)) == ([2, 5, 8], [5], [8], [], [])
    reader.close()


def test_blocks_held_by_a_follower_stay_readable(shared: OwnedJournal) -> None:
    for letter in b"abcd":
        add(shared.log, bytes([letter]) * 1000, roll=True)
    reader = open_journal(shared.address).follow()
    spans = reader.spans()
    extent = reader.hold(spans[0])
    assert extent is not None
    shared.log.trim(4)
    assert reader.hold(spans[1]) is None
    [block] = extent.blocks(1, 2)
    assert block.value("payload", 0) == b"a" * 1000
    positions, sizes = extent.marks(2)
    assert (positions[0], positions[-1], sizes == sorted(sizes)) == (1, 2, True)
    assert [span.first for span in reader.spans()] == [4]


def test_other_processes_map_shared_extents(shared: OwnedJournal) -> None:
    for letter in b"abcd":
        add(shared.log, bytes([letter]) * 1000, roll=letter == ord("c"))
    reader = open_journal(shared.address).follow()
    extents = reader.shared(2, 4, None)
    assert [(extent.start, extent.stop) for extent in extents] == [(2, 3), (3, 4)]
    received = msgspec.json.decode(msgspec.json.encode(extents), type=list[SharedExtent])
    other = SharedExtentReader(reader.identity, received)
    found = other.read(2)
    assert next(found).block.value("payload", 0) == b"b" * 1000
    shared.log.trim(4)
    with pytest.raises(FileNotFoundError, match="the history begins at position"):
        reader.shared(2, 4, None)
    with pytest.raises(Gone, match="is not the extent"):
        next(SharedExtentReader(reader.identity ^ 1, reader.shared(4, 5, None)).read(4))
    reader.close()


def test_losses_are_raised_before_reading(shared: OwnedJournal) -> None:
    for letter in b"abcd":
        add(shared.log, bytes([letter]), roll=True)
    reader = open_journal(shared.address).follow()
    shared.log.trim(3)
    [loss] = reader.losses(1, 5)
    assert isinstance(loss, Trimmed)
    assert loss.lost == (1, 3)
    with pytest.raises(Trimmed):
        reader.read(1)
    assert [found.block.first for found in reader.read(1, accept_loss=True)] == [3, 4]
    with pytest.raises(DataLoss, match="the journal ends at position 5"):
        reader.read(3, 9)
    shared.log.set_floor(4)
    shared.log.sync()
    assert reader.earliest == 4


def test_a_follower_gets_the_checkpoint_before_a_position(shared: OwnedJournal) -> None:
    reader = open_journal(shared.address).follow()
    add(shared.log, *[b"x"] * 5)
    assert reader.checkpoint(100) is None
    for position in (3, 5):
        shared.checkpoints.write(position, b"%d" % position, {})
    for stop, wanted in ((2, None), (3, b"3"), (4, b"3"), (5, b"5"), (6, b"5")):
        found = reader.checkpoint(stop)
        assert (found and found.meta) == wanted


def test_another_journal_is_not_mistaken_for_this_one(shared: OwnedJournal) -> None:
    with pytest.raises(Replaced):
        open_journal(shared.address).follow(identity=shared.log.identity ^ 1)


FOLLOWING = """
import sys
from penstock.journal import open_journal
reader = open_journal(sys.argv[1]).follow()
print([bytes(found.block.value("payload", 0)) for found in reader.read(1)], flush=True)
sys.stdin.readline()
print([bytes(found.block.value("payload", 0)) for found in reader.read(3)], flush=True)
"""


def test_another_process_follows_by_the_address(shared: OwnedJournal) -> None:
    add(shared.log, b"a")
    add(shared.log, b"b")
    command = [sys.executable, "-c", FOLLOWING, shared.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "[b'a', b'b']\n"
        add(shared.log, b"c", roll=True)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "[b'c']\n"


# ---------------------------------------------------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "'' is not a journal"),
        ("file:", "'file:' is not a journal"),
        ("redis://x", "'redis://x' is not a journal: it is file:PATH or the path of a folder, postgresql:"),
        ("memory:x", "memory:x is not a journal"),
    ],
)
def test_a_url_without_a_journal(url: str, text: str) -> None:
    with pytest.raises(JournalRefused, match=text):
        open_journal(url)


def test_nothing_is_touched_before_a_role_is_taken(tmp_path: Path) -> None:
    for url in (str(tmp_path / "a"), f"file:{tmp_path}/b"):
        journal: Journal = open_journal(url)
        assert journal.where == url.removeprefix("file:")
    assert list(tmp_path.iterdir()) == []


def test_a_journal_has_one_owner(tmp_path: Path) -> None:
    owned = open_journal(str(tmp_path)).own()
    with pytest.raises(JournalRefused, match="in use by another broker"):
        open_journal(f"file:{tmp_path}").own()
    owned.close()
    open_journal(f"file:{tmp_path}").own().close()


def test_a_journal_with_a_lock_is_not_handed_over(tmp_path: Path) -> None:
    for url in (str(tmp_path), "memory:"):
        journal = open_journal(url)
        assert not journal.shared
        with pytest.raises(JournalRefused, match="no other can stand by"):
            journal.stand_by()
        owned = journal.own()
        assert owned.lease is None
        owned.close()


def test_memory_is_followed_by_its_address_alone() -> None:
    with pytest.raises(JournalRefused, match="name its owner"):
        open_journal("memory:").follow()
    with pytest.raises(JournalRefused, match="cannot be checked"):
        open_journal("memory:").tools()
    owned = open_journal("memory:").own()
    with pytest.raises(JournalRefused, match="belongs to a running broker"):
        open_journal(owned.address).own()
    owned.close()
    with pytest.raises(JournalRefused, match="the broker has ended"):
        open_journal(owned.address).follow()


def test_memory_of_an_owner_that_has_ended_is_refused() -> None:
    owned = open_journal("memory:", OPTIONS).own()
    owned.begin()
    for letter in b"ab":
        add(owned.log, bytes([letter]), roll=True)
    reader = open_journal(owned.address).follow()
    [first, second] = reader.spans()
    assert reader.hold(first) is not None
    owned.close()
    assert reader.hold(first) is not None
    with pytest.raises(JournalRefused, match="the broker has ended"):
        reader.hold(second)


def memory_files() -> set[tuple[str, str]]:
    """Return the open memory files of this process."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {each for each in found if "memfd:" in each[1]}


def test_memory_leaves_no_descriptors_behind() -> None:
    gc.collect()
    before = memory_files()
    owned = open_journal("memory:", OPTIONS).own()
    owned.begin()
    for letter in b"abcdef":
        add(owned.log, bytes([letter]), roll=True)
    owned.log.trim(5)
    owned.checkpoints.write(3, b"", {})
    reader = open_journal(owned.address).follow()
    assert [found.block.first for found in reader.read(5)] == [5, 6]
    reader.close()
    owned.close()
    del reader
    assert memory_files() <= before
