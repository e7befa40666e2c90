"""Checkpoints in the database, in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from typing_extensions import override

from penstock.journal.contract import Checkpoint, CheckpointStore, Columns
from penstock.journal.errors import Fenced, LogAway, LogFailed
from penstock.journal.format.checkpoint import BadCheckpoint, decode_checkpoint, encode_checkpoint
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import Database, ReadableDatabase
from penstock.journal.postgresql.retries import retry_read
from penstock.journal.postgresql.writer import HeadWriter

#: How many are kept.
KEPT = 2
#: Bytes of a part: a value has a gigabyte at most, and a sender holds each part several times.
PART = 4 * 1024 * 1024

T = TypeVar("T")


class DatabaseCheckpointReader:
    """The reading half of ``DatabaseCheckpoints``, for brokers that stand by."""

    def __init__(self, database: ReadableDatabase, identity: int, clock: Clock | None = None) -> None:
        self._readable = database
        self._identity = identity
        self._clock = clock or Clock()
        self.report: list[str] = []

    def positions(self) -> list[int]:
        """Positions with a checkpoint, oldest first."""
        return [position for position, _ in self._read(self._readable.checkpoints)]

    def size(self, position: int) -> int:
        """Bytes of the checkpoint at a position."""
        return dict(self._read(self._readable.checkpoints)).get(position, 0)

    def newest_good(self) -> Checkpoint | None:
        """The newest readable checkpoint. Raises LogAway."""
        for position in reversed(self.positions()):
            data = self._read(lambda position=position: self._readable.checkpoint(position))  # type: ignore[misc]
            try:
                if data is not None:  # it may have been replaced meanwhile
                    return _decode(data, self._identity, position)
            except BadCheckpoint as error:
                self.report.append(f"the checkpoint at {position} is passed over: {error}")
        return None

    def _read(self, statement: Callable[[], T]) -> T:
        return retry_read(statement, self._clock, context="a checkpoint cannot be read: ")


class DatabaseCheckpoints(DatabaseCheckpointReader, CheckpointStore):
    """The checkpoints of the journal's owner."""

    def __init__(self, database: Database, identity: int, writer: HeadWriter, clock: Clock | None = None) -> None:
        super().__init__(database, identity, clock)
        self._database = database
        self._writer = writer

    @override
    def write(self, position: int, meta: bytes, columns: Columns, *, clean: bool = False) -> None:
        encoded = encode_checkpoint(self._identity, position, meta, columns, clean=clean)
        try:
            self._writer.change_as_owner(
                lambda epoch: self._database.put_checkpoint(epoch, position, in_parts(encoded, PART), KEPT)
            )
        except (Fenced, LogAway, LogFailed) as error:
            raise OSError(f"the checkpoint was not written: {error}") from error


def _decode(data: bytes, identity: int, position: int) -> Checkpoint:
    view = memoryview(data)
    return decode_checkpoint(lambda size, offset: view[offset : offset + size], len(data), identity, position)


def in_parts(data: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """The same bytes in parts of ``size`` bytes; the last one may be shorter."""
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
