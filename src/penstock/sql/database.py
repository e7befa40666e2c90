"""Runs one query in its own in-memory database, without access to files or networks, and with locked settings.

The database contains no data of its own, so queries cannot change anything; other statements are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

#: Threads of one query: leave some CPU to the broker.
THREADS = 2
#: Rows per batch of a result.
BATCH_ROWS = 10_000
#: Types without an exact Arrow type: it would turn 2^128 - 1 into -1, bit strings and large integers into bytes.
_NOT_IN_ARROW = re.compile(r"\b(UHUGEINT|BIGNUM|BIT)\b")
#: A path that is never opened.
NOWHERE = "none"
_QUERIES = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_SETTINGS = (
    "set python_enable_replacements = false",  # else variables of this program would be tables
    "set autoinstall_known_extensions = false",
    "set autoload_known_extensions = false",
    "set allow_community_extensions = false",
    "set errors_as_json = true",
    "set timezone = 'UTC'",
    "set lock_configuration = true",
)


class BadQuery(Exception):
    """A query that can't be answered. ``field`` is the field of the request to change."""

    def __init__(self, text: str, field: str = "body.query") -> None:
        super().__init__(text)
        self.field = field


@contextmanager
def database(memory_bytes: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A new database without tables."""
    config: dict[str, Any] = {
        "enable_external_access": "false",
        "memory_limit": f"{memory_bytes // 2**20}MiB",
        "threads": str(THREADS),
        # Paths that error messages and duckdb_settings() would show, including the user's home directory.
        "home_directory": NOWHERE,
        "secret_directory": NOWHERE,
        "extension_directory": NOWHERE,
        "allow_persistent_secrets": "false",
        "temp_directory": "",
        "max_temp_directory_size": "0B",
    }
    with chdir("/"):  # duckdb_settings() would show the working directory
        connection = duckdb.connect(":memory:", config=config)
    with connection:
        for setting in _SETTINGS:
            connection.execute(setting)
        yield connection


def run(connection: duckdb.DuckDBPyConnection, text: str, tables: Mapping[str, Any]) -> pa.RecordBatchReader:
    """Run a query, which sees only ``tables``, and return its result in batches. Raises BadQuery."""
    for name, rows in tables.items():
        connection.register(name, rows)
    with explained(text, tables):
        statements = connection.extract_statements(text)
        if not statements:
            raise BadQuery("there is no statement; example: select queue, ready from queues")
        if len(statements) > 1:
            raise BadQuery(f"there are {len(statements)} statements; send one at a time")
        if statements[0].type not in _QUERIES:
            kind = statements[0].type.name
            raise BadQuery(f"{kind} is not possible: the tables are read-only. A query begins with SELECT or WITH")
        connection.execute(text)
        columns = [(str(name), str(kind)) for name, kind, *_ in connection.description or ()]
        if any(_NOT_IN_ARROW.search(kind) for _, kind in columns):
            _run_with_texts(connection, text, columns)
        return connection.to_arrow_reader(BATCH_ROWS)


def _run_with_texts(connection: duckdb.DuckDBPyConnection, text: str, columns: list[tuple[str, str]]) -> None:
    """Run the query again, casting columns without an exact Arrow type to text."""
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
    """Turn DuckDB's errors about a query into BadQuery."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        reason = "the query needs more memory than memory_bytes allows; ask for fewer rows or columns"
        raise BadQuery(reason, "body.memory_bytes") from None
    except duckdb.InvalidInputException as error:
        if "Python exception" in str(error):  # a fault in our code or the journal, not in the query
            raise
        raise BadQuery(_explain(error, text, tables)) from None
    except duckdb.Error as error:
        raise BadQuery(_explain(error, text, tables)) from None


def _explain(error: duckdb.Error, text: str, tables: Mapping[str, Any]) -> str:
    """DuckDB's message with line and column; for an unknown table, the known ones."""
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


def _facts(message: str) -> dict[str, Any] | None:
    match = re.search(r"\{.*\}", message, re.DOTALL)
    try:
        return msgspec.json.decode(match.group(), type=dict[str, Any]) if match is not None else None
    except msgspec.DecodeError:
        return None


def _where(text: str, position: int) -> str:
    """Line and column of a position, which DuckDB counts in bytes."""
    before = text.encode()[:position].decode("utf-8", "ignore")
    return f"line {before.count(chr(10)) + 1}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"
