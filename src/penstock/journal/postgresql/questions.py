"""What a database raises becomes what users of a journal expect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.journal.errors import JournalRefused, LogAway, LogDenied
from penstock.journal.postgresql.database import ConnectionLost, DatabaseError

T = TypeVar("T")


def away(error: DatabaseError, context: str = "") -> LogAway:
    """What to raise for a statement that may be tried again. ``context`` is put before what the database says."""
    kind = LogDenied if isinstance(error, ConnectionLost) and error.denied else LogAway
    return kind(f"{context}{error}")


def asked(question: Callable[[], T]) -> T:
    """What a database answers; a connection that was lost is made anew once. Raises JournalRefused, or LogAway."""
    try:
        try:
            return question()
        except ConnectionLost:
            return question()
    except ConnectionLost as error:
        raise away(error) from error
    except DatabaseError as error:
        raise JournalRefused(str(error)) from error
