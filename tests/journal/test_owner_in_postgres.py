"""The owner of a journal in PostgreSQL: taking over, fencing, and commits of which nobody knows what became of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from threading import Thread

import numpy as np
import psycopg
import pytest

from penstock.cli.up.postgresql import Server, wait_for
from penstock.journal import open_journal
from penstock.journal.contract import GAP, Durability, OwnerOptions
from penstock.journal.errors import (
    CommitsLost,
    Fenced,
    JournalDamaged,
    JournalOwned,
    JournalRefused,
    LogAway,
    LogError,
    LogFailed,
    Trimmed,
)
from penstock.journal.format.block import Block
from penstock.journal.postgresql.address import parse_address
from penstock.journal.postgresql.connection import PostgresDatabase
from penstock.journal.postgresql.journal import DatabaseJournal, OwnedDatabase
from penstock.journal.postgresql.log import DatabaseLog
from penstock.journal.postgresql.statements import EXTENTS
from penstock.schema import Kind
from support.batches import published
from support.databaseproxy import DatabaseProxy, database_proxy
from support.postgres import fresh_schema, running_pair, running_server

OPTIONS = OwnerOptions(extent_bytes=4096)
NEVER = 10**9
LONG = os.environ.get("PENSTOCK_LONG") == "1"


def journal_at(url: str, *, lease: float = 3) -> DatabaseJournal:
    journal = open_journal(f"{url}&lease={lease}", OPTIONS)
    assert isinstance(journal, DatabaseJournal)
    return journal


def add(log: DatabaseLog, *payloads: bytes, roll: bool = False) -> None:
    log.append(published(log.end, list(payloads)), log.end, log.epoch, roll=roll)


def payloads(log: DatabaseLog) -> list[bytes | int]:
    """Of the messages in the log, in order; fences have none."""
    return [block.value("payload", row) for block in log.read(0) for row in range(block.messages)]


@pytest.fixture
def url(postgres: Server) -> str:
    """Of a journal that is not there yet."""
    return fresh_schema(postgres)


@contextmanager
def owning(url: str, *, lease: float = 3) -> Iterator[OwnedDatabase]:
    owned = journal_at(url, lease=lease).own()
    try:
        owned.begin()
        yield owned
    finally:
        owned.close()


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    """A statement in the journal's schema, by somebody else."""
    base, _, schema = url.partition("?schema=")
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(f"set search_path = {schema}".encode())
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []


# ---------------------------------------------------------------------------------------------------------- taking over


def test_a_journal_has_one_owner_until_its_lease_has_run_out(url: str) -> None:
    with owning(url, lease=600) as first:
        add(first.log, b"a")
        with pytest.raises(JournalOwned, match=r"in use by another broker: .* process") as refused:
            journal_at(url).own()
        assert 0 < refused.value.seconds <= 600
        execute(url, "update shard set lease_until = lease_until - interval '600 s'")
        with owning(url) as second:
            assert second.log.epoch > first.log.epoch
            assert payloads(second.log) == [b"a"]


def test_a_lease_that_was_given_back_is_taken_at_once(url: str) -> None:
    with owning(url) as first:
        add(first.log, b"a")
        first.lease.release()
        assert first.lease.deadline < time.monotonic()
        with owning(url) as second:
            add(second.log, b"b")
            with pytest.raises(LogFailed, match="handed over"):
                add(first.log, b"x")
            assert payloads(second.log) == [b"a", b"b"]


def test_a_close_gives_the_lease_back(url: str) -> None:
    for letter in b"abc":
        with owning(url) as owned:
            add(owned.log, bytes([letter]))
    with owning(url) as owned:
        assert payloads(owned.log) == [b"a", b"b", b"c"]


