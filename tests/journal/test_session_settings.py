"""The journal keeps its promises whatever the settings of a role, database or server, also if they change meanwhile.

Directly, and through a real PgBouncer in transaction mode, which hands each transaction to another session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread

import psycopg
import pytest

from penstock.demo.postgresql import Server, wait_for
from penstock.journal.errors import JournalOwned, LogAway, LogDenied
from penstock.journal.postgresql import settings
from penstock.journal.postgresql.journal import OwnedDatabase
from penstock.journal.postgresql.settings import SessionSettings
from support.owned_databases import add, execute, journal_at, owning, payloads
from support.pgbouncer import Pooler, pgbouncer
from support.postgres import fresh_schema, running_pair
from support.roles import END, PASSWORD, Role, role_of

LONG = os.environ.get("PENSTOCK_LONG") == "1"
#: Settings that would break a promise or stop a journal from working if a session used them.
HOSTILE = {
    "client_min_messages": "error",
    "exit_on_error": "on",
    "statement_timeout": "300ms",
    "idle_session_timeout": "300ms",
    "idle_in_transaction_session_timeout": "300ms",
    "lock_timeout": "1ms",
    "default_transaction_isolation": "serializable",
    "search_path": "public",
    "row_security": "on",
    "standard_conforming_strings": "off",
    "synchronous_commit": "off",
}
#: Records each setting in every transaction that changes a table; each change takes longer than the timeouts.
WATCH = """
create table public.noted (setting text, value text);
create function public.note() returns trigger language plpgsql as $$
    begin
        insert into public.noted
            select name, pg_catalog.current_setting(name) from pg_catalog.unnest(array[{names}]) name;
        perform pg_catalog.pg_sleep(0.35);
        return null;
    end $$;
