"""The owner of a journal in PostgreSQL: take-over, fencing, and commits with an unknown outcome."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from threading import Barrier, Thread

import numpy as np
import psycopg
import pytest

from penstock.demo.postgresql import Server, wait_for
from penstock.journal.contract import GAP
from penstock.journal.errors import (
    CommitsLost,
    Fenced,
    JournalDamaged,
    JournalOwned,
    LogAway,
    LogError,
    LogFailed,
    Trimmed,
)
from penstock.journal.format.block import Block
from penstock.journal.postgresql.database import Database
from penstock.journal.postgresql.journal import OwnedDatabase
from penstock.schema import Kind
from support.batches import published
from support.databaseproxy import DatabaseProxy, database_proxy
from support.owned_databases import add, execute, journal_at, owning, payloads
from support.postgres import fresh_schema, running_pair

NEVER = 10**9
LONG = os.environ.get("PENSTOCK_LONG") == "1"


@pytest.fixture
def url(postgres: Server) -> str:
    """Return the URL of a journal that does not exist yet."""
    return fresh_schema(postgres)


# ---------------------------------------------------------------------------------------------------------- taking over


def test_a_journal_has_one_owner_until_its_lease_expires(url: str) -> None:
    with owning(url, lease=600) as first:
        add(first.log, b"a")
        with pytest.raises(JournalOwned, match=r"in use by another broker: .* process") as refused:
            journal_at(url).own()
        assert 0 < refused.value.seconds <= 600
        execute(url, "update shard set lease_until = lease_until - interval '600 s'")
        with owning(url) as second:
            assert second.log.epoch > first.log.epoch
            assert payloads(second.log) == [b"a"]


def test_a_released_lease_is_taken_immediately(url: str) -> None:
    with owning(url) as first:
        add(first.log, b"a")
        first.lease.release()
        assert first.lease.deadline < time.monotonic()
        with owning(url) as second:
            add(second.log, b"b")
            with pytest.raises(LogFailed, match="handed over"):
                add(first.log, b"x")
            assert payloads(second.log) == [b"a", b"b"]


def test_closing_releases_the_lease(url: str) -> None:
    for letter in b"abc":
        with owning(url) as owned:
            add(owned.log, bytes([letter]))
    with owning(url) as owned:
        assert payloads(owned.log) == [b"a", b"b", b"c"]


def test_a_take_over_adds_a_fence_behind_the_last_block(url: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
    with owning(url) as owned:
        a, fence = owned.log.read(0)
        assert (fence.first, fence.epoch, fence.kinds.tolist()) == (a.end, owned.log.epoch, [Kind.STARTED])
        assert owned.log.end == fence.end
        assert b"process" in bytes(fence.value("detail", 0))


def test_a_replaced_owner_adds_nothing_and_raises(url: str) -> None:
    with owning(url, lease=0.3) as zombie:
        add(zombie.log, b"a")
        time.sleep(0.4)
        with owning(url) as owned:
            late: list[Callable[[], None]] = [lambda: add(zombie.log, b"x"), zombie.lease.renew]
            late.append(lambda: add(zombie.log, b"x", roll=True))
            for attempt in late:
                with pytest.raises(Fenced, match=r"was taken over: .* process \d+ .* owns it, epoch 4"):
                    attempt()
            assert zombie.lease.deadline < time.monotonic()
            add(owned.log, b"b")
            assert payloads(owned.log) == [b"a", b"b"]


def test_a_replaced_owner_changes_nothing_beside_the_log(url: str) -> None:
    with owning(url, lease=0.3) as zombie:
        for letter in b"abc":
            add(zombie.log, bytes([letter]), roll=True)
        zombie.values.put("readers", b"old")
        time.sleep(0.4)
        with owning(url) as owned:
            owned.values.put("readers", b"new")
            with pytest.raises(OSError, match="taken over"):
                zombie.values.put("readers", b"old again")
            with pytest.raises(OSError, match="taken over"):
                zombie.values.delete("readers")
            with pytest.raises(OSError, match="taken over"):
                zombie.checkpoints.write(3, b"", {"x": np.arange(9)})
            with pytest.raises(Fenced):
                zombie.log.trim(3)
            assert owned.values.get("readers") == b"new"
            assert owned.checkpoints.positions() == []
            assert payloads(owned.log) == [b"a", b"b", b"c"]


def test_a_stopped_owner_blocks_no_other_broker(postgres: Server, url: str) -> None:
    """Database locks must not be held while waiting for a client."""

    def work(owned: OwnedDatabase) -> None:
        add(owned.log, b"a", roll=True)
        add(owned.log, b"b")
        owned.values.put("name", b"value")
        owned.checkpoints.write(owned.log.end, b"", {})
        owned.log.trim(owned.log.end)

    def try_to_work(owned: OwnedDatabase) -> None:
        with suppress(LogError, OSError):
            work(owned)

    with database_proxy(postgres.port) as proxy:
        for number in count(1):
            with owning(proxy.url(url), lease=0.2) as stopped:
                work(stopped)
                proxy.hold_at_statement(number)
                working = Thread(target=try_to_work, args=[stopped])
                working.start()
                working.join(0.3)
                if not working.is_alive():
                    proxy.hold_at_statement(NEVER)
                    break
                try:
                    with owning(url) as owned:  # an owner gives up waiting for a lock
                        work(owned)
                        assert owned.log.kept() == []
                finally:  # the stopped owner cannot be closed before its statement ends
                    proxy.release()
                    working.join()
    assert number > 8


def test_two_brokers_create_the_same_journal(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        tries = [pool.submit(journal_at(url).own) for _ in range(4)]
    owned = [each.result() for each in tries if each.exception() is None]
    assert [type(each.exception()) for each in tries].count(JournalOwned) == 3
    add(owned[0].log, b"a")
    owned[0].close()


def test_two_clients_create_the_same_partition(url: str) -> None:
    """A killed client leaves its statement running, and the next client sends the same one."""
    journal_at(url).own().close()
    databases = [journal_at(url)._connect() for _ in range(2)]
    together = Barrier(2)

    def prepare(database: Database) -> None:
        for first in range(1000, 1060):
            together.wait(30)
            database.prepare(first)

    with ThreadPoolExecutor(2) as pool:
        for made in [pool.submit(prepare, each) for each in databases]:
            made.result()
    for each in databases:
        each.close()


def test_every_append_renews_the_lease(url: str) -> None:
    with owning(url, lease=0.6) as owned:
        for _ in range(4):
            time.sleep(0.2)
            before = owned.lease.deadline
            add(owned.log, b"a")
            assert owned.lease.deadline > before
        with pytest.raises(JournalOwned):
            journal_at(url).own()
        deadline = owned.lease.deadline
        assert deadline < time.monotonic() + 0.6
        owned.lease.renew()
        assert owned.lease.deadline > deadline


def test_a_take_over_may_be_interrupted_anywhere(postgres: Server, url: str) -> None:
    """It is either complete or can be retried immediately by the same broker, whose lease may already run."""
    with owning(url) as owned:
        add(owned.log, b"a")
    claimed = 0
    with database_proxy(postgres.port) as proxy:
        for number in count(1):
            cuts = proxy.cuts
            for when in ("before", "after") if LONG else ("after",):
                standby = journal_at(proxy.url(url)).stand_by()
                proxy.cut_at_statement(number, when)
                with suppress(LogAway):
                    standby.own().close()
                proxy.cut_at_statement(NEVER, "before")
                claimed += execute(url, "select from shard where owner != ''") != []
                owned = standby.own()
                assert payloads(owned.log) == [b"a"]
                owned.close()
                standby.close()
            if proxy.cuts == cuts:
                break
    assert number > 5
    assert claimed > 0


# --------------------------------------------------------------------------------------------------------- lost answers


@pytest.fixture
def proxied(postgres: Server, url: str) -> Iterator[tuple[DatabaseProxy, OwnedDatabase]]:
    """Yield an owner whose connections can be cut."""
    with database_proxy(postgres.port) as proxy, owning(proxy.url(url)) as owned:
        yield proxy, owned


@pytest.mark.parametrize("roll", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_answer_is_lost_is_stored_once(
    proxied: tuple[DatabaseProxy, OwnedDatabase], when: str, roll: bool
) -> None:
    proxy, owned = proxied
    add(owned.log, b"a")
    for number in range(1, 6):
        proxy.cut_at_statement(number, when)  # type: ignore[arg-type]
        for letter in b"bcd":
            add(owned.log, bytes([letter]), roll=roll)
    assert payloads(owned.log) == [b"a", *[b"b", b"c", b"d"] * 5]
    assert sum(size for size, _ in owned.log.check(owned.log.extents()[0])) > 0


def test_an_append_without_an_answer_can_be_retried(
    proxied: tuple[DatabaseProxy, OwnedDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.journal.postgresql.writer.PATIENCE", 0.2)
    proxy, owned = proxied
    add(owned.log, b"a")
    batch = published(owned.log.end, [b"b"])
    proxy.cut_at_statement(1, "after")
    proxy.refuse()
    for _ in range(2):
        with pytest.raises(LogAway):
            owned.log.append(batch, batch.first, owned.log.epoch)
    proxy.accept()
    owned.log.append(batch, batch.first, owned.log.epoch)
    assert payloads(owned.log) == [b"a", b"b"]


def test_a_commit_without_an_answer_is_not_confirmed_after_a_take_over(
    postgres: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.journal.postgresql.writer.PATIENCE", 0.2)
    with database_proxy(postgres.port) as proxy, owning(proxy.url(url), lease=0.3) as zombie:
        add(zombie.log, b"a")
        add(zombie.log, b"a")  # from now on the statement is prepared and sent first
        proxy.cut_at_statement(1, "after")
        proxy.target = 1
        with pytest.raises(LogAway):
            add(zombie.log, b"b")
        time.sleep(0.4)
        with owning(url) as owned:
            proxy.target = postgres.port
            with pytest.raises(Fenced, match="Nothing was confirmed since"):
                add(zombie.log, b"b")
            assert payloads(owned.log) == [b"a", b"a", b"b"], "committed, though never confirmed"
            assert (zombie.log.end, owned.log.end) == (3, 5)


# --------------------------------------------------------------------------------------------------------- lost commits


def test_lost_commits_are_detected(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abc":
            add(owned.log, bytes([letter]))
        execute(url, "update shard set head = 2; delete from blocks where first >= 2")
        with pytest.raises(CommitsLost, match=r"positions 2 to 3 at least. It was put back to position 2") as lost:
            add(owned.log, b"d")
        assert lost.value.lost == (2, 4)
        with pytest.raises(CommitsLost):
            owned.lease.renew()


def test_lost_commits_are_detected_even_if_another_owner_has_gone_past_them(url: str) -> None:
    with owning(url) as first:
        for letter in b"abc":
            add(first.log, bytes([letter]))
        execute(
            url,
            "update shard set head = 2, lease_until = 'epoch', chain = (select checksum from blocks where first = 1);"
            " delete from blocks where first >= 2",
        )
        with owning(url) as second:
            for letter in b"xyz":
                add(second.log, bytes([letter]))
            with pytest.raises(CommitsLost, match="has lost commits"):
                add(first.log, b"d")


def test_a_standby_that_has_seen_more_does_not_take_over(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abc":
            add(owned.log, bytes([letter]))
        standby = journal_at(url).stand_by()
        assert len(list(standby.catch_up())) == 3
        owned.lease.release()
        execute(url, "update shard set head = 2; delete from blocks where first >= 2")
        for attempt in (standby.own, lambda: list(standby.catch_up())):
            with pytest.raises(CommitsLost, match="position 2 at least"):
                attempt()
        standby.close()


def test_positions_resume_higher_on_a_server_that_was_promoted(url: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
    execute(url, "update extents set timeline = timeline + 1")
    with owning(url) as owned:
        assert "the database was restarted, promoted or restored" in owned.report[0]
        resumed = owned.log.end
        assert resumed > GAP
        add(owned.log, b"b")
    with owning(url) as owned:
        assert owned.report == []
        assert payloads(owned.log) == [b"a", b"b"]
        assert [extent.first for extent in owned.log.extents()] == [1, resumed]


def test_missing_blocks_stop_the_start(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abc":
            add(owned.log, bytes([letter]), roll=letter == ord("b"))
    execute(url, "delete from blocks where first = 3")
    with pytest.raises(JournalDamaged, match=r"Lost: positions .*\. Restore a backup"), owning(url):
        pass


# ---------------------------------------------------------------------------------------------------------- standing by


def test_a_standby_returns_every_block_once(url: str) -> None:
    seen: list[Block] = []
    with owning(url) as owned:
        standby = journal_at(url).stand_by()
        for letter in b"abcdef":
            add(owned.log, bytes([letter]), roll=letter % 2 == 0)
            if letter % 3 == 0:
                seen += standby.catch_up()
        assert "process" in standby.owner
        assert standby.seconds > 0
        seen += standby.catch_up()
        assert [block.value("payload", 0) for block in seen] == [bytes([letter]) for letter in b"abcdef"]
        assert standby.position == owned.log.end
        with pytest.raises(JournalOwned):
            standby.own()
    after = standby.own()
    assert [block.first for block in after.log.read(standby.position)] == [7]
    after.close()
    standby.close()


def test_a_standby_overtaken_by_trimming_starts_from_the_checkpoint(url: str) -> None:
    with owning(url) as owned:
        standby = journal_at(url).stand_by()
        for letter in b"abcd":
            add(owned.log, bytes([letter]), roll=True)
        owned.checkpoints.write(3, b"state", {})
        owned.log.trim(3)
        with pytest.raises(Trimmed):
            list(standby.catch_up())
        found = standby.checkpoint()
        assert found is not None
        assert [block.first for block in standby.catch_up()] == [3, 4]
        standby.close()


# ------------------------------------------------------------------------------------------------------------- trimming


def test_trimmed_extents_are_dropped(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abcdef":
            add(owned.log, bytes([letter]), roll=True)
        owned.log.trim(4, keep={2})
        tables = "select relname from pg_class where relkind = 'r' and relname like 'blocks_%' and relnamespace ="
        tables += " (select oid from pg_namespace where nspname = current_schema) order by 1"
        assert [name for (name,) in execute(url, tables)] == [f"blocks_{first:016x}" for first in (2, 4, 5, 6)]
        owned.log.release(owned.log.kept()[0])
        assert [name for (name,) in execute(url, tables)] == [f"blocks_{first:016x}" for first in (4, 5, 6)]
    with owning(url) as owned:
        assert owned.log.start == 4
        assert payloads(owned.log) == [b"d", b"e", b"f"]


def test_extents_being_read_are_dropped_later(url: str) -> None:
    base, _, schema = url.partition("?schema=")
    with owning(url) as owned, psycopg.connect(base) as reading:
        for letter in b"abc":
            add(owned.log, bytes([letter]), roll=True)
        reading.execute(f"select count(*) from {schema}.blocks".encode())
        owned.log.trim(3)
        add(owned.log, b"d")
        add(owned.log, b"e", roll=True)
        left = f"select count(*) from pg_inherits where inhparent = '{schema}.blocks'::regclass"
        assert execute(url, left) == [(4,)]
        reading.rollback()
        owned.log.trim(4)
        assert execute(url, left) == [(2,)]


# ----------------------------------------------------------------------------------------------- a synchronous standby


def test_a_commit_whose_wait_for_the_standby_was_cancelled_is_not_confirmed() -> None:
    """The server only sends a warning, which the role's settings would hide, and the block is already visible."""
    with running_pair() as pair:
        pair.primary.execute("alter role penstock set client_min_messages = error")
        url = fresh_schema(pair.primary)
        with owning(url) as owned:
            assert owned.warnings == []
            add(owned.log, b"a")
            pair.standby.kill()
            adding = Thread(target=add, args=[owned.log, b"b"])
            adding.start()
            waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep'"
            wait_for(lambda: pair.primary.execute(waiting), "nothing waits for the standby")
            pair.primary.execute(f"select pg_cancel_backend(pid) from ({waiting}) w")
            wait_for(lambda: execute(url, "select from blocks where first = 2"), "the block is not there")
            adding.join(1)
            assert adding.is_alive()
            assert owned.log.end == 2
            pair.standby.start()
            adding.join()
            assert owned.log.end == 3
            assert payloads(owned.log) == [b"a", b"b"]


