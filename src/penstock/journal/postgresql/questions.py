"""Asking a database on behalf of who reads: what it raises becomes what readers of a journal expect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.journal.errors import JournalRefused, LogAway
from penstock.journal.postgresql.database import ConnectionLost, DatabaseError

T = TypeVar("T")


def asked(question: Callable[[], T]) -> T:
    """What a database answers; a connection that was lost is made anew once. Raises JournalRefused, or LogAway."""
    try:
        try:
            return question()
        except ConnectionLost:
            return question()
    except ConnectionLost as error:
        raise LogAway(str(error)) from error
    except DatabaseError as error:
        raise JournalRefused(str(error)) from error
