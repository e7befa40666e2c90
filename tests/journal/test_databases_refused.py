"""Databases that cannot hold a journal are refused with a reason, and nothing in them is changed."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial

import pytest

from penstock.demo.postgresql import Server, wait_for
from penstock.journal import open_journal
from penstock.journal.contract import Durability, OwnerOptions
from penstock.journal.errors import (
    JournalOwned,
    JournalRefused,
    LogDenied,
    LogError,
)
from penstock.journal.postgresql.address import parse_address
from penstock.journal.postgresql.postgres_database import PostgresDatabase
from penstock.journal.postgresql.schema import VERSION
from penstock.journal.postgresql.statements import EXTENTS
from support.batches import published
from support.databaseproxy import database_proxy
from support.owned_databases import add, execute, journal_at, owning, payloads
from support.postgres import fresh_schema, running_server


@pytest.fixture
def url(postgres: Server) -> str:
    """Return the URL of a journal that does not exist yet."""
    return fresh_schema(postgres)


# -------------------------------------------------------------------------------------------------------------- servers


def is_off(server: Server, name: str) -> bool:
    return server.execute(f"show {name}") == [("off",)]


def test_a_server_that_may_lose_commits_is_refused() -> None:
    with running_server() as server:
        url = fresh_schema(server)
        for name in ("fsync", "full_page_writes"):
            server.configure(name, "off")
            wait_for(partial(is_off, server, name), "the setting is not there")
            with pytest.raises(LogDenied, match=f"has {name} = off.*set {name} = on"):
                journal_at(url).own()
            server.configure(name, "on")
        assert server.execute("select count(*) from pg_namespace where nspname like 'test%'") == [(0,)]


def test_a_server_that_starts_to_risk_commits_gets_none() -> None:
    with (
        running_server() as server,
        database_proxy(server.port) as proxy,
        owning(proxy.url(fresh_schema(server))) as owned,
    ):
        add(owned.log, b"a")
        server.configure("fsync", "off")
        wait_for(partial(is_off, server, "fsync"), "the setting is not there")
        proxy.cut()
        batch = published(owned.log.end, [b"b"])
        for _ in range(2):
            with pytest.raises(LogDenied, match="has fsync = off"):
                owned.log.append(batch, batch.first, owned.log.epoch)
        assert payloads(owned.log) == [b"a"]
        server.configure("fsync", "on")
        wait_for(lambda: not is_off(server, "fsync"), "the setting is not there")
        owned.log.append(batch, batch.first, owned.log.epoch)
        assert payloads(owned.log) == [b"a", b"b"]


def test_a_single_machine_is_warned_about(url: str) -> None:
    with owning(url) as owned:
        assert ["one machine is one copy" in line for line in owned.warnings] == [True]


def test_a_pooler_that_switches_sessions_mixes_up_no_statements(postgres: Server) -> None:
    """With two journals behind a pooler in transaction mode, prepared statements of one must not reach the other."""
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


def test_statements_unknown_to_a_pooler_are_sent_in_full(url: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
        add(owned.log, b"a")
        sessions = [database._connection._session for database in owned.log._connections]  # type: ignore[attr-defined]
        for session in sessions:
            session.open().execute("do $$ begin execute 'deallocate all'; end $$")
        for letter in b"bcd":
            add(owned.log, bytes([letter]))
        assert payloads(owned.log) == [b"a", b"a", b"b", b"c", b"d"]
        assert sessions[0].is_shared


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://h/d?schema=", "schema='' is not a schema name"),
        ("postgresql://h/d?schema=pg_x", "not beginning with pg_"),
        (f"postgresql://h/d?schema={'x' * 64}", "1 to 63 bytes"),
        ("postgresql://h/d?lease=soon", "lease='soon' is not a lease: it can be 0.2 to 600 seconds"),
        ("postgresql://h/d?lease=0", "lease='0' is not a lease"),
        ("postgresql://h/d?leas=3", 'invalid URI query parameter: "leas".*schema and lease'),
        ("postgresql://u:p@ss@h/d", r"postgresql://u:\*\*\*@h/d is not the URL of a journal: .* as %XX"),
        ("postgresql://u:p%zz@h/d", r"postgresql://u:\*\*\*@h/d is not the URL of a journal"),
        ("postgresql://u:p%00@h/d", r"postgresql://u:\*\*\*@h/d is not the URL of a journal"),
        ("postgresql://u:1/p@h/d", r"postgresql://u:\*\*\*@h/d is not the URL of a journal: write"),
        ("postgresql:u:p@h/d", r"postgresql:u:\*\*\*@h/d is not the URL of a journal"),
        ("postgresql://u@h:0/d?password=p", r"postgresql://u@h:0/d\?password=\*\*\* is not the URL of a journal"),
        ("POSTGRESQL://u:p@h/d", r"'POSTGRESQL://u:\*\*\*@h/d' is not a journal: .* \(./POSTGRESQL://u:\*\*\*@h/d is"),
        ("postgresql://h:port/d", "'port' is not a port"),
        ("postgresql://a,b:70000/d", "'70000' is not a port"),
        ("postgresql:d", "is not the URL of a journal: write postgresql://USER@HOST:PORT/DATABASE"),
    ],
)
def test_a_wrong_url(url: str, text: str) -> None:
    with pytest.raises(JournalRefused, match=text):
        open_journal(url).own()


def test_database_errors_are_reported_without_the_statement(postgres: Server, url: str) -> None:
    with pytest.raises(JournalRefused) as refused:
        open_journal(url).tools().info()
    assert str(refused.value).endswith("makes one, and so does a broker")
    assert "has no journal: penstock journal init 'postgresql://" in str(refused.value)
    assert "bad value for connect_timeout: 'soon'" in refusal(f"{url}&connect_timeout=soon")


def test_a_missing_driver_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(JournalRefused, match=r"needs psycopg .*: pip install 'penstock\[postgresql\]'"):
        open_journal(url)


def test_passwords_are_never_shown(postgres: Server) -> None:
    url = postgres.url().replace("/postgres", "/nowhere")
    with pytest.raises(LogDenied, match=r'cannot be reached: .* database "nowhere" does not exist') as refused:
        open_journal(url).own()
    assert postgres.password not in str(refused.value)
    assert postgres.password not in open_journal(url).where


def test_interval_durability_is_refused(url: str) -> None:
    journal = open_journal(url, OwnerOptions(durability=Durability.INTERVAL))
    with pytest.raises(JournalRefused, match="commits every append: durability = interval"):
        journal.own()


def refusal(url: str, kind: type[LogError] = JournalRefused) -> str:
    with pytest.raises(kind) as refused:
        open_journal(url).own()
    return str(refused.value)


def everything(url: str) -> list[tuple[object, ...]]:
    """Return all tables and schemas of the database, to check that nothing has changed."""
    return execute(
        f"{url.partition('?')[0]}?schema=public",
        "select n.nspname, c.relname, c.relowner from pg_namespace n left join pg_class c on n.oid = c.relnamespace"
        " where n.nspname not like 'pg_%' order by 1, 2",
    )


def test_foreign_tables_are_left_alone(postgres: Server, url: str) -> None:
    schema = url.partition("?schema=")[2]
    for table in ("customers (name text)", "version (number integer)"):
        postgres.execute(f"create schema {schema}")
        postgres.execute(f"create table {schema}.{table}")
        before = everything(url)
        assert "has tables of another program" in refusal(url)
        assert "?schema=NAME" in refusal(url)
        assert everything(url) == before
        postgres.execute(f"drop schema {schema} cascade")


@pytest.mark.parametrize("number", [99, 1])
def test_another_version_of_the_tables_is_refused(url: str, number: int) -> None:
    with owning(url) as owned:
        add(owned.log, b"a")
    execute(url, f"update version set number = {number}")
    before = execute(url, "select * from shard")
    expected = f"has version {number} of the tables: this Penstock uses version {VERSION}"
    assert expected in refusal(url)
    assert execute(url, "select * from shard") == before
    with pytest.raises(JournalRefused, match=expected):  # reading refuses it too
        open_journal(url).tools().info()


def test_the_growing_extent_is_listed_without_counting_its_blocks(url: str) -> None:
    with owning(url) as owned:
        for letter in b"abc":
            add(owned.log, bytes([letter]))
        database = PostgresDatabase(parse_address(url))
        [row] = database.extents()
        blocks = database.blocks(row.first, 0, 2**20)
        expected = (blocks[-1].end, sum(len(block.data) for block in blocks), 3, blocks[-1].checksum)
        assert (row.end, row.size, row.blocks, row.chain) == expected
        plan = database._connection.rows(f"explain (format json) {EXTENTS}")
        assert "Aggregate" not in str(plan)
        database.close()


def test_a_database_without_an_encoding_is_accepted(postgres: Server) -> None:
    postgres.execute("create database raw encoding 'SQL_ASCII' template template0")
    try:
        with owning(f"{postgres.url('raw')}?schema=j") as owned:
            add(owned.log, b"a")
            with pytest.raises(JournalOwned, match=r"in use by another broker: [^b]\S* process"):
                journal_at(f"{postgres.url('raw')}?schema=j").own()
    finally:
        postgres.execute("drop database raw with (force)")


def test_a_missing_table_is_reported(url: str) -> None:
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
        assert "permission denied" in refusal(poor, LogDenied)
        assert f'create schema "{schema}" authorization USER' in refusal(poor, LogDenied)
        assert everything(url) == before
        with owning(url):
            pass
        assert refusal(poor, LogDenied).endswith(
            f"permission denied for schema {schema}. Connect as the role that owns the tables, or as a member of it"
        )
        postgres.execute(f"grant usage on schema {schema} to {role}")
        postgres.execute(f"grant select, insert, update, delete on all tables in schema {schema} to {role}")
        cleaning.callback(postgres.execute, f"drop owned by {role}")
        before = execute(url, "select * from shard")
        assert "the tables belong to the role" in refusal(poor, LogDenied)
        assert execute(url, "select * from shard") == before


def test_a_read_only_database_is_refused(postgres: Server, database: str) -> None:
    name = database.rpartition("/")[2]
    postgres.execute(f"alter database {name} set default_transaction_read_only = on")
    before = everything(database)
    with pytest.raises(LogDenied, match="read-only"):
        open_journal(database).own()
    assert everything(database) == before
