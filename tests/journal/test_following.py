"""A reader in another process sees every event once, none too early, and gets errors for lost ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.client import connect
from penstock.demo.postgresql import Server
from penstock.journal import Follower, OwnedJournal, open_journal
from penstock.journal.contract import GAP, Durability, Log, OwnerOptions, Tail
from penstock.journal.errors import DataLoss, JournalDamaged, JournalRefused, LogError, Replaced, Trimmed
from penstock.journal.files.follower import JournalReader
from penstock.journal.files.log import FileLog
from penstock.journal.files.tail import TailReader
from support.batches import NOW, acknowledged, published
from support.brokers import BrokerProcess
from support.folders import Life, QuickDisk
from support.postgres import fresh_schema

SECOND = 1_000_000
TINY = OwnerOptions(extent_bytes=2_000, reserve=4096)

#: Runs in the other process: follows until the file `done` exists, then prints the events it saw and the losses.
FOLLOWER = """
import json, os, sys, time
from penstock.journal import open_journal
from penstock.journal.errors import DataLoss, JournalRefused

url, done_file = sys.argv[1:]
while True:
    try:
        reader = open_journal(url).follow()
        break
    except JournalRefused:
        time.sleep(0.001)
position, seen, lost, early = 1, [], [], 0
while True:
    done = os.path.exists(done_file)
    latest = reader.latest
    try:
        for block, _ in reader.read(position, latest):
            early += block.end > reader.latest
            low, high = max(block.first, position), min(block.end, latest)
            rows = range(low - block.first, high - block.first) if block.messages else ()  # or it is a fence
            payloads = [bytes(block.value("payload", row)) for row in rows]
            seen.append([low, high, payloads == [b"%d" % (block.first + row) for row in rows]])
            position = high
    except DataLoss as loss:
        lost.append(loss.lost)
        position = loss.lost[1]
        continue
    position = latest
    if done:
        break
