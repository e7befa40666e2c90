"""Small values in the database: see ``contract.ValueStore``."""

from __future__ import annotations

from collections.abc import Callable

from penstock.journal.errors import LogError
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import Database, DatabaseError
from penstock.journal.postgresql.questions import away
from penstock.journal.postgresql.writer import PATIENCE, HeadWriter, insist

DAMAGED = ".damaged"
#: The value that has the ranges of positions which a repair gave up, of a journal that was copied from files.
GIVEN_UP = "given_up"


class DatabaseValues:
    """The values of the journal's owner. Any thread may use it."""

    def __init__(self, database: Database, writer: HeadWriter, clock: Clock | None = None) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock or Clock()

    def get(self, name: str) -> bytes | None:
        """See ValueStore."""
        try:
            return insist(lambda: self._database.value(name), self._clock, PATIENCE)
        except DatabaseError as error:
            raise away(error) from error

    def put(self, name: str, value: bytes) -> None:
        """See ValueStore."""
        self._change(lambda epoch: self._database.put_value(epoch, name, value))

    def delete(self, name: str) -> None:
        """See ValueStore."""
        self._change(lambda epoch: self._database.move_value(epoch, name, None))

    def set_aside(self, name: str) -> None:
        """See ValueStore."""
        self._change(lambda epoch: self._database.move_value(epoch, name, name + DAMAGED))

    def _change(self, change: Callable[[int], bool]) -> None:
        try:
            self._writer.ours(change)
        except LogError as error:
            raise OSError(str(error)) from error