create trigger note after insert or update on penstock.{table} for each statement execute function public.note();
"""
WATCHED = ("blocks", "checkpoints", "named_values")


@pytest.fixture
def role(postgres: Server) -> Iterator[Role]:
    """Yield a role that is dropped after the test."""
    with role_of(postgres, "set_up") as found:
        yield found


@pytest.fixture(params=["directly", "pooled"])
def way(request: pytest.FixtureRequest, role: Role) -> Iterator[Role]:
    """Yield the same role, with and without a pooler."""
    if request.param == "directly":
        yield role
        return
    with pgbouncer(role.server, {role.name: PASSWORD}) as pooler:
        yield role._replace(url=pooler.url(role.url))


def work(owned: OwnedDatabase) -> None:
    """Change all tables."""
    for payload in (b"a", b"b"):
        add(owned.log, payload)
    add(owned.log, b"c" * 2**20, roll=True)
    owned.values.put("name", b"value")
    owned.checkpoints.write(owned.log.end, b"", {})
    owned.lease.renew()
    owned.log.trim(owned.log.end)
    owned.log.drop_forgotten()


def expected() -> set[tuple[str, str]]:
    found = SessionSettings(150000)
    return {(each.name, each.value) for each in found._settings} | {("synchronous_commit", "on")}


def test_every_setting_that_matters_has_a_hostile_value() -> None:
    assert {name for name, _ in expected()} == set(HOSTILE)


def set_all(role: Role, values: dict[str, str]) -> None:
    for name, value in values.items():
        role.execute(f"alter role {{role}} set {name} = '{value}'")


def watch(role: Role) -> None:
    names = ", ".join(f"'{name}'" for name in HOSTILE)
    role.execute("grant all on schema public to {role}")
    for number, table in enumerate(WATCHED):
        statements = WATCH.format(names=names, table=table)
        role.execute(statements[statements.index("create trigger") :] if number else statements)
    role.execute("grant all on public.noted to {role}")


def noted(role: Role) -> set[tuple[object, ...]]:
    return set(role.execute("select distinct setting, value from public.noted"))


def test_settings_of_the_role_affect_no_commit(way: Role) -> None:
    with owning(way.url, lease=60):
        pass
    watch(way)
    set_all(way, HOSTILE)
    way.execute(END)
    with owning(way.url, lease=60) as owned:
        work(owned)
        with pytest.raises(JournalOwned):
            journal_at(way.url).own()
        assert payloads(owned.log)[-1:] == [b"c" * 2**20]
    assert noted(way) == expected()


def test_settings_changed_meanwhile_affect_no_commit(way: Role) -> None:
    with owning(way.url, lease=60) as owned:
        add(owned.log, b"before")
        watch(way)
        set_all(way, HOSTILE)
        way.execute(END)  # without a pooler this needs a new connection; with one only the sessions change
        work(owned)
    assert noted(way) == expected()


def test_reloading_the_server_affects_no_commit(role: Role) -> None:
    with owning(role.url, lease=60) as owned:
        add(owned.log, b"before")
        watch(role)
        try:
            for name, value in HOSTILE.items():
                role.execute(f"alter system set {name} = '{value}'")
            role.execute("select pg_reload_conf()")
            wait_for(lambda: role.execute("show client_min_messages") == [("error",)], "the setting is not there")
            work(owned)
        finally:
            role.server.execute("alter system reset all")
            role.server.execute("select pg_reload_conf()")
    assert noted(role) == expected()


def test_commits_keep_the_initial_synchronous_commit(way: Role) -> None:
    way.execute("alter role {role} set synchronous_commit = remote_apply")
    with owning(way.url, lease=60) as owned:
        watch(way)
        add(owned.log, b"a")
        way.execute("alter role {role} set synchronous_commit = local")
        add(owned.log, b"b")
    assert ("synchronous_commit", "remote_apply") in noted(way)
    assert ("synchronous_commit", "local") not in noted(way)


def owns(url: str) -> bool:
    """Whether the journal can be owned. A pooler may not have detected yet that its sessions have ended."""
    with suppress(LogAway), owning(url) as owned:
        add(owned.log, b"a")
        return True
    return False


def test_a_take_over_waits_while_the_role_is_read_only(way: Role) -> None:
    with owning(way.url):
        pass
    way.execute("alter role {role} set default_transaction_read_only = on")
    way.execute(END)
    with pytest.raises(LogDenied, match="read-only"):
        journal_at(way.url).own()
    way.execute("alter role {role} reset default_transaction_read_only")
    way.execute(END)
    wait_for(lambda: owns(way.url), "the journal cannot be had")


def test_a_policy_that_hides_rows_is_an_error(way: Role) -> None:
    with owning(way.url) as owned:
        add(owned.log, b"a")
        for change in ("enable", "force"):
            way.execute(f"alter table penstock.blocks {change} row level security")
        with pytest.raises(LogAway, match="row-level security"):
            list(owned.log.read(0))


# ---------------------------------------------------------------------------------------------------------- one by one

#: Settings that identify a session rather than change it, or that make the server write files for developers.
_OTHERS = {"role", "session_authorization", "client_encoding", "debug_discard_caches", "session_preload_libraries"}
_OTHERS |= {"local_preload_libraries", "wal_consistency_checking", "transaction_isolation", "transaction_read_only"}
_OTHERS |= {"transaction_deferrable", "is_superuser", "seed", "default_transaction_read_only", "dynamic_library_path"}
#: The number of settings to try at a time.
TOGETHER = 1 if LONG else 12


def every_value(server: Server) -> list[tuple[str, str]]:
    """Return each setting that a role can have, with each of its values or with its minimum and maximum."""
    rows = server.execute(
        "select name, vartype, coalesce(enumvals, '{}'), min_val, max_val from pg_settings"
        " where context in ('user', 'superuser') order by name"
    )
    found: list[tuple[str, str]] = []
    for name, kind, values, least, most in rows:
        if name in _OTHERS or name.startswith(("log_", "lc_")):
            continue
        choices = {"bool": ["on", "off"], "enum": values, "string": []}.get(kind, [least, most])
        found += [(name, value) for value in choices]
    return found


def test_no_setting_of_a_role_keeps_a_journal_from_working(role: Role) -> None:
    """Try all settings of the server, a few at a time: sessions set those that matter; the rest have no effect."""
    left = every_value(role.server)
    assert len(left) > 200
    with owning(role.url):
        pass
    while left:
        some: dict[str, str] = {}
        for name, value in left:
            if len(some) < TOGETHER:
                some.setdefault(name, value)
        left = [each for each in left if some.get(each[0]) != each[1]]
        with ExitStack() as undoing:
            for name, value in some.items():
                with suppress(psycopg.DataError):  # the machine does not allow such a large value
                    role.execute(f"alter role {{role}} set {name} = '{value}'")
                undoing.callback(role.execute, f"alter role {{role}} reset {name}")
            with owning(role.url, lease=60) as owned:
                add(owned.log, b"a")
                add(owned.log, b"b", roll=True)
                assert payloads(owned.log)[-2:] == [b"a", b"b"], some


# ------------------------------------------------------------------------------------------------------------- poolers


def test_a_take_over_waits_for_a_full_pooler(role: Role) -> None:
    with pgbouncer(role.server, {role.name: PASSWORD}, max_client_conn=1) as pooler:
        url = pooler.url(role.url)
        with pytest.raises(LogDenied, match="no more connections allowed"):
            journal_at(url).own()
        pooler.configure(max_client_conn=50)
        with owning(url, lease=60) as owned:
            work(owned)
            pooler.stop()
            with pytest.raises(LogAway):
                add(owned.log, b"d")
            pooler.start()


@contextmanager
def pooled_pair() -> Iterator[tuple[str, Server, Server, Pooler]]:
    """Yield the URL of a journal on a primary with a synchronous standby, through a pooler."""
    with running_pair() as pair, pgbouncer(pair.primary) as pooler:
        yield pooler.url(fresh_schema(pair.primary)), pair.primary, pair.standby, pooler


def test_a_pooled_commit_whose_wait_for_the_standby_was_cancelled_is_not_confirmed() -> None:
    """The server only sends a warning, which the role's settings would hide."""
    with pooled_pair() as (url, primary, standby, _):
        primary.execute("alter role penstock set client_min_messages = error")
        with owning(url, lease=60) as owned:
            add(owned.log, b"a")
            standby.kill()
            adding = Thread(target=add, args=[owned.log, b"b"])
            adding.start()
            waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep'"
            wait_for(lambda: primary.execute(waiting), "nothing waits for the standby")
            primary.execute(f"select pg_cancel_backend(pid) from ({waiting}) w")
            adding.join(1)
            assert adding.is_alive()
            assert owned.log.end == 2
            standby.start()
            adding.join()
            assert payloads(owned.log) == [b"a", b"b"]


def test_a_commit_that_waits_for_a_standby_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "LOCK_TIMEOUT", "200ms")
    with running_pair() as pair, ExitStack() as stack:
        url = fresh_schema(pair.primary)
        owned = stack.enter_context(owning(url, lease=0.2))
        add(owned.log, b"a")
        pair.standby.kill()
        adding = Thread(target=add, args=[owned.log, b"b"])
        adding.start()
        stack.callback(adding.join)
        stack.callback(pair.standby.start)
        wait_for(
            lambda: pair.primary.execute("select from pg_stat_activity where wait_event = 'SyncRep'"),
            "nothing waits for the standby",
        )
        over = "select from shard where lease_until < clock_timestamp()"
        wait_for(lambda: execute(url, over), "the lease does not run out")
        for _ in range(2):
            with pytest.raises(LogAway, match="lock timeout"):
                journal_at(url).own()
