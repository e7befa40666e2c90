"""One psycopg connection: opening it, the settings of its session, warnings, and what its errors mean.

A pooler may run each transaction in another session of the server, with the settings of its role and whatever other
clients have set there. We notice such *shared* sessions in two ways: another server process answers than when the
connection was opened, or a prepared append is unknown. Every transaction then begins with the settings, and is sent in
one message: its locks must not wait for a client that is stopped halfway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.journal.errors import JournalRefused
from penstock.journal.postgresql.address import Address
from penstock.journal.postgresql.database import ConnectionLost, DatabaseError, DatabaseFull, DatabaseRefused
from penstock.journal.postgresql.failures import Backoff, Meaning, meaning_of, turns_away
from penstock.journal.postgresql.interruption import Interruption
from penstock.journal.postgresql.settings import Found, SessionSettings

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

NO_TABLE, NO_COLUMN = "42P01", "42703"
_NO_SCHEMA, _NO_RIGHTS, _LOCKED = "3F000", "42501", "55P03"
#: A pooler gave us a server session that does not know our statement, or has one of that name already.
_NOT_PREPARED = {"26000", "42P05"}
#: Sets the isolation level, whatever the role's default. It keeps the read-only setting, which is up to the operator.
_BEGIN = b"begin isolation level read committed"


class SharedSession(ConnectionLost):
    """The prepared statement is unknown, so this is another session. The statement had no effect."""


class TableLocked(ConnectionLost):
    """Another session uses the table, or locked it for too long. The connection is still good."""


def load_driver() -> Any:
    """Import psycopg. Raises JournalRefused if it is not installed."""
    try:
        import psycopg  # noqa: PLC0415  # an optional dependency
    except ImportError as error:
        raise JournalRefused(
            f"a journal in PostgreSQL needs psycopg ({error}): pip install 'penstock[postgresql]'"
        ) from None
    return psycopg


class ServerSession:
    """Connects on first use, and again after the connection broke. One thread at a time may use it."""

    def __init__(self, address: Address, backoff: Backoff, interruption: Interruption) -> None:
        """Raises JournalRefused for a URL that libpq does not understand."""
        self.driver = load_driver()
        self.where = address.where
        #: Whether a pooler gives us another server session for each transaction.
        self.is_shared = False
        #: The number of connections opened so far.
        self.generation = 0
        self._parameters = self._parse(address)
        self._connection: psycopg.Connection[Any] | None = None
        self._is_read_only = False
        self._backoff = backoff
        self._interruption = interruption
        self._warnings: list[str] = []
        self.settings = SessionSettings(0)

    def _parse(self, address: Address) -> dict[str, Any]:
        try:
            parameters = self.driver.conninfo.conninfo_to_dict(address.connection)
        except self.driver.Error as error:
            raise JournalRefused(
                f"{self.where} is not the URL of a journal: {str(error).strip()} (parameters are libpq's, schema and"
                " lease)"
            ) from None
        parameters.setdefault("target_session_attrs", "primary")
        return dict(parameters)

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:  # an abandoned object must not occupy a server process
            self.close()

    def open(self) -> psycopg.Connection[Any]:
        """The connection, opened first if necessary. Raises DatabaseError."""
        if self._connection is None or self._connection.closed:
            self._interruption.check()
            self._backoff.check()
            try:
                self._connection = self.driver.connect(**self._parameters, autocommit=True, prepare_threshold=None)
            except self.driver.Error as error:
                self._connection = None
                raise self._unreachable(error) from error
            self._interruption.add(self._connection)
            self.generation += 1
            with self.explaining():
                self._prepare(self._connection)
        return self._connection

    def close(self) -> None:
        """Close the connection. The next statement opens another."""
        if self._connection is not None:
            with suppress(self.driver.Error):
                self._connection.close()
            self._connection = None

    def run(self, call: Callable[[psycopg.Connection[Any]], T], *, changes: bool) -> T:
        """Run statements. Raises DatabaseError, also if the server warns about a change."""
        connection = self.open()
        if changes and self._is_read_only:
            self.close()
            raise self.denied(f"{self.where} is read-only: set default_transaction_read_only = off for its role")
        self._warnings.clear()
        try:  # not ``explaining``: this is run for every commit
            result = call(connection)
        except self.driver.Error as error:
            raise self._explain(error) from error
        if changes and self._warnings:
            self.close()
            raise ConnectionLost(f"{self.where} warns: {'; '.join(self._warnings)}")
        return result

    def send(self, connection: psycopg.Connection[Any], text: bytes, values: Any) -> psycopg.Cursor[Any]:
        """Execute one statement, in a shared session together with the settings. Raises the driver's errors."""
        if not self.is_shared or connection.info.transaction_status != self.driver.pq.TransactionStatus.IDLE:
            return connection.execute(text, values, binary=True)
        with connection.pipeline():
            connection.execute(_BEGIN)
            settings = connection.execute(self.settings.passing)
            cursor = connection.execute(text, values, binary=True)
            connection.execute(b"commit")
        self._check_settings(settings)
        return cursor

    @contextmanager
    def with_settings(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """A transaction that begins with the settings, if the session is shared."""
        if not self.is_shared:
            yield
            return
        with connection.transaction():
            self._check_settings(connection.execute(self.settings.passing))
            yield

    def denied(self, text: str) -> ConnectionLost:
        """The error for a server that turns us away. All connections back off."""
        self._backoff.note(text)
        return ConnectionLost(text, denied=True)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise what an error of the driver means."""
        try:
            yield
        except self.driver.Error as error:
            raise self._explain(error) from error

    def _explain(self, error: Any) -> DatabaseError:
        """The meaning of an error of the driver. Closes the connection unless it is still good."""
        state, connection = error.sqlstate or "", self._connection
        broken = connection is None or connection.closed
        if state in _NOT_PREPARED and not self.is_shared:
            self.is_shared = True
            return SharedSession(f"{self.where}: sessions are shared")
        if connection is not None and not broken and self.is_shared:
            with suppress(self.driver.Error):
                connection.rollback()
        text = f"{self.where}: {error.diag.message_primary or _one_line(error)}"
        if state == _LOCKED and not broken:
            return TableLocked(text)
        meaning = Meaning.AWAY if broken or not state else meaning_of(state)
        if meaning is Meaning.FULL:
            return DatabaseFull(text)
        if meaning is Meaning.REFUSED:
            if state in (NO_TABLE, _NO_SCHEMA):
                text = f"{self.where} has no journal: {error.diag.message_primary}"
            return DatabaseRefused(text, state)
        self.close()  # changed settings of a role or a database apply to new connections only
        if meaning is Meaning.AWAY:
            return ConnectionLost(text)
        if state == _NO_RIGHTS:
            text += ". Connect as the role that owns the tables, or as a member of it"
        return self.denied(text)

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        connection.add_notice_handler(self._note_warning)
        connection.isolation_level = self.driver.IsolationLevel.READ_COMMITTED
        # By default a number's size decides its type.
        connection.adapters.register_dumper(int, self.driver.types.numeric.Int8BinaryDumper)
        self.settings = SessionSettings(connection.info.server_version)
        found = self._check_settings(connection.execute(self.settings.lasting))
        self.settings.keep_commit(found)
        self.is_shared = self.is_shared or found.process != connection.info.backend_pid
        self._is_read_only = found.read_only

    def _check_settings(self, cursor: psycopg.Cursor[Any]) -> Found:
        """Check that the session has the settings that were set."""
        row = cursor.fetchone()
        assert row is not None
        found = self.settings.found(row)
        if found.differing:
            self.close()
            differing = ", ".join(found.differing)
            raise self.denied(f"{self.where} rejects settings that the journal needs: it has {differing}")
        return found

    def _unreachable(self, error: Exception) -> DatabaseError:
        text = f"{self.where} cannot be reached: {_one_line(error)}"
        if isinstance(error, self.driver.ProgrammingError):  # a parameter in the URL
            return DatabaseRefused(text)
        return self.denied(text) if turns_away(text) else ConnectionLost(text)

    def _note_warning(self, notice: Any) -> None:
        """A warning is the only sign that a commit's wait for the standby was cut short."""
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