# ------------------------------------------------------------------------------------------------- renewing beside it


def test_the_lease_is_renewed_during_a_slow_append(url: str) -> None:
    """For example over a slow link, or while the table is locked."""
    base, _, schema = url.partition("?schema=")
    with owning(url, lease=600) as owned, psycopg.connect(base) as locker, ThreadPoolExecutor(1) as pool:
        add(owned.log, b"a")
        locker.execute(f"lock table {schema}.blocks in exclusive mode".encode())
        appending = pool.submit(add, owned.log, b"b")
        waiting = "select 1 from pg_locks where relation = %s::regclass and not granted"
        wait_for(lambda: locker.execute(waiting, (f"{schema}.blocks",)).fetchone(), "the append does not wait")
        before = owned.lease.deadline
        assert owned.lease.keep()
        assert not appending.done()
        locker.rollback()
        appending.result()
        assert owned.lease.keep()
        assert owned.lease.deadline > before
        assert payloads(owned.log) == [b"a", b"b"]


def test_a_late_renewal_does_not_renew_a_released_lease(url: str) -> None:
    with owning(url, lease=600) as first:
        owned = first
        database, epoch = first.log._connections.lease, first.log.epoch
        first.lease.release()
        assert not first.lease.keep()
        assert database.renew(epoch, 600, 1) is None, "it was sent earlier and arrives now"
        assert owned.lease.deadline < time.monotonic()
        with owning(url) as second:
            assert second.log.epoch > epoch
