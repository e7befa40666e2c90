"""Group commit: one append takes everything staged, reported events are durable, and a failure is final."""

from __future__ import annotations

import threading
import time
from array import array

import pytest

from penstock.journal import committer
from penstock.journal.committer import Committer, Staged
from penstock.journal.contract import Durability, Log, OwnerOptions
from penstock.journal.errors import LogFailed, LogFull
from penstock.journal.files.log import FileLog
from support.batches import Rowset, published
from support.journals import MemoryLog
from support.simdisk import SimDisk


class Engine:
    """Stages messages, and records the reported positions."""

    def __init__(self, log: Log, sync_every: float | None = None) -> None:
        self.log = log
        self.lock = threading.Lock()
        self.end = log.end
        self.staged: list[bytes] = []
        self.reported: list[int] = []
        self.failures: list[Exception] = []
        self.changed = threading.Event()
        self.committer = Committer(log, self.take, self.committed, self.failures.append, sync_every=sync_every)

    def publish(self, *payloads: bytes) -> None:
        with self.lock:
            self.staged.extend(payloads)
        self.committer.wake()

    def take(self) -> Staged | None:
        with self.lock:
            payloads, self.staged = self.staged, []
        if not payloads:
            return None
        batch = published(self.end, payloads)
        self.end = batch.end
        return Staged(batch, roll=self.log.wants_roll)

    def committed(self, position: int) -> None:
        self.reported.append(position)
        self.changed.set()

    def wait_for(self, position: int) -> None:
        deadline = time.monotonic() + 10
        while (not self.reported or self.reported[-1] < position) and time.monotonic() < deadline:
            self.changed.wait(0.1)
            self.changed.clear()
        assert self.reported[-1] >= position


def test_everything_staged_goes_into_one_block() -> None:
    engine = Engine(MemoryLog())
    assert engine.committer.commit_now()
    assert engine.reported == []
    engine.publish(b"a", b"b")
    engine.publish(b"c")
    assert engine.committer.commit_now()
    assert engine.reported == [4]
    assert [(block.first, block.end) for block in engine.log.read(0)] == [(1, 4)]


def test_the_thread_commits_staged_rows() -> None:
    engine = Engine(MemoryLog())
    engine.committer.start()
    for number in range(200):
        engine.publish(b"%d" % number)
    engine.wait_for(201)
    engine.publish(b"at the end")
    engine.committer.close()
    assert engine.reported == sorted(set(engine.reported))
    assert engine.reported[-1] == 202
    assert [message.payload for message in engine.log.messages(range(1, 4))] == [b"0", b"1", b"2"]


def engine_in_a_commit() -> tuple[Engine, threading.Event]:
    """An engine whose thread appends its first message until the event is set."""
    entered, leave = threading.Event(), threading.Event()

    class SlowLog(MemoryLog):
        def append(self, *args: object, **kwargs: object) -> None:
            entered.set()
            leave.wait(10)
            super().append(*args, **kwargs)  # type: ignore[arg-type]

    engine = Engine(SlowLog())
    engine.committer.start()
    engine.publish(b"first")
    assert entered.wait(10)
    return engine, leave


def test_rows_staged_during_a_commit_go_with_the_next() -> None:
    engine, leave = engine_in_a_commit()
    for number in range(50):
        engine.publish(b"%d" % number)
    leave.set()
    engine.wait_for(52)
    engine.committer.close()
    assert engine.reported == [2, 52]


def staged_after(engine: Engine, payload: bytes) -> Staged:
    engine.staged.append(payload)
    staged = engine.take()
    assert staged is not None
    return staged


def test_a_commit_may_bypass_the_thread_while_it_is_idle() -> None:
    engine = Engine(MemoryLog())
    engine.committer.start()
    engine.publish(b"first")
    engine.wait_for(2)
    while not engine.committer.append_now(staged := staged_after(engine, b"now")):
        engine.end = staged.batch.first  # the thread is not idle yet
    assert engine.log.committed == 3
    engine.publish(b"later")
    engine.wait_for(4)
    engine.committer.close()
    assert engine.reported == [2, 4]
    assert [message.payload for message in engine.log.messages(range(1, 4))] == [b"first", b"now", b"later"]


def test_a_commit_goes_to_the_thread_while_it_is_busy() -> None:
    engine, leave = engine_in_a_commit()
    assert not engine.committer.append_now(staged_after(engine, b"now"))
    leave.set()
    engine.committer.close()


