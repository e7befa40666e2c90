"""Transient and final failures: every error of PostgreSQL, and rights that a role can lose."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count, pairwise
from threading import Thread

import psycopg
import pytest

from penstock.demo.postgresql import Server
from penstock.journal import open_journal
from penstock.journal.errors import JournalRefused, LogAway, LogDenied, LogFailed, LogFull
from penstock.journal.postgresql import failures, writer
from penstock.journal.postgresql.database import ConnectionLost
from penstock.journal.postgresql.failures import Backoff, Meaning, meaning_of
from penstock.journal.postgresql.schema import TABLES
from penstock.server.process.opening import open_engine
from support.batches import published
from support.owned_databases import add, execute, journal_at, owning, payloads
from support.postgres import fresh_schema

#: Every SQLSTATE that the driver knows.
STATES = sorted(
    found for each in vars(psycopg.errors).values() if isinstance(found := getattr(each, "sqlstate", None), str)
)
#: Final errors: the tables or the server do not suit a journal. All others, also future ones, count as transient.
FINAL = {"0A", "21", "22", "23", "3F", "42", "54"}
PASSING = {"42501", "42710", "42P05", "42P06", "42P07"}
#: Raises the error in the table ``fault`` at every block.
TRIGGER = """
create table fault (state text);
create function fail() returns trigger language plpgsql as $$
    declare wanted text := (select state from {schema}.fault);
    begin if wanted is not null then raise exception 'as attempts' using errcode = wanted; end if; return new; end $$;
create trigger fail before insert on blocks for each row execute function fail();
"""


@pytest.fixture
def url(postgres: Server) -> str:
    """Return the URL of a journal that does not exist yet."""
    return fresh_schema(postgres)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all waits."""
    monkeypatch.setattr(failures, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(writer, "PATIENCE", 0.0)


def test_only_permanent_errors_are_final() -> None:
    assert len(STATES) > 200
    for state in [*STATES, "ZZ123"]:
        final = state[:2] in FINAL and state not in PASSING
        assert (meaning_of(state) is Meaning.REFUSED) == final, state


def test_transient_errors_delay_a_commit_and_do_not_end_the_owner(url: str) -> None:
    schema = url.partition("?schema=")[2]
    confirmed = [b"first"]
    with owning(url) as owned:
        add(owned.log, b"first")
        execute(url, TRIGGER.format(schema=schema))
        for state in (each for each in STATES if meaning_of(each) is not Meaning.REFUSED and each[:2] > "03"):
            batch = published(owned.log.end, [state.encode()])
            execute(url, f"insert into fault values ('{state}')")
            with pytest.raises(LogFull) as held:
                owned.log.append(batch, batch.first, owned.log.epoch)
            assert isinstance(held.value, LogDenied) == (meaning_of(state) is Meaning.DENIED), state
            execute(url, "delete from fault")
            owned.log.append(batch, batch.first, owned.log.epoch)
            confirmed.append(state.encode())
        assert payloads(owned.log) == confirmed
        assert len(confirmed) > 100


@pytest.mark.parametrize("state", ["0A000", "22003", "23505", "42883", "54000"])
def test_a_final_error_ends_the_owner(url: str, state: str) -> None:
    with owning(url) as owned:
        add(owned.log, b"first")
        execute(url, TRIGGER.format(schema=url.partition("?schema=")[2]))
        execute(url, f"insert into fault values ('{state}')")
        with pytest.raises(LogFailed, match="as attempts"):
            add(owned.log, b"second")
        assert payloads(owned.log) == [b"first"]


@contextmanager
def refusing_server(answers: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Yield the URL of a server that ends every connection with the next error, an SQLSTATE and a text."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for state, text in answers:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(4096)
                    fields = b"SFATAL\0VFATAL\0C%s\0M%s\0\0" % (state.encode(), text.encode())
                    peer.sendall(b"E" + (len(fields) + 4).to_bytes(4) + fields)

        thread = Thread(target=serve)
        thread.start()
        try:
            port = server.getsockname()[1]
            yield f"postgresql://u@127.0.0.1:{port}/d?schema=j&sslmode=disable&gssencmode=disable"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


#: Refusals of PostgreSQL and PgBouncer, and the exceptions they should become.
SAID = [
    ("57P03", "the database system is starting up", LogAway),
    ("57P03", "the database system is not accepting connections", LogAway),  # hot_standby = off
    ("53300", "sorry, too many clients already", LogAway),
    ("08P01", "no more connections allowed (max_client_conn)", LogDenied),
    ("08P01", "server login has been failing, try again later (server_login_retry)", LogDenied),
    ("28P01", 'password authentication failed for user "u"', LogDenied),
    ("28000", 'role "u" is not permitted to log in', LogDenied),
    ("3D000", 'database "d" does not exist', LogDenied),
]


def test_no_refused_connection_is_final() -> None:
    answers = [(state, f"an error with {state}") for state in STATES] + [(state, text) for state, text, _ in SAID]
    with refusing_server(iter(answers)) as url:
        for _ in STATES:
            with pytest.raises(LogAway):
                journal_at(url).own()
        for _, text, kind in SAID:
            with pytest.raises(LogAway) as away:
                journal_at(url).stand_by().own()
            assert type(away.value) is kind, text


@pytest.mark.parametrize("table", TABLES)
def test_a_temporarily_missing_right_delays_a_take_over(postgres: Server, url: str, table: str) -> None:
    with owning(url) as owned:
        for letter in b"ab":
            add(owned.log, bytes([letter]), roll=True)
        owned.checkpoints.write(owned.log.end, b"", {})
    schema = url.partition("?schema=")[2]
    poor = url.replace("penstock:", f"{schema}:").replace(postgres.password, "x")
    postgres.execute(f"create role {schema} login password 'x'")
    postgres.execute(f"alter schema {schema} owner to {schema}")
    for each in TABLES:
        postgres.execute(f"alter table {schema}.{each} owner to {schema}")
    try:
        postgres.execute(f"revoke all on {schema}.{table} from {schema}")
        with pytest.raises(LogDenied, match="permission denied"):
            open_engine(journal_at(poor).own(), 1)
        postgres.execute(f"grant all on {schema}.{table} to {schema}")
        with owning(poor) as owned:
            add(owned.log, b"c")
    finally:
        postgres.execute(f"reassign owned by {schema} to penstock")
        postgres.execute(f"drop owned by {schema}")
        postgres.execute(f"drop role {schema}")


def test_an_unknown_parameter_is_final(url: str) -> None:
    with pytest.raises(JournalRefused, match="bad value for connect_timeout"):
        open_journal(f"{url}&connect_timeout=soon").own()


def test_retries_back_off_while_a_server_refuses_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    times = [0.0]
    backoff = Backoff(lambda: times[0])
    attempts = []
    while times[0] < 30:
        with suppress(ConnectionLost):
            backoff.check()
            attempts.append(times[0])
            backoff.note("no")
            backoff.note("another connection says so as well")
        times[0] += 0.125
    assert [later - before for before, later in pairwise(attempts)] == [0.25, 0.5, 1, 2, *[4] * 6]
    times[0] += 60
    backoff.note("no")
    with pytest.raises(ConnectionLost, match=r"^no$") as lost:
        backoff.check()
    assert lost.value.denied
    times[0] += 0.25
    backoff.check()


def test_the_driver_does_not_retry_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    tries = count()
    answers = (("28P01", f"try {next(tries)}") for _ in count())
    with refusing_server(answers) as url:
        journal = journal_at(url)
        for _ in range(3):
            with pytest.raises(LogDenied, match="try 0"):
                journal.own()
