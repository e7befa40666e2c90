"""SQL statements over one connection to the database, with the schema's name in them.

Every statement is a transaction of its own, except inside ``transaction``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, Any

from penstock.journal.postgresql import statements
from penstock.journal.postgresql.address import Address
from penstock.journal.postgresql.database import ConnectionLost
from penstock.journal.postgresql.failures import Backoff
from penstock.journal.postgresql.interruption import Interruption
from penstock.journal.postgresql.prepared import PreparedStatement
from penstock.journal.postgresql.server_session import ServerSession, SharedSession

if TYPE_CHECKING:
    import psycopg

#: A server that has no such value to report, or does not show it to us: a standby, another product, a missing right.
_NO_ANSWER = {"0A000", "42501", "42883", "55000"}


class Connection:
    """Runs statements. Any thread may use it; one statement runs at a time. Methods raise DatabaseError."""

    def __init__(
        self, address: Address, *, backoff: Backoff | None = None, interruption: Interruption | None = None
    ) -> None:
        """Nothing is connected yet. Raises JournalRefused for a URL that libpq does not understand."""
        self._session = ServerSession(address, backoff or Backoff(), interruption or Interruption())
        self.where = address.where
        self.schema = address.schema
        self.quoted_schema = '"' + address.schema.replace('"', '""') + '"'
        self._texts: dict[tuple[str, bool], bytes] = {}
        self._append = PreparedStatement(
            self._session.driver, statements.APPEND, self.quoted_schema, floats=("lease",), data=("data",)
        )
        self._lock = RLock()

    @property
    def generation(self) -> int:
        """How often the connection was opened so far."""
        return self._session.generation

    def rows(self, statement: str, values: Any = None, *, changes: bool = False) -> list[Any]:
        """The rows that a statement returns."""
        with self._lock:
            return self._execute(self._text(statement, values), values, changes=changes).fetchall()

    def change(self, statement: str, values: Any = None, **names: Any) -> int:
        """How many rows a statement has changed. ``names`` are filled into its text."""
        with self._lock:
            return self._execute(self._text(statement, values, **names), values, changes=True).rowcount

    def change_as_owner(self, statement: str, values: dict[str, Any]) -> bool:
        """Run a change that returns 1, or 0 if another epoch has begun. Returns whether it was done."""
        return bool(self.rows(statement, values, changes=True)[0][0])

    def optional_value(self, statement: str, values: Any = None) -> Any:
        """The one value that a statement returns; None if the server does not show it."""
        with self._lock:
            connection = self._session.open()
            with self._session.explaining():
                try:
                    [[value]] = connection.execute(statement.encode(), values, binary=True).fetchall()
                except self._session.driver.Error as error:
                    if error.sqlstate not in _NO_ANSWER:
                        raise
                    return None
        return value

    def append(self, values: dict[str, Any]) -> int:
        """Run ``statements.APPEND``, prepared where the session is ours. Returns how many rows it has changed."""
        with self._lock:
            if not self._session.is_shared:
                with suppress(SharedSession):
                    return self._session.run(
                        lambda connection: self._append.run(connection, values, self._session.settings.lasting),
                        changes=True,
                    )
            return self.change(statements.APPEND, values)

    def run_block(self, body: str, partition: str, **names: Any) -> None:
        """Run a block of code about a partition."""
        table = _literal(f"{self.quoted_schema}.{partition}")
        text = body.format(schema=self.quoted_schema, partition=partition, table=table, **names)
        with self._lock:
            self._execute(f"do {_literal(text)}".encode(), None, changes=True)

    def copy_out(self, statement: str, values: dict[str, Any], types: Sequence[str]) -> list[tuple[Any, ...]]:
        """The rows of a COPY: large values arrive in half the time of a SELECT."""
        with self._copying(self._text(statement, values), values, types) as copy:
            return list(copy.rows())

    def copy_in(self, statement: str, types: Sequence[str], rows: Iterable[tuple[Any, ...]], **names: Any) -> None:
        """Insert rows with a COPY."""
        with self._copying(self._text(statement, None, **names), None, types) as copy:
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements within are done, or none."""
        with self._lock, self._session.explaining():
            connection = self._session.open()
            with connection.transaction(), self._session.with_settings(connection):
                yield

    def denied(self, text: str) -> ConnectionLost:
        """The error for a server that turns us away. All connections back off."""
        return self._session.denied(text)

    def close(self) -> None:
        """Close the connection. The next statement opens another."""
        with self._lock:
            self._session.close()

    def _text(self, statement: str, values: Any, **names: Any) -> bytes:
        """The statement with the schema's name in it. The driver reads % in it only where there are values."""
        has_values = values is not None
        text = self._texts.get((statement, has_values))
        if text is None or names:
            schema = self.quoted_schema.replace("%", "%%") if has_values else self.quoted_schema
            text = statement.format(schema=schema, **names).encode()
            if not names:
                self._texts[statement, has_values] = text
        return text

    def _execute(self, text: bytes, values: Any, *, changes: bool) -> psycopg.Cursor[Any]:
        return self._session.run(lambda connection: self._session.send(connection, text, values), changes=changes)

    @contextmanager
    def _copying(self, text: bytes, values: Any, types: Sequence[str]) -> Iterator[psycopg.Copy]:
        with self._lock, self._session.explaining():
            connection = self._session.open()
            with (
                self._session.with_settings(connection),
                connection.cursor() as cursor,
                cursor.copy(text, values) as copy,
            ):
                copy.set_types(types)
                yield copy


def _literal(text: str) -> str:
    """With ``standard_conforming_strings``, which every session has."""
    return "'" + text.replace("'", "''") + "'"
