"""Readers' positions, and how long history is kept for them."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.core.broker import Broker
from penstock.core.policy import SECOND
from penstock.core.queue import Connection
from penstock.flight import flight_requests as requests
from penstock.journal.files.disk import RealDisk
from penstock.journal.files.values import FileValues
from penstock.server.logs import Logger
from penstock.server.maintenance.retention import Retention
from penstock.server.registry import readers
from penstock.server.registry.names import NotYours
from penstock.server.registry.readers import Pin, ReaderTable, TooManyReaders
from support.folders import Life
from support.privatesocket import lease
from support.retaining import retain

NOW = 1_750_000_000 * SECOND


def report(reader: str = "lake", position: int = 7, *, pin: bool = False, owner: str = "") -> requests.Report:
    facts: dict[str, Any] = {"view": "messages", "where": "*/*", "lag_rows": 1, "lag_seconds": 2.0}
    return requests.Report(reader=reader, position=position, pin=pin, owner=owner, **facts)


def kept(folder: Path, words: io.StringIO | None = None) -> ReaderTable:
    return ReaderTable(Logger(words or io.StringIO()), Broker(), FileValues(RealDisk(folder)))


def begin(readers: ReaderTable, request: requests.TakeLease) -> bool:
    return asyncio.run(readers.begin(request, NOW))


def save(readers: ReaderTable) -> None:
    asyncio.run(readers.save())


class TestRegistry:
    def test_the_last_report_counts(self) -> None:
        table = ReaderTable(Logger(io.StringIO()), Broker())
        table.report(report(position=7, pin=True), NOW)
        table.report(report(position=9), NOW + 1)
        [reader] = table.listed()
        assert (reader.position, reader.pin, reader.at) == (9, False, NOW + 1)
        assert table.pins() == []
        assert table.forget("lake")
        assert not table.forget("lake")

    def test_the_file_is_written_now_and_then(self, tmp_path: Path) -> None:
        async def live() -> None:
            table = kept(tmp_path)
            table.save_soon(100.0)
            await finish(table)
            assert not (tmp_path / readers.NAME).exists()
            table.report(report(), NOW)
            table.save_soon(100.0)
            await finish(table)
            table.report(report(position=8), NOW)
            table.save_soon(100.0 + readers.SAVE_SECONDS / 2)
            await finish(table)
            [before] = kept(tmp_path).listed()
            await table.save()
            [after] = kept(tmp_path).listed()
            assert (before.position, after.position) == (7, 8)
            assert [path.name for path in tmp_path.iterdir()] == [readers.NAME]

        async def finish(table: ReaderTable) -> None:
            if table._saving is not None:
                await table._saving

        asyncio.run(live())

    def test_writing_does_not_hold_the_loop_up(self, tmp_path: Path) -> None:
        """While one take-over waits for the disk, other requests are answered; each is on disk before its answer."""
        go_on = threading.Event()

        class Slow(FileValues):
            def put(self, name: str, value: bytes) -> None:
                assert go_on.wait(30)
                super().put(name, value)

        async def live() -> None:
            table = ReaderTable(Logger(io.StringIO()), Broker(), Slow(RealDisk(tmp_path)))
            first = asyncio.create_task(table.begin(lease(instance="one"), NOW))
            second = asyncio.create_task(table.begin(lease(reader="other", instance="two"), NOW))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not first.done()
            assert not second.done()
            go_on.set()
            assert await second
            assert await first
            assert {each.reader for each in kept(tmp_path).listed()} == {"lake", "other"}

        asyncio.run(live())

    def test_a_folder_that_can_not_be_written_is_logged(self, tmp_path: Path) -> None:
        words = io.StringIO()
        table = kept(tmp_path / "gone", words)
        (tmp_path / "gone").rmdir()
        table.report(report(), NOW)
        save(table)
        assert "the readers cannot be saved" in words.getvalue()

    def test_the_quietest_reader_makes_room_at_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readers, "MOST_READERS", 2)
        table = ReaderTable(Logger(io.StringIO()), Broker())
        table.report(report("pinned", pin=True), NOW)
        table.report(report("loose"), NOW + 1)
        table.report(report("third", pin=True), NOW + 2)
        assert [each.reader for each in table.listed()] == ["pinned", "third"]
        with pytest.raises(TooManyReaders, match="2 readers have pinned or leased something already"):
            table.report(report("fourth"), NOW + 3)

    def test_a_name_belongs_to_its_first_user(self, tmp_path: Path) -> None:
        table = kept(tmp_path)
        table.report(report("old"), NOW)
        table.report(report("old", owner="a"), NOW)  # it had no owner
        begin(table, lease(reader="new", owner="b"))
        table.report(report("old", position=8), NOW)  # without rules any owner may
        save(table)
        table = kept(tmp_path)
        assert [(each.reader, each.owner) for each in table.listed()] == [("old", "a"), ("new", "b")]
        with pytest.raises(NotYours, match="'old' belongs to another identity"):
            table.report(report("old", position=9, owner="b"), NOW)
        with pytest.raises(NotYours, match="'new' belongs to another identity"):
            begin(table, lease(reader="new", instance="2", owner="a"))
        assert [each.position for each in table.listed()] == [8, 0]

    def test_an_owner_at_its_share_replaces_its_own_readers(self) -> None:
        broker = Broker()
        queue = broker.create_queue("default", "a", NOW)
        broker.publish(Connection(1, b""), queue, [b"x"], NOW)
        assert broker.lease("leases", queue, NOW, SECOND) is not None
        table = ReaderTable(Logger(io.StringIO()), broker, share=2)
        table.report(report("quiet", owner="a"), NOW)
        begin(table, lease(reader="leases", owner="b"))
        table.report(report("loose", owner="b"), NOW + 2)
        table.report(report("pinned", pin=True, owner="b"), NOW + 3)
        assert [each.reader for each in table.listed()] == ["quiet", "leases", "pinned"]
        with pytest.raises(TooManyReaders, match="2 readers of yours have pinned or leased something already"):
            table.report(report("more", owner="b"), NOW + 4)
        table.report(report("more", owner="a"), NOW + 4)

    def test_the_largest_owner_makes_room_at_the_total_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readers, "MOST_READERS", 3)
        table = ReaderTable(Logger(io.StringIO()), Broker())
        for at, (name, owner) in enumerate((("one", "a"), ("two", "b"), ("three", "b"), ("four", "c"))):
            table.report(report(name, owner=owner), NOW + at)
        assert [each.reader for each in table.listed()] == ["one", "three", "four"]

    def test_the_newest_query_to_begin_has_the_name(self) -> None:
        table = ReaderTable(Logger(io.StringIO()), Broker())
        answers = [begin(table, lease(instance=name)) for name in ("one", "one", "two", "one", "two", "three", "two")]
        assert answers == [True, True, True, False, True, True, False]

    def test_a_take_over_survives_a_power_cut(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The file is synced before it is renamed, and its folder afterwards."""
        synced: list[str] = []

        def noted(file: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{file}"))

        monkeypatch.setattr(os, "fsync", noted)
        monkeypatch.setattr(os, "fdatasync", noted)
        begin(kept(tmp_path), lease(instance="one"))
        assert synced == [str(tmp_path / "readers.json.new"), str(tmp_path)]

    def test_a_take_over_is_saved_at_once(self, tmp_path: Path) -> None:
        table = kept(tmp_path)
        begin(table, lease(instance="one"))
        begin(table, lease(instance="two"))
        after_a_crash = kept(tmp_path)
        assert not begin(after_a_crash, lease(instance="one"))
        assert begin(after_a_crash, lease(instance="two"))


class TestPins:
    @pytest.fixture
    def life(self, tmp_path: Path) -> Life:
        life = Life(tmp_path / "data", 3).run(600)
        assert len(life.opened.upkeep.log.extents()) > 4
        return life

    def plan(self, life: Life, pin: Pin | None, **limits: int) -> tuple[int, list[str]]:
        upkeep = life.opened.upkeep
        upkeep.retention = Retention(age=0, bytes=1, **limits)
        plan = upkeep.plan(life.workload.now, [pin] if pin else [])
        return upkeep.log.floor, [reason for _, reason in plan.lapsed]

    def test_the_floor_waits_for_a_reader(self, life: Life) -> None:
        third = life.opened.upkeep.log.extents()[2]
        now = life.workload.now
        assert self.plan(life, Pin("lake", third.first + 1, now)) == (third.first, [])
        last = life.opened.upkeep.log.extents()[-1]
        assert self.plan(life, Pin("lake", last.end, now)) == (last.first, [])

    def test_the_floor_does_not_wait_for_a_silent_reader(self, life: Life) -> None:
        last, now = life.opened.upkeep.log.extents()[-1], life.workload.now
        pin = Pin("lake", 1, now - 10 * SECOND)
        assert self.plan(life, pin, pin_age=9 * SECOND) == (last.first, ["it has not reported for too long"])

    def test_the_floor_does_not_wait_for_a_reader_that_keeps_too_much(self, life: Life) -> None:
        segments, now = life.opened.upkeep.log.extents(), life.workload.now
        size = sum(segment.size for segment in segments[2:-1])
        pin = Pin("lake", segments[2].first, now)
        assert self.plan(life, pin, pin_bytes=size) == (segments[2].first, [])
        assert self.plan(life, pin, pin_bytes=size - 1) == (segments[-1].first, ["it would keep too many bytes"])

    def test_the_floor_never_goes_back(self, life: Life) -> None:
        last, now = life.opened.upkeep.log.extents()[-1], life.workload.now
        assert self.plan(life, None) == (last.first, [])
        assert self.plan(life, Pin("lake", 1, now))[0] == last.first

    def test_pinned_history_is_not_trimmed(self, life: Life) -> None:
        upkeep = life.opened.upkeep
        segments, now = upkeep.log.extents(), life.workload.now
        upkeep.retention = Retention(age=0, bytes=1)
        for _ in range(3):
            retain(upkeep, now, pins=[Pin("lake", segments[2].first, now)])
        assert upkeep.log.floor == segments[2].first
        assert upkeep.log.extents()[0].first <= segments[2].first