print(json.dumps({"seen": seen, "lost": lost, "early": early, "end": position}))
"""


def new_log(folder: Path, options: OwnerOptions = TINY) -> FileLog:
    log = FileLog(QuickDisk(folder), options)
    log.seal(log.epoch + 1)
    return log


class Folder:
    """A journal in a folder."""

    rounds = 1500

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = str(path)

    def new_log(self, options: OwnerOptions = TINY) -> Log:
        return new_log(self.path, options)

    def reader(self, identity: int | None = None) -> Follower:
        return JournalReader(self.path, identity=identity)

    def remove(self) -> None:
        shutil.rmtree(self.path)

    def damage(self, old: bytes, new: bytes) -> None:
        segment = next(self.path.glob("*.seg"))
        segment.write_bytes(segment.read_bytes().replace(old, new))

    def close(self) -> None:
        pass


class Database:
    """A journal in a schema of its own."""

    rounds = 400

    def __init__(self, server: Server) -> None:
        self.url = fresh_schema(server)
        self._server = server
        self._schema = self.url.rpartition("=")[2]
        self._open: list[Follower | OwnedJournal] = []

    def new_log(self, options: OwnerOptions = TINY) -> Log:
        owned = open_journal(self.url, options).own()
        self._open.append(owned)
        owned.begin()
        return owned.log

    def reader(self, identity: int | None = None) -> Follower:
        self._open.append(open_journal(self.url).follow(identity=identity))
        return self._open[-1]  # type: ignore[return-value]

    def remove(self) -> None:
        self._server.execute(f"drop schema {self._schema} cascade")

    def damage(self, old: bytes, new: bytes) -> None:
        replaced = f"replace(encode(bytes, 'hex'), '{old.hex()}', '{new.hex()}')"
        self._server.execute(f"update {self._schema}.blocks set bytes = decode({replaced}, 'hex')")

    def close(self) -> None:
        for each in reversed(self._open):
            with suppress(LogError, OSError):
                each.close()


@pytest.fixture(params=["files", "postgresql"])
def place(request: pytest.FixtureRequest) -> Iterator[Folder | Database]:
    """Yield a journal of each kind that is followed differently."""
    found: Folder | Database
    if request.param == "files":
        found = Folder(request.getfixturevalue("tmp_path") / "data")
    else:
        found = Database(request.getfixturevalue("postgres"))
    yield found
    found.close()


def add(log: Log, count: int = 1, *, roll: bool = False, at: int = NOW) -> None:
    """Append messages whose payloads are their positions."""
    payloads = [b"%d" % position for position in range(log.end, log.end + count)]
    log.append(published(log.end, payloads, at=at), log.end, log.epoch, roll=roll)


def positions(reader: Follower, start: int = 1, stop: int | None = None) -> list[int]:
    return [position for block, _ in reader.read(start, stop) for position in range(block.first, block.end)]


@pytest.mark.parametrize("trims", [False, True])
def test_another_process_sees_everything_exactly_once(place: Folder | Database, tmp_path: Path, trims: bool) -> None:
    """Meanwhile the journal grows, rolls and is trimmed, and its broker restarts."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FOLLOWER, place.url, str(tmp_path / "done")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as follower:
        log = place.new_log()
        for round_ in range(place.rounds):
            add(log, 1 + round_ % 7, roll=log.wants_roll)
            if trims and round_ % 100 == 99:
                before = log.extents()[-2].first
                log.set_floor(before)
                log.trim(before)
            if round_ % 300 == 299:
                log.close()
                log = place.new_log()
        end = log.end
        log.close()
        (tmp_path / "done").touch()
        out, _ = follower.communicate(timeout=60)
    printed = json.loads(out)
    assert printed["early"] == 0
    assert all(right for _, _, right in printed["seen"])
    ranges = sorted([*([low, high] for low, high, _ in printed["seen"]), *printed["lost"]])
    assert [low for low, _ in ranges] == [1, *(high for _, high in ranges[:-1])]  # no gap, and nothing twice
    assert ranges[-1][1] == printed["end"] == end
    if not trims:
        assert printed["lost"] == []


class TestCommitted:
    def test_unsynced_events_are_not_seen(self, tmp_path: Path) -> None:
        log = new_log(tmp_path, OwnerOptions(durability=Durability.INTERVAL))
        add(log, 3)
        reader = JournalReader(tmp_path)
        assert (reader.latest, positions(reader)) == (1, [])
        log.sync()
        add(log, 3)
        assert (reader.latest, positions(reader)) == (4, [1, 2, 3])

    def test_a_range_beyond_the_end_is_data_loss(self, place: Folder | Database) -> None:
        """The reader has seen more than exists: the folder was restored, or belongs to another machine."""
        log = place.new_log()
        add(log, 3)
        with pytest.raises(DataLoss, match="the journal ends at position 4") as raised:
            place.reader().read(2, 9)
        assert raised.value.lost == (4, 9)

    def test_invalid_ranges(self, place: Folder | Database) -> None:
        place.new_log()
        for start, stop in ((0, 1), (3, 2), (-1, 0)):
            with pytest.raises(ValueError, match="are no range"):
                place.reader().read(start, stop)

    def test_a_journal_grows_while_it_is_open(self, place: Folder | Database) -> None:
        """It grows past the space that was reserved when it was mapped."""
        log = place.new_log()
        reader = place.reader()
        for _ in range(300):
            add(log, 10)
            assert positions(reader, log.end - 10) == list(range(log.end - 10, log.end))
        assert positions(reader) == list(range(1, 3001))


