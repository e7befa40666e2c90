"""The database of messages that are still in their queues: where each is, since when, and when it was published.

It is a SQLite file, ``messages.db``. A batch touches only the rows of its own messages, so its cost depends on its
events, not on the backlog. The ledger of the lake is authoritative: a batch's changes are written beside its tables, as
``changes.arrow``, and decided with them. The database follows, in one transaction that names the batch. If the process
ends before that, the next one applies the changes.

A purge adds one row, with its position. Messages in flight at that moment may still be acknowledged, so purged messages
are kept for a day; then each batch removes some of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.spark.lake.disk import LakeError
from penstock.spark.pipelines.insight.minutes import QueueKey

Array = npt.NDArray[Any]

#: Microseconds for which purged messages are kept: a consumer that holds one may still acknowledge it.
PURGED_KEPT = 24 * 3600 * 1_000_000
#: The most purged messages that one batch removes.
REMOVED_AT_ONCE = 100_000
#: The most free pages (4 KiB) that one batch returns to the file system.
PAGES_AT_ONCE = 5000
#: SQLite's page cache, in KiB.
_CACHE = 65_536

_SCHEMA = """
CREATE TABLE applied (batch TEXT NOT NULL);
CREATE TABLE queues (number INTEGER PRIMARY KEY, namespace TEXT NOT NULL, queue TEXT NOT NULL);
CREATE TABLE messages (
    message INTEGER PRIMARY KEY, queue INTEGER NOT NULL, dead INTEGER NOT NULL, since INTEGER NOT NULL,
    came_at INTEGER NOT NULL, published_at INTEGER NOT NULL
);
CREATE INDEX places ON messages (queue, dead, since);
CREATE TABLE purges (queue INTEGER NOT NULL, dead INTEGER NOT NULL, position INTEGER NOT NULL, at INTEGER NOT NULL);
"""


class Places(NamedTuple):
    """The places of messages, one per row: in a queue or, if ``dead``, among its dead letters.

    ``since`` is the position of the event that put a message there, ``came_at`` the time of that event.
    """

    message: Array
    queue: Array
    dead: Array
    since: Array
    came_at: Array
    published_at: Array

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, ...]]) -> Places:
        """From tuples of the fields."""
        table = np.array(list(rows), np.int64).reshape(-1, len(cls._fields))
        return cls(*table.T)

    def where(self, rows: Array) -> Places:
        """These rows."""
        return Places(*(column[rows] for column in self))


class Purge(NamedTuple):
    """A queue, or its dead letters, were emptied of everything from before a position."""

    queue: int
    dead: int
    position: int
    at: int


class Changes(NamedTuple):
    """The changes of a batch. ``removed`` are messages; those of ``put`` are new, or among the removed."""

    queues: Mapping[int, QueueKey]
    removed: Array
    put: Places
    purges: list[Purge]
    #: The newest time of an event.
    until: int


class _ChangesHead(msgspec.Struct):
    """The metadata of a file of changes."""

    before: str
    until: int
    queues: list[tuple[int, str, str]]
    purges: list[Purge]


#: The position of the last purge, by queue and ``dead``.
Purged = dict[tuple[int, int], int]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:  # no space or no permission: the content is intact
        raise LakeError(f"{path} can't be read and written: {error}. Correct that, and run again") from None
    except sqlite3.DatabaseError as error:
        raise LakeError(
            f"{path}, the database of insight, can't be used: {error}. Restore {path.parent.parent} as a whole, or"
            " remove it and the tables of insight, and run again"
        ) from None


class MessageStore:
    """The open database. Changes count once they are committed."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[MessageStore]:
        """Open a database, and create it if it is missing. Uncommitted changes are discarded at the end."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            _explained(path),
            closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as database,
        ):
            store = cls(database)
            store._prepare()
            yield store

    def _prepare(self) -> None:
        self._database.execute(f"PRAGMA cache_size = -{_CACHE}")
        self._database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only has an effect before the first table
        self._database.execute("BEGIN IMMEDIATE")
        if not self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)

    # Reading

    @property
    def applied(self) -> str:
        """The last committed batch; empty: none."""
        row = self._database.execute("SELECT batch FROM applied").fetchone()
        return "" if row is None else str(row[0])

    def queues(self) -> dict[QueueKey, int]:
        """The numbers of queues."""
        found = self._database.execute("SELECT namespace, queue, number FROM queues")
        return {QueueKey(namespace, queue): number for namespace, queue, number in found}

    def purged(self) -> Purged:
        """The position up to which each queue was emptied, if it was."""
        found = self._database.execute("SELECT queue, dead, max(position) FROM purges GROUP BY queue, dead")
        return {(queue, dead): position for queue, dead, position in found}

    def find(self, messages: Array) -> Places:
        """The known places of these messages, in no order."""
        wanted = msgspec.json.encode(messages.tolist()).decode()
        names = ", ".join(Places._fields)
        text = f"SELECT {names} FROM json_each(?) JOIN messages ON message = value"
        return Places.from_rows(self._database.execute(text, (wanted,)))

    def oldest(self, before: int, purged: Purged) -> dict[int, tuple[int, int]]:
        """The position and time of each queue's oldest message, if it was there before a position."""
        found = {}
        text = "SELECT since, came_at FROM messages WHERE queue = ? AND dead = 0 AND since > ? ORDER BY since LIMIT 1"
        for (number,) in self._database.execute("SELECT number FROM queues").fetchall():
            row = self._database.execute(text, (number, purged.get((number, 0), -1))).fetchone()
            if row is not None and row[0] < before:
                found[number] = row[0], row[1]
        return found

    # Writing

    def apply(self, changes: Changes) -> None:
        """Apply the changes of a batch."""
        run, many = self._database.execute, self._database.executemany
        many("INSERT INTO queues VALUES (?, ?, ?)", [(number, *key) for number, key in changes.queues.items()])
        removed = msgspec.json.encode(changes.removed.tolist()).decode()
        run("DELETE FROM messages WHERE message IN (SELECT value FROM json_each(?))", (removed,))
        rows = zip(*(column.tolist() for column in changes.put), strict=True)
        many(f"INSERT INTO messages ({', '.join(Places._fields)}) VALUES (?, ?, ?, ?, ?, ?)", rows)
        many("INSERT INTO purges VALUES (?, ?, ?, ?)", changes.purges)
        self._forget(changes.until - PURGED_KEPT)

    def _forget(self, before: int) -> None:
        """Remove some of the messages that were purged long ago."""
        over = self._database.execute("SELECT rowid, queue, dead, position FROM purges WHERE at <= ?", (before,))
        left = REMOVED_AT_ONCE
        for row, *purge in over.fetchall():
            text = "SELECT message FROM messages WHERE queue = ? AND dead = ? AND since < ? LIMIT ?"
            removed = self._database.execute(f"DELETE FROM messages WHERE message IN ({text})", (*purge, left)).rowcount
            left -= removed
            if left <= 0:
                return
            self._database.execute("DELETE FROM purges WHERE rowid = ?", (row,))

    def commit(self, batch: str) -> None:
        """Commit all changes, as those of a batch."""
        self._database.execute("DELETE FROM applied")
        self._database.execute("INSERT INTO applied VALUES (?)", (batch,))
        self._database.execute("COMMIT")
        self._shrink()
        self._database.execute("BEGIN IMMEDIATE")

    def _shrink(self) -> None:
        """Return some space to the file system if half of the file is free."""
        free, pages = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
        )
        if free > pages // 2:
            # As a script, which runs to its end: a single step returns one page.
            self._database.executescript(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")


#: The queue of a removed message in a file of changes.
_NOWHERE = -1


def write_changes(file: Path, changes: Changes, before: str) -> None:
    """Write the changes of a batch; ``before`` is the previous batch."""
    queues = [(number, *key) for number, key in changes.queues.items()]
    head = msgspec.json.encode(_ChangesHead(before, changes.until, queues, changes.purges))
    nothing = np.zeros(len(changes.removed), np.int64)
    gone = Places(changes.removed, nothing + _NOWHERE, nothing, nothing, nothing, nothing)
    columns = [np.concatenate(pair) for pair in zip(gone, changes.put, strict=True)]
    batch = pa.record_batch(columns, names=list(Places._fields)).replace_schema_metadata({"head": head})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_changes(file: Path) -> tuple[Changes, str]:
    """The changes of a batch, and the previous batch."""
    with pa.OSFile(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
    head = msgspec.json.decode(table.schema.metadata[b"head"], type=_ChangesHead)
    rows = Places(*(column.to_numpy() for column in table.columns))
    removed = rows.queue == _NOWHERE
    queues = {number: QueueKey(namespace, queue) for number, namespace, queue in head.queues}
    return Changes(queues, rows.message[removed], rows.where(~removed), head.purges, head.until), head.before
