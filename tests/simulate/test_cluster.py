"""Simulated lives of several brokers on one database, and proof that broken promises are detected."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.journal.postgresql import journal, log
from penstock.journal.postgresql.database import ConnectionLost, ShardRow
from penstock.journal.postgresql.known_commits import KnownCommits
from penstock.journal.postgresql.lease import DatabaseLease
from penstock.journal.postgresql.writer import HeadWriter
from simulate import __main__ as command
from simulate.cluster import ClusterWorld
from simulate.scheduler import Scheduler, TaskLock
from simulate.witness import Broken
from support.simdatabase import Tables

#: The number of lives in which a broken rule must be detected.
ENOUGH = 150


def test_brokers_that_take_over_keep_all_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--database", "--seeds", "2000", "--seconds", "12", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["broken"] == 0
    assert 0 < found["lives"] <= 2000
    assert found["starts"] > found["lives"]
    assert min(found["confirmed"], found["promoted"], found["fenced"], found["noticed"]) > 0


def test_a_seed_replays_exactly() -> None:
    first, second = ClusterWorld(9), ClusterWorld(9)
    first.run()
    second.run()
    assert first.witness.blocks
    assert first.witness.blocks == second.witness.blocks
    assert first.deliveries == second.deliveries


Break = Callable[[pytest.MonkeyPatch], None]


def no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database does not check the epoch of a statement."""
    monkeypatch.setattr(Tables, "of", lambda tables, epoch: tables.shard)


def no_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database adds a block wherever the head is."""
    append = Tables.append

    def careless(tables: Tables, epoch: int, head: int, *others: Any) -> bool:
        assert tables.shard is not None
        return append(tables, epoch, tables.shard.head, *others)

    monkeypatch.setattr(Tables, "append", careless)


def no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner delivers messages without regard to its lease."""
    monkeypatch.setattr(DatabaseLease, "extend", lambda lease, asked_at: setattr(lease, "deadline", float("inf")))
    monkeypatch.setattr(DatabaseLease, "end", lambda lease: None)


def deadline_from_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease counts from the arrival of its answer."""
    extend = DatabaseLease.extend

    def late(lease: DatabaseLease, asked_at: float) -> None:
        writer = lease.renew.__self__  # type: ignore[attr-defined]
        extend(lease, writer._clock.monotonic())

    monkeypatch.setattr(DatabaseLease, "extend", late)


def blind_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit with an unknown outcome counts as done."""
    settle = HeadWriter._settle

    def blind(writer: HeadWriter, lost: ConnectionLost | None, settled: Callable[[], bool]) -> float:
        return writer._clock.monotonic() if lost is not None else settle(writer, lost, settled)

    monkeypatch.setattr(HeadWriter, "_settle", blind)


def blind_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit with an unknown outcome is repeated wherever the head is by then."""

    def again(writer: HeadWriter, block: Any, extent: int, begins: Any) -> bool:
        shard = writer._database.shard()
        moved = block._replace(
            first=max(shard.head, block.first), end=max(shard.head, block.first) + block.end - block.first
        )
        return writer._database.append(writer.epoch, shard.head, moved, writer.lease.seconds, writer.floor, begins)

    monkeypatch.setattr(HeadWriter, "_found", again)


def no_durable_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A visible block counts as durable without a commit after it."""
    settle = HeadWriter._settle

    def looks(writer: HeadWriter, lost: ConnectionLost | None, settled: Callable[[], bool]) -> float:
        database = writer._database

        class Looking:
            def renew(self, epoch: int, lease: float, floor: int) -> ShardRow | None:
                found = database.shard()
                return found if found.epoch == epoch else None

            def __getattr__(self, name: str) -> Any:
                return getattr(database, name)

        if lost is None:
            return settle(writer, lost, settled)
        writer._database = Looking()
        try:
            return settle(writer, lost, settled)
        finally:
            writer._database = database

    monkeypatch.setattr(HeadWriter, "_settle", looks)


def forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers forget which position was committed."""
    monkeypatch.setattr(KnownCommits, "lost_range", lambda known, database, shard: None)


def no_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbering continues in a restored database as if nothing were lost."""
    for module in (journal, log):
        monkeypatch.setattr(module, "is_another", lambda made_in, extents, incarnation: False)


#: Each with a seed that detected it; changes to the code may change that seed.
MUTATIONS: list[tuple[Break, int]] = [
    (no_epoch, 19),
    (no_head, 54),
    (no_deadline, 40),
    (deadline_from_the_answer, 238),
    (blind_confirmation, 11),
    (blind_repetition, 0),
    (no_durable_look, 32),
    (forgets, 235),
    (no_incarnation, 13),
]


@pytest.mark.parametrize(("mutation", "seed"), MUTATIONS)
def test_a_broken_rule_is_detected(monkeypatch: pytest.MonkeyPatch, mutation: Break, seed: int) -> None:
    mutation(monkeypatch)
    for each in (seed, *range(ENOUGH)):
        try:
            ClusterWorld(each).run()
        except Exception:  # a broken promise, or an error that can only follow one
            return
    pytest.fail(f"{mutation.__doc__} The checks did not notice.")


def test_tasks_wait_for_a_lock() -> None:
    scheduler = Scheduler()
    lock, order = TaskLock(scheduler), list[str]()

    def task(name: str) -> None:
        with lock, lock:
            order.append(f"{name} begins")
            scheduler.sleep(1.0)
            order.append(f"{name} ends")

    scheduler.spawn(lambda: task("one"))
    scheduler.spawn(lambda: task("two"), 0.5)
    scheduler.run(5.0)
    assert order == ["one begins", "one ends", "two begins", "two ends"]


def test_an_exception_in_a_task_ends_the_run() -> None:
    scheduler = Scheduler()

    def fails() -> None:
        raise Broken("it did not hold")

    scheduler.spawn(fails)
    with pytest.raises(Broken, match="it did not hold"):
        scheduler.run(1.0)
