"""Plans, steps and counts on journals with many segments, gaps, and brokers that keep writing."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.companions.rights import Allowed
from penstock.flight.access import Caller, Peer
from penstock.flight.calls import Advance, Plan
from penstock.flight.history import History
from penstock.flight.plans import Measures
from penstock.flight.tallies import Tallies
from penstock.journal import Follower
from penstock.journal.files.follower import JournalReader
from penstock.journal.format.catalogue import QueueName
from penstock.journal.views import arrow
from penstock.schema import Kind
from support.folders import WEAK, Life

CALLER = Caller(Peer("127.0.0.1", "127.0.0.1:1", "", ""), Allowed(open=True))
LONG = float("inf")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A journal of many small segments, with a gap in its numbering."""
    found = Life(tmp_path_factory.mktemp("life"), seed=5, options=WEAK).run(600)
    found.kill()
    found.restart()
    return found.run(600)


def published(reader: JournalReader, start: int, stop: int) -> Counter[str]:
    rows = arrow.read(reader, "messages", start, stop, columns=["namespace", "queue"])
    return Counter(f"{row['namespace']}/{row['queue']}" for batch in rows for row in batch.to_pylist())


class TestPlans:
    @pytest.mark.parametrize("partitions", [1, 3, 16, 200])
    def test_the_parts_are_contiguous_and_complete(self, life: Life, partitions: int) -> None:
        history = History(JournalReader(life.folder))
        assert len(history.reader.spans()) > 5
        plan = Measures(history).plan(Plan(partitions=partitions), CALLER)
        assert len(plan.ranges) >= partitions
        assert plan.ranges[0][0] == history.reader.earliest
        assert plan.ranges[-1][1] == history.reader.latest
        assert all(one[1] == other[0] for one, other in zip(plan.ranges, plan.ranges[1:], strict=False))
        rows = [row for start, stop in plan.ranges for row in positions(history.reader, start, stop)]
        assert rows == positions(history.reader, *whole(history.reader))
        history.reader.close()

    def test_parts_are_of_similar_size(self, life: Life) -> None:
        history = History(JournalReader(life.folder))
        plan = Measures(history).plan(Plan(partitions=8), CALLER)
        sizes = [len(positions(history.reader, start, stop)) for start, stop in plan.ranges]
        assert max(sizes) < 3 * sum(sizes) / len(sizes)
        history.reader.close()

    def test_by_bytes(self, life: Life) -> None:
        history = History(JournalReader(life.folder))
        size = sum(path.stat().st_size for path in Path(life.folder).glob("*.seg"))
        assert len(Measures(history).plan(Plan(part_bytes=size // 10), CALLER).ranges) >= 5
        history.reader.close()


def whole(reader: Follower) -> tuple[int, int]:
    return reader.earliest, reader.latest


def positions(reader: Follower, start: int, stop: int) -> list[int]:
    batches = arrow.read(reader, "events", start, stop, columns=["position"])
    return [position for batch in batches for position in batch["position"].to_pylist()]


class TestSteps:
    @pytest.mark.parametrize("rows", [1, 17, 400])
    def test_each_step_has_the_planned_rows(self, life: Life, rows: int) -> None:
        history = History(JournalReader(life.folder))
        measures = Measures(history)
        start, stop = whole(history.reader)
        found: list[int] = []
        for _ in range(20):
            step = measures.advance(Advance(view="events", start=start, stop=stop, max_rows=rows), CALLER)
            part = positions(history.reader, start, step.stop)
            assert len(part) == step.rows <= rows
            found += part
            start = step.stop
        assert found == positions(history.reader, history.reader.earliest, start)
        history.reader.close()


class TestCounts:
    def test_whole_and_in_parts(self, life: Life) -> None:
        reader = JournalReader(life.folder)
        tallies = Tallies(reader)
        start, stop = whole(reader)
        middle = reader.spans()[3].first + 5
        for low, high in ((start, stop), (start, middle), (middle, stop), (start, stop), (middle, middle + 1)):
            tally, exact = tallies.between(low, high, LONG)
            wanted = published(reader, low, high)
            assert exact
            assert {name: tally.of(QueueName(*name.split("/")))[0] for name in wanted} == wanted
            assert tally.rows(None, messages=True) == wanted.total()
            assert tally.rows(None, messages=False) == len(positions(reader, low, high))
        reader.close()

    def test_a_growing_journal(self, tmp_path: Path) -> None:
        life = Life(tmp_path, seed=8).run(20)
        reader = JournalReader(tmp_path)
        tallies = Tallies(reader)
        for _ in range(15):
            life.run(25)
            start, stop = whole(reader)
            tally, exact = tallies.between(start, stop, LONG)
            assert exact
            assert tally.rows(None, messages=True) == published(reader, start, stop).total()
        reader.close()
        life.stop()

    def test_counts_are_cached(self, life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
        reader = JournalReader(life.folder)
        tallies = Tallies(reader)
        first, _ = tallies.between(*whole(reader), LONG)
        looked: list[int] = []
        monkeypatch.setattr("penstock.flight.tallies.Tally.count", lambda *block: looked.append(1))
        again, _ = tallies.between(*whole(reader), LONG)
        assert looked == []
        assert again.rows(None, messages=True) == first.rows(None, messages=True)
        reader.close()

    def test_counts_are_estimated_when_time_is_up(self, life: Life) -> None:
        reader = JournalReader(life.folder)
        tallies = Tallies(reader)
        low = reader.spans()[0]
        tallies.between(low.first, low.end, LONG)
        tally, exact = tallies.between(*whole(reader), time.monotonic() - 1)
        assert not exact
        assert tally.rows(None, messages=False) > tallies.between(low.first, low.end, LONG)[0].rows(
            None, messages=False
        )
        reader.close()


class TestLag:
    def test_rows_and_seconds(self, life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.flight.plans.LAG_SECONDS", LONG)
        history = History(JournalReader(life.folder))
        reader = history.reader
        events = [
            (found.block.first + row, int(at), int(kind))
            for found in reader.read(*whole(reader))
            for row, (at, kind) in enumerate(zip(found.block.at(), found.block.kinds, strict=True))
        ]
        now = events[-1][1] / 1e6 + 5
        measures = Measures(history, now=lambda: now)
        for position in (events[0][0], events[len(events) // 3][0], events[-50][0]):
            lag = measures.lag(None, "messages", position)
            behind = [at for place, at, kind in events if place >= position and kind == Kind.PUBLISHED]
            assert lag.rows == len(behind)
            assert lag.seconds == pytest.approx(now - behind[0] / 1e6)
        assert measures.lag(None, "messages", reader.latest).rows == 0
        assert measures.lag(lambda name: False, "events", 1).rows == 0
        reader.close()