def test_a_slow_commit_leaves_the_next_to_the_thread_for_many_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with occasional slow writes must not block the event loop each time."""
    now = [100.0]

    class Clock:
        perf_counter = monotonic = staticmethod(lambda: now[0])

    class SlowLog(MemoryLog):
        takes = 0.001

        def append(self, *args: object, **kwargs: object) -> None:
            now[0] += self.takes
            super().append(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(committer, "time", Clock)
    engine = Engine(log := SlowLog())
    log.takes = 0.5
    assert engine.committer.append_now(staged_after(engine, b"slow"))
    log.takes = 0.001
    engine.publish(b"quick, by the thread")
    assert engine.committer.commit_now()
    engine.committer._wanted.clear()
    early = staged_after(engine, b"quick")
    now[0] += 0.5 * committer.REST - 0.1
    assert not engine.committer.append_now(early)
    now[0] += 0.2
    assert engine.committer.append_now(early)
    assert engine.log.committed == 4


def test_the_threads_sync_is_reported_despite_an_append_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append outside the thread does not know about commits that wait for that sync."""
    monkeypatch.setattr(committer, "QUICK", 10.0)
    engine = Engine(interval_log(SimDisk()), sync_every=3600)
    assert engine.committer.append_now(staged_after(engine, b"a"))
    engine.committer._wanted.clear()
    engine.log.sync()  # as the thread does, which would compare afterwards
    assert engine.committer.append_now(staged_after(engine, b"b"))
    engine.committer._report()
    assert engine.reported == [2]


def test_a_failure_outside_the_thread_is_final_too() -> None:
    class BrokenLog(MemoryLog):
        def append(self, *args: object, **kwargs: object) -> None:
            raise LogFailed("the disk is broken")

    engine = Engine(BrokenLog())
    engine.committer.start()
    thread = engine.committer._running
    assert engine.committer.append_now(staged_after(engine, b"a"))
    assert isinstance(engine.committer.failure, LogFailed)
    assert len(engine.failures) == 1
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive(), "the thread has nothing left to wait for"
    assert not engine.committer.append_now(staged_after(engine, b"b"))


def test_only_the_thread_waits_for_a_full_disk() -> None:
    class FullLog(MemoryLog):
        tries = 0

        def append(self, *args: object, **kwargs: object) -> None:
            self.tries += 1
            if self.tries == 1:
                raise LogFull("the disk is full")
            super().append(*args, **kwargs)  # type: ignore[arg-type]

    engine = Engine(log := FullLog())
    reported: list[LogFull | None] = []
    engine.committer._on_full = reported.append
    staged = staged_after(engine, b"a")
    assert not engine.committer.append_now(staged)
    assert (engine.committer.full, engine.reported) == (reported[0], [])
    assert not engine.committer.append_now(staged), "a retry must not block the caller"
    assert log.tries == 1
    engine.end = staged.batch.first
    engine.publish(b"a")
    assert engine.committer.commit_now()
    assert (engine.committer.full, reported[1:], engine.reported) == (None, [None], [2])


def test_an_interval_log_is_synced_in_time_outside_the_thread() -> None:
    engine = Engine(interval_log(SimDisk()), sync_every=0.01)
    engine.committer.start()
    assert engine.committer.append_now(staged_after(engine, b"a"))
    engine.wait_for(2)
    engine.committer.close()


def interval_log(disk: SimDisk) -> FileLog:
    return FileLog(disk, OwnerOptions(Durability.INTERVAL))


def test_an_interval_log_reports_after_the_sync() -> None:
    engine = Engine(interval_log(SimDisk()), sync_every=3600)
    engine.publish(b"a")
    engine.committer.commit_now()
    assert engine.reported == []
    assert list(engine.log.read(0)) == []
    engine.committer.commit_now(sync=True)
    assert engine.reported == [2]
    assert len(list(engine.log.read(0))) == 1


def test_the_thread_syncs_when_it_is_due() -> None:
    engine = Engine(interval_log(SimDisk()), sync_every=0.02)
    engine.committer.start()
    engine.publish(b"a")
    engine.wait_for(2)
    engine.publish(b"b")
    engine.committer.close()
    assert engine.reported == [2, 3]


def test_a_failure_is_reported_once_and_nothing_is_confirmed_after_it() -> None:
    disk = SimDisk()
    engine = Engine(FileLog(disk))
    engine.publish(b"a")
    engine.committer.commit_now()
    disk.fail_at(disk.made + 2, "EIO")  # the sync
    engine.publish(b"b")
    assert not engine.committer.commit_now()
    engine.publish(b"c")
    assert not engine.committer.commit_now()
    engine.committer.close()
    assert engine.reported == [2]
    assert [type(error) for error in engine.failures] == [LogFailed]


def test_a_failure_ends_the_thread() -> None:
    disk = SimDisk()
    engine = Engine(FileLog(disk))
    disk.fail_at(disk.made + 1, "ENOSPC")
    engine.committer.start()
    engine.publish(b"a")
    engine.committer.close()
    assert [str(error).count("simulated ENOSPC") for error in engine.failures] == [1]
    assert engine.reported == []


@pytest.mark.parametrize("wrong", ["first", "columns"])
def test_a_fault_in_the_engine_is_a_failure_too(wrong: str) -> None:
    class Faulty(Engine):
        def take(self) -> Staged | None:
            batch: Rowset = published(9 if wrong == "first" else 1, [b"a"])
            if wrong == "columns":
                batch.columns["priority"] = array("Q", [1, 2])
            return Staged(batch)

    engine = Faulty(MemoryLog())
    assert not engine.committer.commit_now()
    assert len(engine.failures) == 1


def test_a_sealed_out_owner_fails() -> None:
    log = MemoryLog()
    engine = Engine(log)
    log.seal(1)
    engine.publish(b"a")
    assert not engine.committer.commit_now()
    assert "epoch 1" in str(engine.committer.failure)
