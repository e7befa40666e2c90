"""What the HTTP process keeps for itself: audit log, jobs, logins and saved queries, in one SQLite file with the data.

The broker does not need it: without the file everything goes on, and only what was noted here is forgotten.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Sequence
from typing import Any

FILE = "admin.sqlite"
#: The audit log's changes, and what was asked for and changed nothing: see ``Audit``.
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
    """The file. Used from one thread."""

    #: Eight hex digits that this file, and so the broker, keeps for good.
    identity: str

    def __init__(self, folder: str) -> None:
        """``folder`` is the data folder; empty: nothing is kept after the end. A file that is damaged is put aside."""
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
        if "token" not in {name for _, name, *_ in self.rows("pragma table_info(audit)")}:  # of an earlier version
            self.write("alter table audit add column token text not null default ''")
        self.write("insert or ignore into facts (name, value) values ('identity', ?)", (secrets.token_hex(4),))
        [(self.identity,)] = self.rows("select value from facts where name = 'identity'")

    def write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Change something; it is kept on return. Returns the number of the row that was added."""
        return self._database.execute(statement, values).lastrowid or 0

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Ask for something."""
        return self._database.execute(statement, values).fetchall()

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
