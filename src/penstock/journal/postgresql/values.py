"""Small named values in the database."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from penstock.journal.contract import ValueStore
from penstock.journal.errors import LogError
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import Database
from penstock.journal.postgresql.retries import retry_read
from penstock.journal.postgresql.writer import HeadWriter

DAMAGED = ".damaged"
#: The value with the ranges of positions that a repair gave up, in a journal that was copied from files.
GIVEN_UP = "given_up"


class DatabaseValues(ValueStore):
    """The values of the journal's owner. Any thread may use it."""

    def __init__(self, database: Database, writer: HeadWriter, clock: Clock | None = None) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock or Clock()

    @override
    def get(self, name: str) -> bytes | None:
        return retry_read(lambda: self._database.value(name), self._clock)

    @override
    def put(self, name: str, value: bytes) -> None:
        self._change(lambda epoch: self._database.put_value(epoch, name, value))

    @override
    def delete(self, name: str) -> None:
        self._change(lambda epoch: self._database.move_value(epoch, name, None))

    @override
    def set_aside(self, name: str) -> None:
        self._change(lambda epoch: self._database.move_value(epoch, name, name + DAMAGED))

    def _change(self, change: Callable[[int], bool]) -> None:
        try:
            self._writer.change_as_owner(change)
        except LogError as error:
            raise OSError(str(error)) from error
