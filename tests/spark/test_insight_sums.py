"""``insight``, without Spark, compared with sums computed event by event, for any division into batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from penstock.spark.lake.disk import LakeError
from penstock.spark.pipelines.insight import messages, minutes, partials, sums, tables
from penstock.spark.pipelines.insight.messages import Changes, MessageStore, Places, Purge
from penstock.spark.pipelines.insight.minutes import (
    MINUTE,
    SECOND,
    InsightState,
    QueueKey,
    duration,
    percentile,
)
from support.history import Plain, random_events
from support.insight import KEYS, Rows, check


class Batches:
    """Adds events in batches of two parts each, as executors do, and keeps the rows of all tables so far."""

    def __init__(self, folder: Path, state: InsightState | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.database = folder / "messages.db"
        self.state = state or InsightState()
        self.rows: Rows = {name: {} for name in tables.TABLES}

    def take(self, events: pa.Table) -> None:
        half, state = events.num_rows // 2, self.state
        unit = min(state.finer, default=MINUTE if state.watermark else SECOND)
        halves = [part for part in (events.slice(0, half), events.slice(half)) if part.num_rows]
        parts = [partials.encode(*partials.add_up(part, state.watermark, unit)) for part in halves]
        with MessageStore.opened(self.database) as store:
            ledgers, _ = sums.add(state, [partials.decode(*part) for part in parts], store)
            store.commit("a batch")
        for name, rows in tables.rows_of(ledgers):
            self.rows[name] |= {tuple(row[key] for key in KEYS if key in row): row for row in rows}
        # The state as it is read back from its file.
        self.state = msgspec.json.decode(msgspec.json.encode(ledgers.close(2 * MINUTE)), type=InsightState)


def in_batches(folder: Path, events: pa.Table, count: int) -> Batches:
    batches, size = Batches(folder), events.num_rows // count + 1
    for number in range(count):
        batches.take(events.slice(number * size, size))
    return batches


@pytest.mark.parametrize("seed", range(1, 4))
def test_tables_match_the_events_for_any_division_into_batches(tmp_path: Path, seed: int) -> None:
    """Messages are also moved between queues, and queues purged, deleted and created again."""
    events = random_events(tmp_path / "journal", seed, 600)
    plain = Plain(events)
    for count in (1, 2, 7):
        check(in_batches(tmp_path / str(count), events, count).rows, plain)


def test_the_first_minutes_have_finer_steps(tmp_path: Path) -> None:
    events = random_events(tmp_path / "journal", 8, 800)
    times = events.column("at").cast(pa.int64()).to_numpy()
    for name, unit in (("by_second", SECOND), ("by_10_seconds", 10 * SECOND)):
        young = events.slice(0, int(np.searchsorted(times, times[0] + minutes.FINER[unit])))
        assert young.num_rows > 100
        batches = in_batches(tmp_path / name, young, 4)
        check(batches.rows, Plain(young, unit), name, unit)
        before = dict(batches.rows[name])
        batches.take(events.slice(young.num_rows))
        assert batches.rows[name] == before
        assert unit not in batches.state.finer


def test_very_many_queues_have_no_finer_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minutes, "FINER_QUEUES", 2)
    batches = Batches(tmp_path)
    batches.take(random_events(tmp_path / "journal", 8, 40))
    assert batches.state.finer == {}


# ----------------------------------------------------------------------------------------------- what messages cost


def backlog(first: int, count: int) -> pa.Table:
    return simple(first, ["published"] * count, range(first, first + count))


def simple(first: int, kinds: list[str], about: range | list[int]) -> pa.Table:
    """Events of one queue, one per millisecond."""
    count = len(kinds)
    at = pa.array(range(first, first + count), pa.int64())
    times = pa.array([1_750_000_000_000_000 + 1000 * each for each in range(first, first + count)])
    texts = {name: pa.array([value] * count) for name, value in (("namespace", "default"), ("queue", "jobs"))}
    nothing = {name: pa.nulls(count, pa.int64()) for name in ("deliveries", "delivered_at", "payload_size", "count")}
    words = {name: pa.nulls(count, pa.string()) for name in ("reason", "protocol", "peer")}
    message = pa.array(list(about), pa.int64())
    return pa.table({"position": at, "kind": kinds, "at": times, "message": message, **texts, **nothing, **words})


def test_the_cost_of_a_batch_does_not_depend_on_the_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few messages from all parts of a backlog are consumed. The cost is counted in SQLite's steps."""
    steps: Counter[int] = Counter()
    real = MessageStore._prepare

    def counted(store: MessageStore) -> None:
        real(store)
        store._database.set_progress_handler(lambda: steps.update([size]) or 0, 10)

    for size in (1000, 20_000):
        batches = Batches(tmp_path / str(size))
        batches.take(backlog(1, size))
        with monkeypatch.context() as patched:
            patched.setattr(MessageStore, "_prepare", counted)
            batches.take(simple(size + 1, ["acknowledged"] * 100, [1 + at * size // 100 for at in range(100)]))
        row = list(batches.rows["queues"].values())[-1]
        assert row["depth"] == size - 100
    assert steps[20_000] < 1.2 * steps[1000]


def test_space_is_freed_when_a_long_queue_was_consumed(tmp_path: Path) -> None:
    batches = Batches(tmp_path)
    batches.take(backlog(1, 20_000))
    full = batches.database.stat().st_size
    assert full < 60 * 20_000
    batches.take(simple(20_001, ["acknowledged"] * 19_000, range(1, 19_001)))
    assert batches.database.stat().st_size < full / 5


def test_a_read_only_database_is_not_reported_as_damage(tmp_path: Path) -> None:
    (tmp_path / "messages.db").mkdir()
    text = r"messages\.db can't be read and written: unable to open database file\. Correct that, and run again"
    with pytest.raises(LakeError, match=text), MessageStore.opened(tmp_path / "messages.db"):
        pass


def test_purged_messages_are_removed_a_day_later_some_with_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "REMOVED_AT_ONCE", 4)
    nothing = np.zeros(0, np.int64)
    with MessageStore.opened(tmp_path / "messages.db") as store:
        rows = [(number, 1, 0, number, number, number) for number in range(1, 11)]
        key = {1: QueueKey("default", "jobs")}
        store.apply(Changes(key, nothing, Places.from_rows(rows), [Purge(1, 0, 8, 500)], 500))
        left = []
        for until in (499, 500, 500, 501):
            store.apply(Changes({}, nothing, Places.from_rows([]), [], until + messages.PURGED_KEPT))
            left.append(sorted(store.find(np.arange(20)).message.tolist()))
    assert left == [list(range(1, 11)), list(range(5, 11)), [8, 9, 10], [8, 9, 10]]


def test_a_decided_batch_is_completed_from_its_file(tmp_path: Path) -> None:
    put = Places.from_rows([(5, 1, 0, 5, 50, 50), (6, 1, 1, 9, 90, 60)])
    changes = Changes({1: QueueKey("default", "jobs")}, np.array([3, 5]), put, [Purge(1, 0, 4, 40)], 99)
    messages.write_changes(tmp_path / "changes.arrow", changes, "the one before")
    again, before = messages.read_changes(tmp_path / "changes.arrow")
    assert before == "the one before"
    assert (again.queues, again.purges, again.until) == (changes.queues, changes.purges, 99)
    assert again.removed.tolist() == [3, 5]
    assert [column.tolist() for column in again.put] == [column.tolist() for column in put]


def test_an_invalid_database_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "messages.db").write_bytes(b"something else" * 1000)
    text = r"messages\.db, the database of insight, can't be used: .*\. Restore .* as a whole"
    with pytest.raises(LakeError, match=text), MessageStore.opened(tmp_path / "messages.db"):
        pass


def test_percentiles_are_off_by_one_percent_at_most() -> None:
    values = (0, 1, 2, 3, 10, 999, 1_000_000, 86_400_000_000)
    for value, bucket in zip(values, partials.buckets(np.array(values)).tolist(), strict=True):
        assert duration(bucket) == pytest.approx(value / 1e6, rel=0.0101, abs=1.1e-6)
    assert percentile({}, 50) is None
    assert percentile({0: 1, int(partials.buckets(np.array([1_000_000]))[0]): 99}, 50) == pytest.approx(1, rel=0.0101)
