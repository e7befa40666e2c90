"""Who reads, and how long history waits for them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from penstock.core.broker import Broker
from penstock.core.policy import SECOND
from penstock.flight import requests
from penstock.server import readers
from penstock.server.logs import Log
from penstock.server.readers import Pin, Readers, TooMany
from penstock.server.upkeep import Retention
from support.folders import Life
from support.sidedoor import lease

NOW = 1_750_000_000 * SECOND


def report(reader: str = "lake", position: int = 7, *, pin: bool = False) -> requests.Report:
    return requests.Report(
        reader=reader, view="messages", where="*/*", position=position, lag_rows=1, lag_seconds=2.0, pin=pin
    )


class TestRegistry:
    def test_what_was_told_last_counts(self) -> None:
        found = Readers(Log(io.StringIO()))
        found.report(report(position=7, pin=True), NOW)
        found.report(report(position=9), NOW + 1)
        [reader] = found.listed(Broker())
        assert (reader.position, reader.pin, reader.at) == (9, False, NOW + 1)
        assert found.pins() == []
        assert found.forget("lake")
        assert not found.forget("lake")

    def test_the_file_is_written_now_and_then(self, tmp_path: Path) -> None:
        found = Readers(Log(io.StringIO()), tmp_path)
        found.save(100.0)
        assert not (tmp_path / readers.NAME).exists()
        found.report(report(), NOW)
        found.save(100.0)
        found.report(report(position=8), NOW)
        found.save(100.0 + readers.SAVE_SECONDS / 2)
        [before] = Readers(Log(io.StringIO()), tmp_path).listed(Broker())
        found.save()
        [after] = Readers(Log(io.StringIO()), tmp_path).listed(Broker())
        assert (before.position, after.position) == (7, 8)
        assert [path.name for path in tmp_path.iterdir()] == [readers.NAME]

    def test_a_folder_that_can_not_be_written_is_told(self, tmp_path: Path) -> None:
        words = io.StringIO()
        found = Readers(Log(words), tmp_path / "gone")
        found.report(report(), NOW)
        found.save()
        assert "the readers can not be written down" in words.getvalue()

    def test_there_is_a_limit_and_the_quietest_makes_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readers, "MOST_READERS", 2)
        found = Readers(Log(io.StringIO()))
        found.report(report("pinned", pin=True), NOW)
        found.report(report("loose"), NOW + 1)
        found.report(report("third", pin=True), NOW + 2)
        assert [each.reader for each in found.listed(Broker())] == ["pinned", "third"]
        with pytest.raises(TooMany, match="2 readers have pinned or leased something already"):
            found.report(report("fourth"), NOW + 3)

    def test_the_newest_query_to_begin_has_the_name(self) -> None:
        found = Readers(Log(io.StringIO()))
        answers = [
            found.begin(lease(instance=name), NOW) for name in ("one", "one", "two", "one", "two", "three", "two")
        ]
        assert answers == [True, True, True, False, True, True, False]

    def test_who_has_taken_over_is_written_down_at_once(self, tmp_path: Path) -> None:
        found = Readers(Log(io.StringIO()), tmp_path)
        found.save(100.0)
        found.begin(lease(instance="one"), NOW)
        found.begin(lease(instance="two"), NOW)
        after_a_crash = Readers(Log(io.StringIO()), tmp_path)
        assert not after_a_crash.begin(lease(instance="one"), NOW)
        assert after_a_crash.begin(lease(instance="two"), NOW)


class TestPins:
    @pytest.fixture
    def life(self, tmp_path: Path) -> Life:
        life = Life(tmp_path / "data", 3).run(600)
        assert len(life.opened.upkeep.log.segments()) > 4
        return life

    def plan(self, life: Life, pin: Pin | None, **limits: int) -> tuple[int, list[str]]:
        upkeep = life.opened.upkeep
        upkeep.retention = Retention(age=0, bytes=1, **limits)
        upkeep.pins = lambda: [pin] if pin else []
        plan = upkeep.plan(life.workload.now)
        return upkeep.log.floor, [reason for _, reason in plan.dropped]

    def test_the_floor_waits_for_a_reader(self, life: Life) -> None:
        third = life.opened.upkeep.log.segments()[2]
        now = life.workload.now
        assert self.plan(life, Pin("lake", third.first + 1, now)) == (third.first, [])
        last = life.opened.upkeep.log.segments()[-1]
        assert self.plan(life, Pin("lake", last.end, now)) == (last.first, [])

    def test_not_for_one_that_was_not_heard_of(self, life: Life) -> None:
        last, now = life.opened.upkeep.log.segments()[-1], life.workload.now
        pin = Pin("lake", 1, now - 10 * SECOND)
        assert self.plan(life, pin, pin_age=9 * SECOND) == (last.first, ["it was not heard of for too long"])

    def test_not_for_one_that_keeps_too_much(self, life: Life) -> None:
        segments, now = life.opened.upkeep.log.segments(), life.workload.now
        size = sum(segment.size for segment in segments[2:-1])
        pin = Pin("lake", segments[2].first, now)
        assert self.plan(life, pin, pin_bytes=size) == (segments[2].first, [])
        assert self.plan(life, pin, pin_bytes=size - 1) == (segments[-1].first, ["it would keep too many bytes"])

    def test_the_floor_never_goes_back(self, life: Life) -> None:
        last, now = life.opened.upkeep.log.segments()[-1], life.workload.now
        assert self.plan(life, None) == (last.first, [])
        assert self.plan(life, Pin("lake", 1, now))[0] == last.first

    def test_pinned_history_is_not_trimmed(self, life: Life) -> None:
        upkeep = life.opened.upkeep
        segments, now = upkeep.log.segments(), life.workload.now
        upkeep.retention = Retention(age=0, bytes=1)
        upkeep.pins = lambda: [Pin("lake", segments[2].first, now)]
        for _ in range(3):
            upkeep.retain(now)
        assert upkeep.log.floor == segments[2].first
        assert upkeep.log.segments()[0].first <= segments[2].first
