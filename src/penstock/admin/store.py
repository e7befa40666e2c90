"""The state of the HTTP process: audit log, jobs, logins and saved queries, in one SQLite file in the data folder.

The broker does not need the file: if it is lost, only this state is.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Sequence
from typing import Any

FILE = "admin.sqlite"
#: Changes and attempts: see ``Audit``.
_ENTRIES = """(
    number integer primary key,
    at integer not null, who text not null, origin text not null, action text not null, target text not null,
    outcome text not null, before text not null, after text not null, detail text not null,
    token text not null default ''
);"""
_TABLES = f"""
create table if not exists audit {_ENTRIES}
create table if not exists attempts {_ENTRIES}
create table if not exists facts (name text primary key, value text not null);
create table if not exists jobs (id text primary key, number integer not null, body blob not null);
create table if not exists logins (cookie text primary key, digest text not null, until real not null);
create table if not exists queries (
    name text primary key, query text not null, about text not null, by text not null
);
"""


class StateFile:
    """The SQLite file. Used from one thread."""

    #: Eight hex digits that stay the same for the life of the file.
    identity: str

    def __init__(self, folder: str) -> None:
        """``folder`` is the data folder; if empty, the state is in memory only. A damaged file is moved aside."""
        self._path = os.path.join(folder, FILE) if folder else ":memory:"
        try:
            self._open()
        except sqlite3.DatabaseError:
            os.replace(self._path, f"{self._path}.damaged")
            self._open()

    def _open(self) -> None:
        if self._path != ":memory:":
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._database = sqlite3.connect(self._path, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = normal")
        self._database.executescript(_TABLES)
        self.write("insert or ignore into facts (name, value) values ('identity', ?)", (secrets.token_hex(4),))
        [(self.identity,)] = self.rows("select value from facts where name = 'identity'")

    def write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute and commit a statement. Returns the number of the row that was added."""
        return self._database.execute(statement, values).lastrowid or 0

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement selects."""
        return self._database.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._database.close()
