"""What ``insight`` knows of the messages that are still there: where each is, since when, and when it was published.

A SQLite file, ``state.db``, in which a batch changes the rows that it is about: what that costs depends on what has
changed, not on how many messages wait. The ledger of the lake decides what counts. A batch's changes are written beside
its tables, as ``changes.arrow``, and decided with them; the database follows, in one transaction that names the batch.
If it has not when the process ends, the next one makes up for it.

A queue that is emptied costs one row, which says up to which position. Messages that were with consumers then may still
be acknowledged, so those from before a purge are kept for a day; then they are removed, some with each batch.
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

from penstock.spark.lake.batches import LakeError
from penstock.spark.pipelines.insight.minutes import QueueKey

Array = npt.NDArray[Any]

#: A message that was with a consumer when its queue was purged can still be acknowledged. After a day nobody waits.
PURGED_KEPT = 24 * 3600 * 1_000_000
#: Messages from before a purge that one batch removes at most.
REMOVED_AT_ONCE = 100_000
#: Pages (4 KiB) of free space that one batch gives back at most.
PAGES_AT_ONCE = 5000
#: KiB that SQLite keeps of the file in memory.
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
    """Where messages are, a row each: in a queue or, ``dead``, among its dead letters.

    ``since`` is the position of the event that brought a message there, ``came_at`` its time.
    """

    message: Array
    queue: Array
    dead: Array
    since: Array
    came_at: Array
    published_at: Array

    @classmethod
    def of(cls, rows: Iterable[tuple[int, ...]]) -> Places:
        """From rows."""
        table = np.array(list(rows), np.int64).reshape(-1, len(cls._fields))
        return cls(*table.T)

    def where(self, rows: Array) -> Places:
        """Some of the rows."""
        return Places(*(column[rows] for column in self))


class Purge(NamedTuple):
    """A queue, or its dead letters, were emptied: of what was there before the position nothing is."""

    queue: int
    dead: int
    position: int
    at: int


class Changes(NamedTuple):
    """What a batch changes. ``removed`` are positions of messages; those of ``put`` are new, or among the removed."""

    queues: Mapping[int, QueueKey]
    removed: Array
    put: Places
    purges: list[Purge]
    #: The newest time of an event.
    until: int


class _ChangesHead(msgspec.Struct):
    """What a file of changes says beside its rows."""

    before: str
    until: int
    queues: list[tuple[int, str, str]]
    purges: list[Purge]


#: By queue and ``dead``: the position of the last purge.
Purged = dict[tuple[int, int], int]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:  # no space, no rights: what is in it is sound
        raise LakeError(f"{path} can't be read and written ({error}): mend that, and run again") from None
    except sqlite3.DatabaseError as error:
        raise LakeError(
            f"{path}, what insight knows of messages, can't be used ({error}): restore {path.parent.parent} as a whole,"
            " or remove it and the tables of insight, and run again"
        ) from None


class MessageStore:
    """The database, open."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[MessageStore]:
        """A database that is made if it is missing. What is not committed is as if it had not been."""
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
        self._database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect before the first table
        self._database.execute("BEGIN IMMEDIATE")
        if not self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)

    # What is known

    @property
    def applied(self) -> str:
        """The last batch that is in it; empty: none."""
        row = self._database.execute("SELECT batch FROM applied").fetchone()
        return "" if row is None else str(row[0])

    def queues(self) -> dict[QueueKey, int]:
        """The numbers of queues."""
        found = self._database.execute("SELECT namespace, queue, number FROM queues")
        return {QueueKey(namespace, queue): number for namespace, queue, number in found}

    def purged(self) -> Purged:
        """How far queues were emptied."""
        found = self._database.execute("SELECT queue, dead, max(position) FROM purges GROUP BY queue, dead")
        return {(queue, dead): position for queue, dead, position in found}

    def find(self, messages: Array) -> Places:
        """Where these are, as far as that is known. Not in order."""
        wanted = msgspec.json.encode(messages.tolist()).decode()
        names = ", ".join(Places._fields)
        text = f"SELECT {names} FROM json_each(?) JOIN messages ON message = value"
        return Places.of(self._database.execute(text, (wanted,)))

    def oldest(self, before: int, purged: Purged) -> dict[int, tuple[int, int]]:
        """Of each queue, the message that is longest in it, if it came before a position: since, and its time."""
        found = {}
        text = "SELECT since, came_at FROM messages WHERE queue = ? AND dead = 0 AND since > ? ORDER BY since LIMIT 1"
        for (number,) in self._database.execute("SELECT number FROM queues").fetchall():
            row = self._database.execute(text, (number, purged.get((number, 0), -1))).fetchone()
            if row is not None and row[0] < before:
                found[number] = row[0], row[1]
        return found

    # Changing it

    def apply(self, changes: Changes) -> None:
        """Change what a batch changes. It counts when it is committed."""
        run, many = self._database.execute, self._database.executemany
        many("INSERT INTO queues VALUES (?, ?, ?)", [(number, *key) for number, key in changes.queues.items()])
        removed = msgspec.json.encode(changes.removed.tolist()).decode()
        run("DELETE FROM messages WHERE message IN (SELECT value FROM json_each(?))", (removed,))
        rows = zip(*(column.tolist() for column in changes.put), strict=True)
        many(f"INSERT INTO messages ({', '.join(Places._fields)}) VALUES (?, ?, ?, ?, ?, ?)", rows)
        many("INSERT INTO purges VALUES (?, ?, ?, ?)", changes.purges)
        self._forget(changes.until - PURGED_KEPT)

    def _forget(self, before: int) -> None:
        """Remove some of what was purged long ago."""
        over = self._database.execute("SELECT rowid, queue, dead, position FROM purges WHERE at <= ?", (before,))
        left = REMOVED_AT_ONCE
        for row, *purge in over.fetchall():
            text = "SELECT message FROM messages WHERE queue = ? AND dead = ? AND since < ? LIMIT ?"
            removed = self._database.execute(
                f"DELETE FROM messages WHERE message IN ({text})",
                (*purge, left),
            ).rowcount
            left -= removed
            if left <= 0:
                return
            self._database.execute("DELETE FROM purges WHERE rowid = ?", (row,))

    def commit(self, batch: str) -> None:
        """All that was changed counts, as that of a batch."""
        self._database.execute("DELETE FROM applied")
        self._database.execute("INSERT INTO applied VALUES (?)", (batch,))
        self._database.execute("COMMIT")
        self._shrink()
        self._database.execute("BEGIN IMMEDIATE")

    def _shrink(self) -> None:
        """Give back some space if half of it is free: the queues were longer once."""
        free, pages = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
        )
        if free > pages // 2:
            # As a script, as only that runs it to its end: each of its steps gives back one page.
            self._database.executescript(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")


#: In place of the queue of a message that is removed.
_NOWHERE = -1


def write_changes(file: Path, changes: Changes, before: str) -> None:
    """Keep what a batch changes; ``before`` is the batch that it comes after."""
    queues = [(number, *key) for number, key in changes.queues.items()]
    head = msgspec.json.encode(_ChangesHead(before, changes.until, queues, changes.purges))
    nothing = np.zeros(len(changes.removed), np.int64)
    gone = Places(changes.removed, nothing + _NOWHERE, nothing, nothing, nothing, nothing)
    columns = [np.concatenate(pair) for pair in zip(gone, changes.put, strict=True)]
    batch = pa.record_batch(columns, names=list(Places._fields)).replace_schema_metadata({"head": head})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_changes(file: Path) -> tuple[Changes, str]:
    """What a batch changes, and the batch that it comes after."""
    with pa.OSFile(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
    head = msgspec.json.decode(table.schema.metadata[b"head"], type=_ChangesHead)
    rows = Places(*(column.to_numpy() for column in table.columns))
    removed = rows.queue == _NOWHERE
    queues = {number: QueueKey(namespace, queue) for number, namespace, queue in head.queues}
    return Changes(queues, rows.message[removed], rows.where(~removed), head.purges, head.until), head.before