def test_who_takes_over_puts_a_fence_behind_the_last_block(url: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
    with owning(url) as owned:
        a, fence = owned.log.read(0)
        assert (fence.first, fence.epoch, fence.kinds.tolist()) == (a.end, owned.log.epoch, [Kind.STARTED])
        assert owned.log.end == fence.end
        assert b"process" in bytes(fence.value("detail", 0))


def test_an_owner_that_was_replaced_adds_nothing_and_says_so(url: str) -> None:
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


def test_an_owner_that_was_replaced_changes_nothing_beside_the_log(url: str) -> None:
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


def test_an_owner_that_is_stopped_anywhere_holds_nobody_up(postgres: Server, url: str) -> None:
    """Locks in the database must not wait for a client."""

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
                with owning(f"{url}&options=-c%20lock_timeout%3D2000") as owned:
                    work(owned)
                    assert owned.log.kept() == []
                proxy.release()
                working.join()
    assert number > 8


def test_two_that_make_the_same_journal(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        tries = [pool.submit(journal_at(url).own) for _ in range(4)]
    owned = [each.result() for each in tries if each.exception() is None]
    assert [type(each.exception()) for each in tries].count(JournalOwned) == 3
    add(owned[0].log, b"a")
    owned[0].close()


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


def test_taking_over_may_be_cut_off_anywhere(postgres: Server, url: str) -> None:
    """It is done or can be done again at once, by the same broker, whose lease may run already."""
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
    """An owner whose connections can be cut."""
    with database_proxy(postgres.port) as proxy, owning(proxy.url(url)) as owned:
        yield proxy, owned


@pytest.mark.parametrize("roll", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_answer_is_lost_is_there_once(
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


def test_an_append_while_nobody_answers_may_be_tried_again(
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


def test_a_commit_that_was_replaced_while_nobody_answered_is_not_confirmed(
    postgres: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.journal.postgresql.writer.PATIENCE", 0.2)
    with database_proxy(postgres.port) as proxy, owning(proxy.url(url), lease=0.3) as zombie:
        add(zombie.log, b"a")
        add(zombie.log, b"a")  # from now on the statement is prepared, and the first that is sent
        proxy.cut_at_statement(1, "after")
        proxy.target = 1
        with pytest.raises(LogAway):
            add(zombie.log, b"b")
        time.sleep(0.4)
        with owning(url) as owned:
            proxy.target = postgres.port
            with pytest.raises(Fenced, match="Nothing was confirmed since"):
                add(zombie.log, b"b")
            assert payloads(owned.log) == [b"a", b"a", b"b"], "it was committed; whoever published it was not told"
            assert (zombie.log.end, owned.log.end) == (3, 5)


# --------------------------------------------------------------------------------------------------------- lost commits


def test_a_database_that_has_lost_commits_is_noticed(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abc":
            add(owned.log, bytes([letter]))
        execute(url, "update shard set head = 2; delete from blocks where first >= 2")
        with pytest.raises(CommitsLost, match=r"at position 2.* everything below 4 was durable.* 2 to 3") as lost:
            add(owned.log, b"d")
        assert lost.value.lost == (2, 4)
        with pytest.raises(CommitsLost):
            owned.lease.renew()


def test_lost_commits_are_noticed_also_when_another_owner_has_gone_past_them(url: str) -> None:
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
            with pytest.raises(CommitsLost, match="replaced by others"):
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
            with pytest.raises(CommitsLost, match="was at 4"):
                attempt()
        standby.close()


def test_positions_resume_higher_on_a_server_that_was_promoted(url: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
    execute(url, "update extents set timeline = timeline + 1")
    with owning(url) as owned:
        assert "another server of the database is the primary" in owned.report[0]
        assert owned.log.end == 3 + GAP
        add(owned.log, b"b")
    with owning(url) as owned:
        assert owned.report == []
        assert payloads(owned.log) == [b"a", b"b"]
        assert [extent.first for extent in owned.log.extents()] == [1, 3 + GAP]


def test_blocks_that_are_missing_stop_the_start(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abc":
            add(owned.log, bytes([letter]), roll=letter == ord("b"))
    execute(url, "delete from blocks where first = 3")
    with pytest.raises(JournalDamaged, match=r"Lost: positions .*\. Restore a backup"), owning(url):
        pass


# ---------------------------------------------------------------------------------------------------------- standing by


def test_a_standby_gives_every_block_once(url: str) -> None:
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


def test_a_standby_that_was_overtaken_by_trimming_begins_with_the_checkpoint(url: str) -> None:
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


def test_what_is_trimmed_is_dropped(url: str) -> None:
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


def test_what_somebody_reads_is_dropped_later(url: str) -> None:
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


# -------------------------------------------------------------------------------------------------------------- servers


def is_off(server: Server, name: str) -> bool:
    return server.execute(f"show {name}") == [("off",)]


def test_a_server_that_may_lose_commits_is_refused() -> None:
    with running_server() as server:
        url = fresh_schema(server)
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            server.configure(name, "off")
            wait_for(partial(is_off, server, name), "the setting is not there")
            with pytest.raises(JournalRefused, match=f"has {name} = off.*set {name} = on"):
                journal_at(url).own()
            server.configure(name, "on")
        assert server.execute("select count(*) from pg_namespace where nspname like 'test%'") == [(0,)]


def test_a_server_that_may_lose_commits_is_refused_also_when_it_takes_the_place_of_another(
    postgres: Server, database: str
) -> None:
    with database_proxy(postgres.port) as proxy, owning(f"{proxy.url(database)}&schema=j") as owned:
        add(owned.log, b"a")
        postgres.execute(f"alter database {database.rpartition('/')[2]} set synchronous_commit = off")
        proxy.cut()
        with pytest.raises(LogFailed, match="has synchronous_commit = off"):
            add(owned.log, b"b")
        with pytest.raises(LogFailed):
            add(owned.log, b"c")


def test_one_machine_is_one_copy(url: str) -> None:
    with owning(url) as owned:
        assert ["one machine is one copy" in line for line in owned.warnings] == [True]


def test_a_pooler_that_mixes_up_sessions_mixes_up_no_statements(postgres: Server) -> None:
    """Two journals behind a pooler in transaction mode: what one has prepared is not what the other means."""
    with database_proxy(postgres.port) as proxy, ExitStack() as stack:
        one = stack.enter_context(owning(proxy.url(fresh_schema(postgres)), lease=60))
        heads = (0, proxy.connections)
        other = stack.enter_context(owning(proxy.url(fresh_schema(postgres)), lease=60))
        for letter in (b"a", b"b"):
            add(one.log, b"1" + letter)
            add(other.log, b"2" + letter)
        proxy.swap(*heads)
        for letter in (b"c", b"d"):
            add(one.log, b"1" + letter)
            add(other.log, b"2" + letter)
        assert payloads(one.log) == [b"1a", b"1b", b"1c", b"1d"]
        assert payloads(other.log) == [b"2a", b"2b", b"2c", b"2d"]


def test_statements_that_a_pooler_has_not_seen_are_sent_whole(url: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
        add(owned.log, b"a")
        connections = owned.log._connections
        for database in connections:
            connection = database._connected()  # type: ignore[attr-defined]
            connection.execute("do $$ begin execute 'deallocate all'; end $$")
        for letter in b"bcd":
            add(owned.log, bytes([letter]))
        assert payloads(owned.log) == [b"a", b"a", b"b", b"c", b"d"]
        assert not connections.head._prepares  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://h/d?schema=", "schema='' is no name of a schema"),
        ("postgresql://h/d?schema=pg_x", "not beginning with pg_"),
        (f"postgresql://h/d?schema={'x' * 64}", "1 to 63 bytes"),
        ("postgresql://h/d?lease=soon", "lease='soon' is no lease: it is 0.2 to 600 seconds"),
        ("postgresql://h/d?lease=0", "lease='0' is no lease"),
        ("postgresql://h/d?leas=3", 'invalid URI query parameter: "leas".*schema and lease'),
        ("postgresql://u:p@ss@h/d", r"postgresql://u:\*\*\*@h/d is no URL of a journal: .* written as %XX"),
        ("postgresql://u:p%zz@h/d", r"postgresql://u:\*\*\*@h/d is no URL of a journal"),
        ("postgresql://u:p%00@h/d", r"postgresql://u:\*\*\*@h/d is no URL of a journal"),
        ("postgresql://u:1/p@h/d", r"postgresql://u:\*\*\*@h/d is no URL of a journal: it is"),
        ("postgresql:u:p@h/d", r"postgresql:u:\*\*\*@h/d is no URL of a journal"),
        ("postgresql://u@h:0/d?password=p", r"postgresql://u@h:0/d\?password=\*\*\* is no URL of a journal"),
        ("POSTGRESQL://u:p@h/d", r"'POSTGRESQL://u:\*\*\*@h/d' is no journal: .* \(./POSTGRESQL://u:\*\*\*@h/d is"),
        ("postgresql://h:port/d", "'port' is no port"),
        ("postgresql://a,b:70000/d", "'70000' is no port"),
        ("postgresql:d", "is no URL of a journal: it is postgresql://USER@HOST:PORT/DATABASE"),
    ],
)
def test_a_url_that_is_wrong(url: str, text: str) -> None:
    with pytest.raises(JournalRefused, match=text):
        open_journal(url).own()


def test_what_is_wrong_is_told_without_the_statement(postgres: Server, url: str) -> None:
    with pytest.raises(JournalRefused) as refused:
        open_journal(url).tools().info()
    assert str(refused.value).endswith("makes one, and so does a broker")
    assert "has no journal: penstock journal init 'postgresql://" in str(refused.value)
    assert "bad value for connect_timeout: 'soon'" in refusal(f"{url}&connect_timeout=soon")


def test_a_driver_that_is_missing_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(JournalRefused, match=r"needs psycopg .*: pip install 'penstock\[postgresql\]'"):
        open_journal(url)


def test_a_password_is_shown_to_nobody(postgres: Server) -> None:
    url = postgres.url().replace("/postgres", "/nowhere")
    with pytest.raises(JournalRefused, match=r'can not be reached: .* database "nowhere" does not exist') as refused:
        open_journal(url).own()
    assert postgres.password not in str(refused.value)
    assert postgres.password not in open_journal(url).where


def test_an_append_need_not_be_durable_elsewhere(url: str) -> None:
    journal = open_journal(url, OwnerOptions(durability=Durability.INTERVAL))
    with pytest.raises(JournalRefused, match="commits every append: durability = interval"):
        journal.own()


def refusal(url: str) -> str:
    with pytest.raises(LogError) as refused:
        open_journal(url).own()
    assert isinstance(refused.value, JournalRefused)
    return str(refused.value)


def everything(url: str) -> list[tuple[object, ...]]:
    """All tables and schemas of the database, to see that nothing has changed."""
    return execute(
        f"{url.partition('?')[0]}?schema=public",
        "select n.nspname, c.relname, c.relowner from pg_namespace n left join pg_class c on n.oid = c.relnamespace"
        " where n.nspname not like 'pg_%' order by 1, 2",
    )


def test_tables_of_somebody_else_are_left_alone(postgres: Server, url: str) -> None:
    schema = url.partition("?schema=")[2]
    for table in ("customers (name text)", "version (number integer)"):
        postgres.execute(f"create schema {schema}")
        postgres.execute(f"create table {schema}.{table}")
        before = everything(url)
        assert "has tables of somebody else" in refusal(url)
        assert "?schema=NAME" in refusal(url)
        assert everything(url) == before
        postgres.execute(f"drop schema {schema} cascade")


@pytest.mark.parametrize(("number", "text"), [(99, "use a newer Penstock"), (1, "penstock journal upgrade")])
def test_another_version_of_the_tables_is_refused(url: str, number: int, text: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
    execute(url, f"update version set number = {number}")
    before = execute(url, "select * from shard")
    assert f"has version {number} of the tables, this Penstock has version 2: {text}" in refusal(url)
    assert execute(url, "select * from shard") == before
    with pytest.raises(JournalRefused, match=text):  # who only looks at it does not guess either
        open_journal(url).tools().info()


def test_tables_of_version_1_are_upgraded(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abc":
            add(owned.log, bytes([letter]))
    rows = PostgresDatabase(parse_address(url)).extents()
    execute(url, "alter table shard drop column size, drop column blocks, drop column last_at")
    execute(url, "update version set number = 1")
    assert open_journal(url).tools().upgrade() == (1, 2)
    assert PostgresDatabase(parse_address(url)).extents() == rows
    with owning(url) as owned:
        add(owned.log, b"d")
        assert payloads(owned.log) == [b"a", b"b", b"c", b"d"]
    execute(url, "update version set number = 0")
    with pytest.raises(JournalRefused, match="has version 0 of the tables, which this Penstock does not know"):
        open_journal(url).tools().upgrade()


def test_the_extent_that_grows_is_listed_without_counting_its_blocks(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abc":
            add(owned.log, bytes([letter]))
        database = PostgresDatabase(parse_address(url))
        [row] = database.extents()
        blocks = database.blocks(row.first, 0, 2**20)
        expected = (blocks[-1].end, sum(len(block.data) for block in blocks), 3, blocks[-1].checksum)
        assert (row.end, row.size, row.blocks, row.chain) == expected
        plan = database._rows(f"explain (format json) {EXTENTS}")
        assert "Aggregate" not in str(plan)
        database.close()


def test_a_database_without_an_encoding_will_do(postgres: Server) -> None:
    postgres.execute("create database raw encoding 'SQL_ASCII' template template0")
    try:
        with owning(f"{postgres.url('raw')}?schema=j") as owned:
            add(owned.log, b"a")
            with pytest.raises(JournalOwned, match=r"in use by another broker: [^b]\S* process"):
                journal_at(f"{postgres.url('raw')}?schema=j").own()
    finally:
        postgres.execute("drop database raw with (force)")


def test_a_missing_table_is_told_of(url: str) -> None:
    with owning(url):
        pass
    execute(url, "drop table checkpoints")
    assert "misses tables of its journal: checkpoints" in refusal(url)


def test_without_rights_nothing_is_changed(postgres: Server, url: str) -> None:
    schema = url.partition("?schema=")[2]
    role = f"nobody_{schema}"
    postgres.execute(f"create role {role} login password 'x'")
    poor = url.replace(url.partition("//")[2].partition("@")[0], f"{role}:x")
    with ExitStack() as cleaning:
        cleaning.callback(postgres.execute, f"drop role {role}")
        before = everything(url)
        assert "permission denied" in refusal(poor)
        assert f'create schema "{schema}" authorization USER' in refusal(poor)
        assert everything(url) == before
        with owning(url):
            pass
        assert refusal(poor).endswith(
            f"permission denied for schema {schema}. Connect as the role that owns the tables, or as a member of it"
        )
        postgres.execute(f"grant usage on schema {schema} to {role}")
        postgres.execute(f"grant select, insert, update, delete on all tables in schema {schema} to {role}")
        cleaning.callback(postgres.execute, f"drop owned by {role}")
        before = execute(url, "select * from shard")
        assert "the tables belong to the role" in refusal(poor)
        assert execute(url, "select * from shard") == before


def test_a_database_that_is_read_only_is_refused(postgres: Server, database: str) -> None:
    name = database.rpartition("/")[2]
    postgres.execute(f"alter database {name} set default_transaction_read_only = on")
    before = everything(database)
    with pytest.raises(LogError, match="read-only") as refused:
        open_journal(database).own()
    assert isinstance(refused.value, JournalRefused)
    assert everything(database) == before


# ----------------------------------------------------------------------------------------------- a synchronous standby


def test_a_commit_whose_wait_for_the_standby_was_cut_short_is_not_confirmed() -> None:
    """The server says so by a warning alone, and everybody can see the block meanwhile."""
    with running_pair() as pair:
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