class TestTrimmed:
    def fill(self, place: Folder | Database) -> Log:
        log = place.new_log()
        for _ in range(5):
            add(log, 10, roll=True)
        return log

    def test_a_start_before_the_history_is_trimmed(self, place: Folder | Database) -> None:
        log = self.fill(place)
        log.set_floor(21)
        log.trim(11)
        log.sync()
        reader = place.reader()
        assert (reader.earliest, reader.tail().start) == (21, 11)
        with pytest.raises(Trimmed, match="the history begins at position 21 now") as raised:
            reader.read(5)
        assert raised.value.lost == (5, 21)
        assert positions(reader, 21) == list(range(21, 51))

    def test_loss_can_be_accepted(self, place: Folder | Database) -> None:
        log = self.fill(place)
        log.set_floor(21)
        log.trim(21)
        blocks = place.reader().read(5, accept_loss=True)
        assert [found.block.first for found in blocks] == [21, 31, 41]

    def test_a_segment_trimmed_while_it_is_read(self, place: Folder | Database) -> None:
        """The mapped segment is read to its end before the loss is raised."""
        log = self.fill(place)
        reader = place.reader()
        blocks = reader.read(1)
        assert next(blocks).block.first == 1
        log.set_floor(41)
        log.trim(41)
        with pytest.raises(Trimmed) as raised:
            list(blocks)
        assert raised.value.lost == (11, 41)

    def test_the_rest_of_a_range_trimmed_while_it_is_read(self, place: Folder | Database) -> None:
        log = self.fill(place)
        blocks = place.reader().read(1, 21)
        next(blocks)
        log.set_floor(41)
        log.trim(41)
        with pytest.raises(Trimmed) as raised:
            list(blocks)
        assert raised.value.lost == (11, 41)


class TestGaps:
    def weak(self, folder: Path) -> tuple[int, int]:
        """Make a journal that resumed higher after an unclean stop. Returns the gap's begin and end."""
        options = OwnerOptions(durability=Durability.OS, reserve=4096)
        log = new_log(folder, options)
        add(log, 5)
        log._close_files()
        log = new_log(folder, options)
        add(log, 5)
        log._close_files()
        return 6, 6 + GAP

    def test_a_reader_inside_gets_a_data_loss(self, tmp_path: Path) -> None:
        low, high = self.weak(tmp_path)
        reader = JournalReader(tmp_path)
        for start, stop in ((low + 1, high + 2), (2, low + 1), (high - 1, high)):
            with pytest.raises(DataLoss, match=r"are lost: a crash, a promotion or a restore has lost them") as raised:
                reader.read(start, stop)
            assert raised.value.lost == (low, high)

    def test_a_reader_at_its_edges_is_not(self, tmp_path: Path) -> None:
        low, high = self.weak(tmp_path)
        reader = JournalReader(tmp_path)
        assert positions(reader) == [*range(1, low), *range(high, high + 5)]
        assert positions(reader, low) == positions(reader, high) == [*range(high, high + 5)]
        assert positions(reader, 1, high) == [*range(1, low)]

    def test_before_the_first_append_after_the_crash(self, tmp_path: Path) -> None:
        log = new_log(tmp_path, OwnerOptions(durability=Durability.OS, reserve=4096))
        add(log, 5)
        log._close_files()
        new_log(tmp_path)
        reader = JournalReader(tmp_path)
        assert reader.latest == 6 + GAP
        assert positions(reader) == [1, 2, 3, 4, 5]
        with pytest.raises(DataLoss):
            reader.read(7)


class TestThreads:
    def test_a_slow_reader_does_not_mistake_progress_for_a_loss(self, tmp_path: Path) -> None:
        """The first read is delayed after it has read the file; meanwhile the journal grows and a second one reads."""
        log = new_log(tmp_path)
        add(log, 3)
        reader = JournalReader(tmp_path)
        second = threading.Thread(target=reader.tail)

        class Slow:
            def __init__(self, tail: TailReader) -> None:
                self.tail = tail

            def read(self) -> Tail:
                found = self.tail.read()
                if threading.current_thread() is not second and not second.ident:
                    add(log, 3)
                    second.start()
                    second.join(0.5)
                return found

        reader._tail = Slow(reader._tail)  # type: ignore[assignment]
        seen = reader.tail().committed
        second.join()
        assert (seen, reader.latest) == (4, 7)


