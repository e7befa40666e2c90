"""Checkpoints in the database, in parts: see ``contract.CheckpointStore``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from penstock.journal.contract import Checkpoint, Columns
from penstock.journal.errors import Fenced, LogAway, LogFailed
from penstock.journal.format.checkpoint import BadCheckpoint, decode_checkpoint, encode_checkpoint
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import Database, DatabaseError, ReadableDatabase
from penstock.journal.postgresql.questions import away
from penstock.journal.postgresql.writer import PATIENCE, HeadWriter, insist

#: How many are kept.
KEPT = 2
#: Bytes of a part: a database takes a gigabyte at most, and who sends one holds it several times.
PART = 4 * 1024 * 1024

T = TypeVar("T")


class DatabaseCheckpointReader:
    """The checkpoints, for who reads them."""

    def __init__(self, database: ReadableDatabase, identity: int, clock: Clock | None = None) -> None:
        self._asked = database
        self._identity = identity
        self._clock = clock or Clock()
        self.report: list[str] = []

    def positions(self) -> list[int]:
        """See CheckpointStore."""
        return [position for position, _ in self._ask(self._asked.checkpoints)]

    def size(self, position: int) -> int:
        """See CheckpointStore."""
        return dict(self._ask(self._asked.checkpoints)).get(position, 0)

    def newest_good(self) -> Checkpoint | None:
        """See CheckpointStore."""
        for position in reversed(self.positions()):
            data = self._ask(lambda position=position: self._asked.checkpoint(position))  # type: ignore[misc]
            try:
                if data is not None:  # it may have been replaced meanwhile
                    return _decoded(data, self._identity, position)
            except BadCheckpoint as error:
                self.report.append(f"the checkpoint at {position} is passed over: {error}")
        return None

    def _ask(self, ask: Callable[[], T]) -> T:
        try:
            return insist(ask, self._clock, PATIENCE)
        except DatabaseError as error:
            raise away(error, "a checkpoint can not be read: ") from error


class DatabaseCheckpoints(DatabaseCheckpointReader):
    """The same for the journal's owner."""

    def __init__(self, database: Database, identity: int, writer: HeadWriter, clock: Clock | None = None) -> None:
        super().__init__(database, identity, clock)
        self._database = database
        self._writer = writer

    def write(self, position: int, meta: bytes, columns: Columns, *, clean: bool = False) -> None:
        """See CheckpointStore."""
        encoded = encode_checkpoint(self._identity, position, meta, columns, clean=clean)
        try:
            self._writer.ours(
                lambda epoch: self._database.put_checkpoint(epoch, position, in_parts(encoded, PART), KEPT)
            )
        except (Fenced, LogAway, LogFailed) as error:
            raise OSError(f"the checkpoint was not written: {error}") from error


def _decoded(data: bytes, identity: int, position: int) -> Checkpoint:
    view = memoryview(data)
    return decode_checkpoint(lambda size, offset: view[offset : offset + size], len(data), identity, position)


def in_parts(data: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """The same bytes in parts of a size, but for the last one."""
    part = bytearray()
    for piece in data:
        rest = memoryview(piece)
        while len(rest) >= size - len(part):
            taken = size - len(part)
            yield bytes(part) + bytes(rest[:taken])
            part.clear()
            rest = rest[taken:]
        part += rest
    if part:
        yield bytes(part)
