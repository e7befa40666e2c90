"""The database over psycopg: one connection, which is made anew after it broke. See ``database.Database``.

Every statement is a transaction of its own, or says where one begins and ends. What is kept in the session are its
settings, and the append, which is prepared under a name that nobody else has.

A pooler in between may hand each transaction to another server session, which has the settings of its role, and those
that others have left there. Such sessions are *shared*: the server's process is another one than the connection was
told of, or an append that was prepared is unknown. Then each transaction begins with the settings, and the append is
sent whole. All of a transaction is sent at once: its locks must not wait for a client that is stopped in between.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.journal.errors import JournalRefused
from penstock.journal.postgresql import statements
from penstock.journal.postgresql.address import Address
from penstock.journal.postgresql.database import (
    ACCEPTED,
    HELD,
    MADE_IN,
    BlockMark,
    BlockRow,
    ConnectionLost,
    DatabaseError,
    DatabaseFull,
    DatabaseRefused,
    ExtentRow,
    NewBlock,
    NewExtent,
    ServerFacts,
    ShardRow,
)
from penstock.journal.postgresql.failures import Backoff, Meaning, meaning_of, turns_away
from penstock.journal.postgresql.incarnations import ENDED, accepting, incarnation_of
from penstock.journal.postgresql.interruption import Interruption
from penstock.journal.postgresql.prepared import PreparedStatement
from penstock.journal.postgresql.schema import CREATE, FILL, PRODUCT, TABLES, VERSION, partition
from penstock.journal.postgresql.settings import Found, SessionSettings

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

#: A pooler gave us a server connection that has not seen our statement, or has it already.
_NOT_PREPARED = {"26000", "42P05"}
_NO_TABLE, _NO_SCHEMA, _NO_COLUMN, _NO_RIGHTS, _LOCKED = "42P01", "3F000", "42703", "42501", "55P03"
#: What a server answers that has no timeline to tell, or does not tell us: a standby, another product, a missing right.
_NOT_TOLD = {"0A000", "42501", "42883", "55000"}
#: A block takes more than this, so a window of so many bytes has no more rows than that.
_SMALL_BLOCK = 256
#: Of the columns of a ``BlockRow``.
_BLOCK_TYPES = ["int8", "int8", "int8", "int8", "int8", "bytea"]


def load_driver() -> Any:
    """Psycopg. Raises JournalRefused with what to do where it is missing."""
    try:
        import psycopg  # noqa: PLC0415  # it needs an extra of its own
    except ImportError as error:
        raise JournalRefused(
            f"a journal in PostgreSQL needs psycopg ({error}): pip install 'penstock[postgresql]'"
        ) from None
    return psycopg


class PostgresDatabase:
    """A database and the schema in it. Any thread may use it; one statement runs at a time."""

    def __init__(
        self, address: Address, *, backoff: Backoff | None = None, interruption: Interruption | None = None
    ) -> None:
        """Nothing is connected yet. Raises JournalRefused for a URL that libpq does not understand."""
        self._driver = load_driver()
        self.where = address.where
        self._schema = address.schema
        self._quoted = _quoted(address.schema)
        self._parameters = self._parse(address)
        self._texts: dict[tuple[str, bool], bytes] = {}
        #: Whether a pooler gives us other sessions of the server all the time.
        self._is_shared = False
        self._is_read_only = False
        self._append = PreparedStatement(
            self._driver, statements.APPEND, self._quoted, floats=("lease",), data=("data",)
        )
        self._connection: psycopg.Connection[Any] | None = None
        self._backoff = backoff or Backoff()
        self._interruption = interruption or Interruption()
        self._warnings: list[str] = []
        #: Whether the tables are those of this version, on this connection.
        self._is_known = False
        self._lock = RLock()

    def _parse(self, address: Address) -> dict[str, Any]:
        try:
            parameters = self._driver.conninfo.conninfo_to_dict(address.connection)
        except self._driver.Error as error:
            raise JournalRefused(
                f"{self.where} is no URL of a journal: {str(error).strip()} (parameters are libpq's, schema and lease)"
            ) from None
        parameters.setdefault("target_session_attrs", "primary")
        return dict(parameters)

    # What readers ask for

    def shard(self) -> ShardRow:
        """See ReadableDatabase. The first time on a connection, the version of the tables is looked at."""
        if not self._is_known:
            self._check_version()
        found = self._rows(statements.SHARD)
        if not found:
            raise DatabaseRefused(f"{self.where} has the tables of a journal, but its row in shard is missing")
        return _shard(found[0])

    def facts(self) -> ServerFacts:
        """See ReadableDatabase."""
        [found] = self._rows(statements.FACTS)
        return ServerFacts._make((*found, self._timeline(), self._incarnation()))

    def _timeline(self) -> int:
        return int(self._told(statements.TIMELINE) or 0)

    def _incarnation(self) -> int:
        text = self._told(statements.INCARNATION, (f"{self._quoted}.shard",))
        return incarnation_of(text) if text else 0

    def _told(self, question: str, values: Any = None) -> Any:
        """The one value of the answer; None where the server does not tell."""
        with self._lock:
            try:
                [[value]] = self._connected().execute(question.encode(), values, binary=True).fetchall()
            except self._driver.Error as error:
                if error.sqlstate in _NOT_TOLD:
                    return None
                raise self._sorted(error) from error
        return value

    def extents(self) -> list[ExtentRow]:
        """See ReadableDatabase."""
        return [ExtentRow._make(row) for row in self._rows(statements.EXTENTS)]

    def blocks(self, extent: int, position: int, size: int) -> list[BlockRow]:
        """See ReadableDatabase."""
        values = {"extent": extent, "position": position, "size": size, "limit": 2 + size // _SMALL_BLOCK}
        return [BlockRow._make(row) for row in self._copied(statements.COPY_BLOCKS, values, _BLOCK_TYPES)]

    def checkpoints(self) -> list[tuple[int, int]]:
        """See ReadableDatabase."""
        return [(position, size) for position, size in self._rows(statements.CHECKPOINTS)]

    def checkpoint(self, position: int) -> bytes | None:
        """See ReadableDatabase."""
        return b"".join(part for (part,) in self._rows(statements.CHECKPOINT, (position,))) or None

    def value(self, name: str) -> bytes | None:
        """See ReadableDatabase."""
        found = self._rows(statements.VALUE, (name,))
        return found[0][0] if found else None

    def close(self) -> None:
        """See ReadableDatabase."""
        with self._lock:
            self._let_go()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:  # who forgets it must not keep the server's process
            self._let_go()

    # What the owner asks for

    def claim(self, owner: str, lease: float, least: int) -> ShardRow | None:
        """See Database."""
        return self._one(statements.CLAIM, {"owner": owner, "lease": lease, "least": least})

    def seal(self, epoch: int, newer: int) -> bool:
        """See Database."""
        return self._change(statements.SEAL, {"epoch": epoch, "newer": newer}) == 1

    def renew(self, epoch: int, lease: float, floor: int) -> ShardRow | None:
        """See Database."""
        return self._one(statements.RENEW, {"epoch": epoch, "lease": lease, "floor": floor})

    def release(self, epoch: int) -> bool:
        """See Database."""
        return self._change(statements.RELEASE, {"epoch": epoch}) == 1

    def hold(self, owner: str, value: bytes) -> bool:
        """See Database."""
        return self._change(statements.HOLD, {"owner": owner, "name": HELD, "value": value}) == 1

    def accept_loss(self, owner: str, now: int) -> ShardRow | None:
        """See Database. All or nothing."""
        with self._transaction():
            found = self._rows(statements.FREE_SHARD, {"owner": owner})
            if not found:
                return None
            self.end_incarnation(_shard(found[0]), now)
            self._change(statements.END_HOLD)
        return _shard(found[0])

    def end_incarnation(self, shard: ShardRow, now: int) -> None:
        """What was behind the head is accepted as lost. The row is locked by the transaction around it."""
        before, firsts = (self.value(ACCEPTED), self.value(HELD)), [row.first for row in self.extents()]
        self._change(statements.SET_VALUE, (ACCEPTED, accepting(*before, shard, firsts, now)))
        self._change(statements.FORGET_VALUE, (HELD,))
        self._change(statements.END_INCARNATION, (ENDED,))
        self._change(statements.SET_VALUE, (MADE_IN, b"%d" % ENDED))

    def append(
        self, epoch: int, head: int, block: NewBlock, lease: float, floor: int, begins: NewExtent | None = None
    ) -> bool:
        """See Database."""
        values: dict[str, Any] = {"epoch": epoch, "head": head, "lease": lease, "floor": floor}
        values |= {"first": block.first, "end": block.end, "block_epoch": block.epoch, "checksum": block.checksum}
        values |= {"at": block.at, "size": len(block.data), "data": block.data}
        if begins is None:
            return self._appended(values) == 1
        values |= {"header": begins.header, "incarnation": begins.incarnation}
        before = begins.finishes
        for name in ("first", "end", "size", "blocks", "last_at", "chain"):
            values[f"f_{name}"] = 0 if before is None else getattr(before, name)
        return self._change(statements.APPEND_EXTENT, values) == 1

    def mark(self, extent: int, first: int) -> BlockMark | None:
        """See Database."""
        found = self._rows(statements.MARK, (extent, first))
        return BlockMark._make(found[0]) if found else None

    def trim(self, epoch: int, low: int, keep: Collection[int]) -> bool:
        """See Database."""
        return self._count(statements.TRIM, {"epoch": epoch, "low": low, "keep": list(keep)})

    def unkeep(self, epoch: int, first: int) -> bool:
        """See Database."""
        return self._count(statements.UNKEEP, {"epoch": epoch, "first": first})

    def put_checkpoint(self, epoch: int, position: int, parts: Iterable[bytes], keep: int) -> bool:
        """See Database. It is one when its last part is there."""
        values = {"epoch": epoch, "position": position, "older": keep - 1}
        if not self._count(statements.CLEAR_CHECKPOINT, values):
            return False
        for number, part in enumerate(parts):
            self._change(statements.PUT_CHECKPOINT, (epoch, number, part))
        return self._count(statements.KEEP_CHECKPOINT, values)

    def put_value(self, epoch: int, name: str, value: bytes) -> bool:
        """See Database."""
        return self._change(statements.PUT_VALUE, {"epoch": epoch, "name": name, "value": value}) == 1

    def move_value(self, epoch: int, name: str, to: str | None) -> bool:
        """See Database."""
        statement = statements.REMOVE_VALUE if to is None else statements.RENAME_VALUE
        return self._count(statement, {"epoch": epoch, "name": name, "to": to})

    # Tables

    def prepare(self, first: int) -> None:
        """See Database."""
        self._do(statements.MAKE_PARTITION, partition(first), first=first, end=first + 1)

    def drop(self) -> bool:
        """See Database."""
        forgotten = self._rows(statements.FORGOTTEN, (f"{self._quoted}.blocks",))
        return sum(self._drop(name) for (name,) in forgotten) == len(forgotten)

    def _drop(self, name: str) -> bool:
        try:
            self._do(statements.DROP_PARTITION, name)
        except _Locked:
            return False
        return True

    def is_empty(self) -> bool:
        """See Database."""
        return self.version() is None

    def make(self) -> None:
        """See Database."""
        if self.version() is None:
            self._make_new()
        self._check_version()
        self._check_rights()

    def _check_version(self) -> None:
        found = self.version()
        if found is None:
            raise DatabaseRefused(
                f"{self.where} has no journal: penstock journal init '{self.where}' makes one, and so does a broker"
            )
        if found != VERSION:
            raise DatabaseRefused(
                f"{self.where} has version {found} of the tables: this Penstock uses version {VERSION}. Use the"
                " Penstock that made them, or an empty schema (?schema=NAME)"
            )
        self._is_known = True

    def version(self) -> int | None:
        """The version of the tables; None where there are none. Raises DatabaseRefused where others' are."""
        there = {name for (name,) in self._rows(_TABLES, (self._schema,))}
        if not there:
            return None
        try:
            found = self._rows("select number from {schema}.version where product = %s", (PRODUCT,))
        except DatabaseRefused as error:
            if error.state not in (_NO_TABLE, _NO_COLUMN):
                raise
            found = []
        if len(found) != 1:
            raise DatabaseRefused(
                f"{self.where} has tables of somebody else in schema {self._schema} ({', '.join(sorted(there)[:3])}):"
                " name an empty schema in the URL, with ?schema=NAME"
            )
        missing = [name for name in TABLES if name not in there]
        if missing:
            raise DatabaseRefused(f"{self.where} misses tables of its journal: {', '.join(missing)}. Restore a backup")
        return int(found[0][0])

    def _make_new(self) -> None:
        identity = int.from_bytes(os.urandom(8), "little", signed=True)
        try:
            with self._transaction():
                self._rows("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"penstock {self._schema}",))
                if self.version() is not None:
                    return  # somebody else was quicker
                if not self._rows("select from pg_namespace where nspname = %s", (self._schema,)):
                    self._change("create schema {schema}")
                for statement in CREATE.split(";\n"):
                    if statement.strip():
                        self._change(statement)
                self._change(FILL[0], (PRODUCT, VERSION))
                self._change(FILL[1], (identity, time.time_ns() // 1000))
                self._change(statements.SET_VALUE, (MADE_IN, b"%d" % self._incarnation()))
        except ConnectionLost as error:
            if not error.denied:
                raise
            reason = str(error).partition(". ")[0]
            raise self._denied(
                f"{reason}. Its user may not make the tables: create schema {self._quoted} authorization USER;"
            ) from None

    def _check_rights(self) -> None:
        """Partitions are made and dropped, which only the owner of the table may."""
        [(owner, may)] = self._rows(_OWNER, (f"{self._quoted}.blocks",))
        if not may:
            raise self._denied(
                f"{self.where}: the tables belong to the role {owner}: connect as {owner}, or as a member of it"
            )

    # How it is done

    def _one(self, statement: str, values: dict[str, Any]) -> ShardRow | None:
        found = self._rows(statement, values, changes=True)
        return _shard(found[0]) if found else None

    def _count(self, statement: str, values: dict[str, Any]) -> bool:
        return bool(self._rows(statement, values, changes=True)[0][0])

    def _rows(self, statement: str, values: Any = None, *, changes: bool = False) -> list[Any]:
        with self._lock:
            return self._execute(self._text(statement, values), values, changes=changes).fetchall()

    def _copied(self, statement: str, values: dict[str, Any], types: list[str]) -> list[tuple[Any, ...]]:
        """The rows of a COPY: large values come in half the time that a SELECT takes."""
        with self._lock:
            connection = self._connected()
            try:
                with (
                    self._with_settings(connection),
                    connection.cursor() as cursor,
                    cursor.copy(self._text(statement, values), values) as copy,
                ):
                    copy.set_types(types)
                    return list(copy.rows())
            except self._driver.Error as error:
                raise self._sorted(error) from error

    def _change(self, statement: str, values: Any = None, **names: Any) -> int:
        with self._lock:
            return self._execute(self._text(statement, values, **names), values, changes=True).rowcount

    def _do(self, body: str, partition: str, **names: Any) -> None:
        """Run a block of code, about a partition."""
        table = _literal(f"{self._quoted}.{partition}")
        text = body.format(schema=self._quoted, partition=partition, table=table, **names)
        with self._lock:
            self._execute(f"do {_literal(text)}".encode(), None, changes=True)

    def _text(self, statement: str, values: Any, **names: Any) -> bytes:
        """The statement with the schema's name in it. The driver reads % in it only where there are values."""
        is_filled = values is not None
        found = self._texts.get((statement, is_filled))
        if found is None or names:
            schema = self._quoted.replace("%", "%%") if is_filled else self._quoted
            found = statement.format(schema=schema, **names).encode()
            if not names:
                self._texts[statement, is_filled] = found
        return found

    def _execute(self, text: bytes, values: Any, *, changes: bool) -> psycopg.Cursor[Any]:
        return self._run(lambda connection: self._send(connection, text, values), changes=changes)

    def _send(self, connection: psycopg.Connection[Any], text: bytes, values: Any) -> psycopg.Cursor[Any]:
        if not self._is_shared or connection.info.transaction_status != self._driver.pq.TransactionStatus.IDLE:
            return connection.execute(text, values, binary=True)
        with connection.pipeline():
            connection.execute(_BEGIN)
            settings = connection.execute(self._settings.passing)
            cursor = connection.execute(text, values, binary=True)
            connection.execute(b"commit")
        self._check_settings(settings)
        return cursor

    def _appended(self, values: dict[str, Any]) -> int:
        with self._lock:
            if not self._is_shared:
                with suppress(_Shared):
                    return self._run(
                        lambda connection: self._append.run(connection, values, self._settings.lasting), changes=True
                    )
            return self._change(statements.APPEND, values)

    def _run(self, call: Callable[[psycopg.Connection[Any]], T], *, changes: bool) -> T:
        connection = self._connected()
        if changes and self._is_read_only:
            self._let_go()
            raise self._denied(f"{self.where} is read-only: set default_transaction_read_only = off for its role")
        self._warnings.clear()
        try:
            done = call(connection)
        except self._driver.Error as error:
            raise self._sorted(error) from error
        if changes and self._warnings:
            self._let_go()
            raise ConnectionLost(f"{self.where} warns: {'; '.join(self._warnings)}")
        return done

    @contextmanager
    def _with_settings(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """A transaction, where the session has not got the settings."""
        if not self._is_shared:
            yield
            return
        with connection.transaction():
            self._check_settings(connection.execute(self._settings.passing))
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                connection = self._connected()
                with connection.transaction(), self._with_settings(connection):
                    yield
            except self._driver.Error as error:
                raise self._sorted(error) from error

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._interruption.check()
            self._backoff.check()
            try:
                self._connection = self._driver.connect(**self._parameters, autocommit=True, prepare_threshold=None)
            except self._driver.Error as error:
                self._connection = None
                raise self._unreached(error) from error
            self._interruption.add(self._connection)
            self._is_known = False
            try:
                self._prepare_session(self._connection)
            except self._driver.Error as error:
                raise self._sorted(error) from error
        return self._connection

    def _prepare_session(self, connection: psycopg.Connection[Any]) -> None:
        connection.add_notice_handler(self._note)
        connection.isolation_level = self._driver.IsolationLevel.READ_COMMITTED
        # Else a number's size decides its type.
        connection.adapters.register_dumper(int, self._driver.types.numeric.Int8BinaryDumper)
        self._settings = SessionSettings(connection.info.server_version)
        found = self._check_settings(connection.execute(self._settings.lasting))
        self._settings.keep_commit(found)
        self._is_shared = self._is_shared or found.process != connection.info.backend_pid
        self._is_read_only = found.read_only

    def _check_settings(self, cursor: psycopg.Cursor[Any]) -> Found:
        """See that they are as they were set."""
        row = cursor.fetchone()
        assert row is not None
        found = self._settings.found(row)
        if found.differing:
            self._let_go()
            differing = ", ".join(found.differing)
            raise self._denied(f"{self.where} does not take settings that the journal needs: it has {differing}")
        return found

    def _unreached(self, error: Exception) -> DatabaseError:
        text = f"{self.where} can not be reached: {_line(error)}"
        if isinstance(error, self._driver.ProgrammingError):  # of a parameter in the URL
            return DatabaseRefused(text)
        return self._denied(text) if turns_away(text) else ConnectionLost(text)

    def _denied(self, text: str) -> ConnectionLost:
        self._backoff.note(text)
        return ConnectionLost(text, denied=True)

    def _note(self, notice: Any) -> None:
        """A commit whose wait for the standby was cut short is told of by a warning, and by nothing else."""
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary)

    def _sorted(self, error: Any) -> DatabaseError:
        """What an error of the driver means to us."""
        state, connection = error.sqlstate or "", self._connection
        broken = connection is None or connection.closed
        if state in _NOT_PREPARED and not self._is_shared:
            self._is_shared = True
            return _Shared(f"{self.where}: sessions are shared")
        if connection is not None and not broken and self._is_shared:
            with suppress(self._driver.Error):
                connection.rollback()
        text = f"{self.where}: {error.diag.message_primary or _line(error)}"
        if state == _LOCKED and not broken:
            return _Locked(text)
        meaning = Meaning.AWAY if broken or not state else meaning_of(state)
        if meaning is Meaning.FULL:
            return DatabaseFull(text)
        if meaning is Meaning.REFUSED:
            if state in (_NO_TABLE, _NO_SCHEMA):
                text = f"{self.where} has no journal: {error.diag.message_primary}"
            return DatabaseRefused(text, state)
        self._let_go()  # what was changed for the role or the database holds for new connections alone
        if meaning is Meaning.AWAY:
            return ConnectionLost(text)
        if state == _NO_RIGHTS:
            text += ". Connect as the role that owns the tables, or as a member of it"
        return self._denied(text)

    def _let_go(self) -> None:
        if self._connection is not None:
            with suppress(self._driver.Error):
                self._connection.close()
            self._connection = None


#: Whatever the defaults of the session's role are; but a read-only one is somebody's decision.
_BEGIN = b"begin isolation level read committed"


class _Shared(ConnectionLost):
    """What was prepared is unknown: this is another session. Nothing was done."""


class _Locked(ConnectionLost):
    """Somebody uses the table, or locks it for longer than we wait. The connection is as good as before."""


_TABLES = """select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')"""
_OWNER = "select pg_get_userbyid(relowner), pg_has_role(relowner, 'usage') from pg_class where oid = to_regclass(%s)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """With ``standard_conforming_strings``, which every session has."""
    return "'" + text.replace("'", "''") + "'"


def _shard(row: tuple[Any, ...]) -> ShardRow:
    found = ShardRow._make(row)
    return found._replace(identity=found.identity % 2**64)


def _line(error: Exception) -> str:
    """What the driver says, in one line."""
    return " ".join(str(error).split())