class TestReplaced:
    def test_another_journal_in_the_same_place(self, place: Folder | Database) -> None:
        log = place.new_log()
        add(log, 3)
        reader = place.reader()
        log.close()
        place.remove()
        place.new_log()
        with pytest.raises(Replaced, match="holds another journal now"):
            reader.read(1)
        with pytest.raises(Replaced):
            place.reader(identity=reader.identity)

    def test_an_older_state_of_the_same_journal(self, tmp_path: Path) -> None:
        folder, backup = tmp_path / "data", tmp_path / "backup"
        log = new_log(folder)
        add(log, 3)
        shutil.copytree(folder, backup)
        add(log, 3)
        reader = JournalReader(folder)
        log.close()
        shutil.rmtree(folder)
        backup.rename(folder)
        with pytest.raises(DataLoss, match="was restored to an earlier state") as raised:
            reader.read(1)
        assert raised.value.lost == (4, 7)

    @pytest.mark.parametrize("name", ["nothing", "file"])
    def test_no_journal(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(JournalRefused, match="is not the data folder of a broker"):
            JournalReader(tmp_path / name)

    def test_a_journal_being_created(self, tmp_path: Path) -> None:
        (tmp_path / "tail").touch()
        with pytest.raises(JournalRefused, match="is being created, or its tail was cut"):
            JournalReader(tmp_path)

    def test_damage_is_raised_with_its_place(self, place: Folder | Database) -> None:
        log = place.new_log()
        add(log, 3)
        add(log, 3)
        log.close()
        place.damage(b"456", b"956")
        blocks = place.reader().read(1)
        assert next(blocks).block.first == 1
        with pytest.raises(JournalDamaged, match="the body's checksum is wrong"):
            next(blocks)


class TestTimes:
    def test_the_first_event_at_or_after(self, place: Folder | Database) -> None:
        log = place.new_log(OwnerOptions(extent_bytes=200_000, reserve=4096))
        for tick in range(1500):
            add(log, 2, roll=log.wants_roll, at=NOW + tick * SECOND)
        reader = place.reader()
        assert len(reader.spans()) > 1
        for tick in (0, 1, 700, 1400, 1499):
            assert reader.position_at(NOW + tick * SECOND) == 1 + 2 * tick
            assert reader.position_at(NOW + tick * SECOND - 1) == 1 + 2 * tick
        assert reader.position_at(0) == 1
        assert reader.position_at(NOW + 1500 * SECOND) == reader.latest
        log.set_floor(101)
        add(log, 1)
        assert reader.position_at(NOW) == 101

    def test_counts(self, place: Folder | Database) -> None:
        log = place.new_log()
        log.append(published(1, [b"x"] * 4, queue=3), 1, log.epoch)
        log.append(acknowledged(5, [1, 2], queue=3), 5, log.epoch)
        log.append(published(7, [b"x"] * 2, queue=9), 7, log.epoch)
        reader = place.reader()
        assert reader.counts(1) == {3: 4, 9: 2}
        assert reader.counts(4, 8) == {3: 1, 9: 1}


def test_names_follow_the_queues(tmp_path: Path) -> None:
    life = Life(tmp_path, 2).run(300)
    catalogue = JournalReader(tmp_path).catalogue()
    queues = life.opened.engine.broker.queues
    assert {number: str(catalogue.names[number]) for number in catalogue.queues} == {
        number: queue.full_name for number, queue in queues.items()
    }


def test_a_deleted_queue_is_not_listed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, connect(broker.url("kokaq", "/default/jobs")) as client:
        client.create_queue()
        reader = JournalReader(tmp_path / "data")
        names = [entry["name"] for entry in reader.catalogue().queues.values()]
        assert "jobs" in names
        client.delete_queue()
        assert "jobs" not in [entry["name"] for entry in reader.catalogue().queues.values()]
        reader.close()
