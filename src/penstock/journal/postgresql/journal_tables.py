"""Whether the tables of a journal are there, of this version and ours; and making them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from penstock.journal.postgresql import statements
from penstock.journal.postgresql.connection import Connection
from penstock.journal.postgresql.database import MADE_IN, ConnectionLost, DatabaseRefused
from penstock.journal.postgresql.schema import CREATE, PRODUCT, TABLES, VERSION
from penstock.journal.postgresql.server_session import NO_COLUMN, NO_TABLE

_TABLES_IN_SCHEMA = """select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')"""
_LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 0))"
_OWNER = "select pg_get_userbyid(relowner), pg_has_role(relowner, 'usage') from pg_class where oid = to_regclass(%s)"


class JournalTables:
    """The tables in the schema of a connection. Methods raise DatabaseError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._where = connection.where
        #: The connection's generation when the version was checked.
        self._checked = -1

    def version(self) -> int | None:
        """The version of the tables; None if the schema is empty. Raises DatabaseRefused for other tables."""
        found = {name for (name,) in self._connection.rows(_TABLES_IN_SCHEMA, (self._connection.schema,))}
        if not found:
            return None
        try:
            numbers = self._connection.rows("select number from {schema}.version where product = %s", (PRODUCT,))
        except DatabaseRefused as error:
            if error.state not in (NO_TABLE, NO_COLUMN):
                raise
            numbers = []
        if len(numbers) != 1:
            raise DatabaseRefused(
                f"{self._where} has tables of another program in schema {self._connection.schema}"
                f" ({', '.join(sorted(found)[:3])}): name an empty schema in the URL, with ?schema=NAME"
            )
        missing = [name for name in TABLES if name not in found]
        if missing:
            raise DatabaseRefused(f"{self._where} misses tables of its journal: {', '.join(missing)}. Restore a backup")
        return int(numbers[0][0])

    def check_version(self) -> None:
        """Raise DatabaseRefused unless there are tables of this version. Each connection is checked once."""
        if self._checked == self._connection.generation:
            return
        found = self.version()
        if found is None:
            raise DatabaseRefused(
                f"{self._where} has no journal: penstock journal init '{self._where}' makes one, and so does a broker"
            )
        if found != VERSION:
            raise DatabaseRefused(
                f"{self._where} has version {found} of the tables: this Penstock uses version {VERSION}. Use the"
                " Penstock that made them, or an empty schema (?schema=NAME)"
            )
        self._checked = self._connection.generation

    def make(self, incarnation: Callable[[], int]) -> None:
        """Make the tables if the schema is empty. ``incarnation`` is read once they are there."""
        try:
            with self._connection.transaction():
                self._connection.rows(_LOCK, (f"penstock {self._connection.schema}",))
                if self.version() is None:  # otherwise another broker was faster
                    self._create(incarnation)
        except ConnectionLost as error:
            if not error.denied:
                raise
            reason = str(error).partition(". ")[0]
            raise self._connection.denied(
                f"{reason}. Its user may not make the tables: create schema {self._connection.quoted_schema}"
                " authorization USER;"
            ) from None

    def _create(self, incarnation: Callable[[], int]) -> None:
        change = self._connection.change
        if not self._connection.rows("select from pg_namespace where nspname = %s", (self._connection.schema,)):
            change("create schema {schema}")
        for statement in CREATE.split(";\n"):
            if statement.strip():
                change(statement)
        identity = int.from_bytes(os.urandom(8), "little", signed=True)
        change("insert into {schema}.version values (%s, %s)", (PRODUCT, VERSION))
        change("insert into {schema}.shard (identity, created) values (%s, %s)", (identity, time.time_ns() // 1000))
        change(statements.SET_VALUE, (MADE_IN, b"%d" % incarnation()))

    def check_owner(self) -> None:
        """Raise ConnectionLost unless the role owns the tables: only owners may create and drop partitions."""
        [(owner, may)] = self._connection.rows(_OWNER, (f"{self._connection.quoted_schema}.blocks",))
        if not may:
            raise self._connection.denied(
                f"{self._where}: the tables belong to the role {owner}: connect as {owner}, or as a member of it"
            )
