"""The journal's database contract, one statement per method, over psycopg."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from typing_extensions import override

from penstock.journal.postgresql import statements
from penstock.journal.postgresql.address import Address
from penstock.journal.postgresql.connection import Connection
from penstock.journal.postgresql.database import (
    ACCEPTED,
    HELD,
    MADE_IN,
    BlockMark,
    BlockRow,
    Database,
    DatabaseRefused,
    ExtentRow,
    NewBlock,
    NewExtent,
    ReadableDatabase,
    ServerFacts,
    ShardRow,
)
from penstock.journal.postgresql.failures import Backoff
from penstock.journal.postgresql.incarnations import ENDED, accepting, incarnation_of
from penstock.journal.postgresql.interruption import Interruption
from penstock.journal.postgresql.journal_tables import JournalTables
from penstock.journal.postgresql.schema import partition
from penstock.journal.postgresql.server_session import TableLocked

#: Every block is larger than this, which bounds the number of rows in a window of bytes.
_SMALLEST_BLOCK = 256
#: The column types of a ``BlockRow``.
_BLOCK_TYPES = ("int8", "int8", "int8", "int8", "int8", "bytea")


class PostgresReader(ReadableDatabase):
    """A database and the schema in it. Any thread may use it; one statement runs at a time."""

    def __init__(
        self, address: Address, *, backoff: Backoff | None = None, interruption: Interruption | None = None
    ) -> None:
        """Nothing is connected yet. Raises JournalRefused for a URL that libpq does not understand."""
        self._connection = Connection(address, backoff=backoff, interruption=interruption)
        self._tables = JournalTables(self._connection)

    @property
    @override
    def where(self) -> str:
        return self._connection.where

    @override
    def shard(self) -> ShardRow:
        self._tables.check_version()
        found = self._connection.rows(statements.SHARD)
        if not found:
            raise DatabaseRefused(f"{self.where} has the tables of a journal, but its row in shard is missing")
        return _shard(found[0])

    @override
    def facts(self) -> ServerFacts:
        [found] = self._connection.rows(statements.FACTS)
        timeline = int(self._connection.optional_value(statements.TIMELINE) or 0)
        return ServerFacts._make((*found, timeline, self._incarnation()))

    def _incarnation(self) -> int:
        table = f"{self._connection.quoted_schema}.shard"
        text = self._connection.optional_value(statements.INCARNATION, (table,))
        return incarnation_of(text) if text else 0

    @override
    def extents(self) -> list[ExtentRow]:
        return [ExtentRow._make(row) for row in self._connection.rows(statements.EXTENTS)]

    @override
    def blocks(self, extent: int, position: int, size: int) -> list[BlockRow]:
        values = {"extent": extent, "position": position, "size": size, "limit": 2 + size // _SMALLEST_BLOCK}
        rows = self._connection.copy_out(statements.COPY_BLOCKS, values, _BLOCK_TYPES)
        return [BlockRow._make(row) for row in rows]

    @override
    def checkpoints(self) -> list[tuple[int, int]]:
        return [(position, size) for position, size in self._connection.rows(statements.CHECKPOINTS)]

    @override
    def checkpoint(self, position: int) -> bytes | None:
        parts = self._connection.rows(statements.CHECKPOINT, (position,))
        return b"".join(part for (part,) in parts) or None

    @override
    def value(self, name: str) -> bytes | None:
        found = self._connection.rows(statements.VALUE, (name,))
        return found[0][0] if found else None

    @override
    def close(self) -> None:
        self._connection.close()


class PostgresDatabase(PostgresReader, Database):
    """The same for an owner."""

    @override
    def is_empty(self) -> bool:
        return self._tables.version() is None

    @override
    def make(self) -> None:
        if self.is_empty():
            self._tables.make(self._incarnation)
        self._tables.check_version()
        self._tables.check_owner()

    # The lease

    @override
    def claim(self, owner: str, lease: float, least: int) -> ShardRow | None:
        return self._shard_after(statements.CLAIM, {"owner": owner, "lease": lease, "least": least})

    @override
    def seal(self, epoch: int, newer: int) -> bool:
        return self._connection.change(statements.SEAL, {"epoch": epoch, "newer": newer}) == 1

    @override
    def renew(self, epoch: int, lease: float, floor: int) -> ShardRow | None:
        return self._shard_after(statements.RENEW, {"epoch": epoch, "lease": lease, "floor": floor})

    def _shard_after(self, statement: str, values: dict[str, Any]) -> ShardRow | None:
        found = self._connection.rows(statement, values, changes=True)
        return _shard(found[0]) if found else None

    @override
    def release(self, epoch: int) -> bool:
        return self._connection.change(statements.RELEASE, {"epoch": epoch}) == 1

    @override
    def hold(self, owner: str, value: bytes) -> bool:
        return self._connection.change(statements.HOLD, {"owner": owner, "name": HELD, "value": value}) == 1

    @override
    def accept_loss(self, owner: str, now: int) -> ShardRow | None:
        with self._connection.transaction():
            found = self._connection.rows(statements.FREE_SHARD, {"owner": owner})
            if not found:
                return None
            self.end_incarnation(_shard(found[0]), now)
            self._connection.change(statements.END_HOLD)
        return _shard(found[0])

    def end_incarnation(self, shard: ShardRow, now: int) -> None:
        """Accept that everything after the head is lost, in a transaction that has locked the shard's row."""
        change = self._connection.change
        firsts = [row.first for row in self.extents()]
        change(statements.SET_VALUE, (ACCEPTED, accepting(self.value(ACCEPTED), self.value(HELD), shard, firsts, now)))
        change(statements.FORGET_VALUE, (HELD,))
        change(statements.END_INCARNATION, (ENDED,))
        change(statements.SET_VALUE, (MADE_IN, b"%d" % ENDED))

    # Blocks and extents

    @override
    def prepare(self, first: int) -> None:
        self._connection.run_block(statements.MAKE_PARTITION, partition(first), first=first, end=first + 1)

    @override
    def append(
        self, epoch: int, head: int, block: NewBlock, lease: float, floor: int, begins: NewExtent | None = None
    ) -> bool:
        values: dict[str, Any] = {"epoch": epoch, "head": head, "lease": lease, "floor": floor}
        values |= {"first": block.first, "end": block.end, "block_epoch": block.epoch, "checksum": block.checksum}
        values |= {"at": block.at, "size": len(block.data), "data": block.data}
        if begins is None:
            return self._connection.append(values) == 1
        values |= {"header": begins.header, "incarnation": begins.incarnation}
        before = begins.finishes
        for name in ("first", "end", "size", "blocks", "last_at", "chain"):
            values[f"f_{name}"] = 0 if before is None else getattr(before, name)
        return self._connection.change(statements.APPEND_EXTENT, values) == 1

    @override
    def mark(self, extent: int, first: int) -> BlockMark | None:
        found = self._connection.rows(statements.MARK, (extent, first))
        return BlockMark._make(found[0]) if found else None

    @override
    def trim(self, epoch: int, low: int, keep: Collection[int]) -> bool:
        return self._connection.change_as_owner(statements.TRIM, {"epoch": epoch, "low": low, "keep": list(keep)})

    @override
    def unkeep(self, epoch: int, first: int) -> bool:
        return self._connection.change_as_owner(statements.UNKEEP, {"epoch": epoch, "first": first})

    @override
    def drop(self) -> bool:
        forgotten = self._connection.rows(statements.FORGOTTEN, (f"{self._connection.quoted_schema}.blocks",))
        return sum(self._drop(name) for (name,) in forgotten) == len(forgotten)

    def _drop(self, name: str) -> bool:
        try:
            self._connection.run_block(statements.DROP_PARTITION, name)
        except TableLocked:
            return False
        return True

    # Checkpoints and values

    @override
    def put_checkpoint(self, epoch: int, position: int, parts: Iterable[bytes], keep: int) -> bool:
        values = {"epoch": epoch, "position": position, "older": keep - 1}
        if not self._connection.change_as_owner(statements.CLEAR_CHECKPOINT, values):
            return False
        for number, part in enumerate(parts):
            self._connection.change(statements.PUT_CHECKPOINT, (epoch, number, part))
        return self._connection.change_as_owner(statements.KEEP_CHECKPOINT, values)

    @override
    def put_value(self, epoch: int, name: str, value: bytes) -> bool:
        return self._connection.change(statements.PUT_VALUE, {"epoch": epoch, "name": name, "value": value}) == 1

    @override
    def move_value(self, epoch: int, name: str, to: str | None) -> bool:
        statement = statements.REMOVE_VALUE if to is None else statements.RENAME_VALUE
        return self._connection.change_as_owner(statement, {"epoch": epoch, "name": name, "to": to})


def _shard(row: tuple[Any, ...]) -> ShardRow:
    found = ShardRow._make(row)
    return found._replace(identity=found.identity % 2**64)
