"""One query in a database of its own: in memory, without access to files or networks, its settings locked.

There is nothing in it that could be changed, so it is read-only; statements that are no question are told so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

#: Threads of one query: it must leave the broker room.
THREADS = 2
#: Rows of the batches in which results come.
BATCH_ROWS = 10_000
#: Types whose values Arrow would carry as others: 2^128 - 1 as -1, digits and bits as bytes.
_NOT_IN_ARROW = re.compile(r"\b(UHUGEINT|BIGNUM|BIT)\b")
#: A folder that is never looked into.
NOWHERE = "none"
_QUESTIONS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_SETTINGS = (
    "set python_enable_replacements = false",  # else names of variables of this program would be tables
    "set autoinstall_known_extensions = false",
    "set autoload_known_extensions = false",
    "set allow_community_extensions = false",
    "set errors_as_json = true",
    "set timezone = 'UTC'",
    "set lock_configuration = true",
)


class BadQuery(Exception):
    """A query can't be answered; the text says why, and ``field`` which field of the request would be another."""

    def __init__(self, text: str, field: str = "body.query") -> None:
        super().__init__(text)
        self.field = field


@contextmanager
def database(memory_bytes: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A new one, without tables."""
    config: dict[str, Any] = {
        "enable_external_access": "false",
        "memory_limit": f"{memory_bytes // 2**20}MiB",
        "threads": str(THREADS),
        # Names of folders that messages and duckdb_settings() would show, with the user's home folder in them.
        "home_directory": NOWHERE,
        "secret_directory": NOWHERE,
        "extension_directory": NOWHERE,
        "allow_persistent_secrets": "false",
        "temp_directory": "",
        "max_temp_directory_size": "0B",
    }
    with duckdb.connect(":memory:", config=config) as connection:
        for setting in _SETTINGS:
            connection.execute(setting)
        yield connection


def run(connection: duckdb.DuckDBPyConnection, text: str, tables: Mapping[str, Any]) -> pa.RecordBatchReader:
    """The answer, batch by batch. ``tables`` are all there are. Raises BadQuery."""
    for name, rows in tables.items():
        connection.register(name, rows)
    with explained(text, tables):
        statements = connection.extract_statements(text)
        if not statements:
            raise BadQuery("there is no statement; ask as in: select queue, ready from queues")
        if len(statements) > 1:
            raise BadQuery(f"there are {len(statements)} statements; ask one at a time")
        if statements[0].type not in _QUESTIONS:
            kind = statements[0].type.name
            raise BadQuery(f"{kind} is not possible: the tables can be read only. A query begins with SELECT or WITH")
        connection.execute(text)
        columns = [(str(name), str(kind)) for name, kind, *_ in connection.description or ()]
        if any(_NOT_IN_ARROW.search(kind) for _, kind in columns):
            _run_with_texts(connection, text, columns)
        return connection.to_arrow_reader(BATCH_ROWS)


def _run_with_texts(connection: duckdb.DuckDBPyConnection, text: str, columns: list[tuple[str, str]]) -> None:
    """The query again, with those columns as text that Arrow has no type for."""
    places = ", ".join(f"c{number}" for number in range(len(columns)))
    connection.execute(f"create view answer({places}) as {text}")
    shown = (
        f"c{number}{'::varchar' if _NOT_IN_ARROW.search(kind) else ''} as {_quoted(name)}"
        for number, (name, kind) in enumerate(columns)
    )
    connection.execute(f"select {', '.join(shown)} from answer")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def explained(text: str, tables: Mapping[str, Any]) -> Iterator[None]:
    """What DuckDB finds wrong with a query, as BadQuery."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        reason = "the query needs more memory than memory_bytes allows; ask for fewer rows or columns"
        raise BadQuery(reason, "body.memory_bytes") from None
    except duckdb.InvalidInputException as error:
        if "Python exception" in str(error):  # it is a fault of ours, or of the journal, and not of the query
            raise
        raise BadQuery(_told(error, text, tables)) from None
    except duckdb.Error as error:
        raise BadQuery(_told(error, text, tables)) from None


def _told(error: duckdb.Error, text: str, tables: Mapping[str, Any]) -> str:
    """DuckDB's words with line and column, and for a table that is not there those that are."""
    facts = _facts(str(error))
    if facts is None:
        return str(error).strip()
    reason = str(facts.get("exception_message", "")).strip()
    place = str(facts.get("position", ""))
    if isinstance(error, duckdb.CatalogException) and facts.get("type") == "Table":
        reason = f"there is no table {facts.get('name')}; there are {', '.join(tables)}"
    if isinstance(error, duckdb.PermissionException):
        reason = f"{reason}: a query sees the tables {', '.join(tables)}, and nothing else"
    if isinstance(error, duckdb.ParserException) and re.search(r'(?<!")\bat\b(?!")', text, re.IGNORECASE):
        reason = f'{reason} (at is a word of SQL: the column is written "at")'
    return f"{_where(text, int(place))}: {reason}" if place.isdigit() else reason


def _facts(told: str) -> dict[str, Any] | None:
    found = re.search(r"\{.*\}", told, re.DOTALL)
    try:
        return msgspec.json.decode(found.group(), type=dict[str, Any]) if found is not None else None
    except msgspec.DecodeError:
        return None


def _where(text: str, position: int) -> str:
    """Line and column of a place, which DuckDB counts in bytes."""
    before = text.encode()[:position].decode("utf-8", "ignore")
    return f"line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"
