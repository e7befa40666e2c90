"""Retries statements, and translates a database's errors into those of the journal's contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.journal.errors import JournalRefused, LogAway, LogDenied
from penstock.journal.postgresql.clock import Clock
from penstock.journal.postgresql.database import ConnectionLost, DatabaseError

#: Seconds for which an unreachable database is retried before the caller gets an error, and may call again.
PATIENCE = 2.0
#: Seconds between two tries: the first pause, and the longest.
PAUSES = (0.05, 0.5)

P = ParamSpec("P")
T = TypeVar("T")


def unavailable(error: DatabaseError, context: str = "") -> LogAway:
    """The error for a statement that may be retried. ``context`` precedes the database's text."""
    kind = LogDenied if isinstance(error, ConnectionLost) and error.denied else LogAway
    return kind(f"{context}{error}")


def retry(statement: Callable[[], T], clock: Clock, patience: float = PATIENCE) -> T:
    """Run a statement that may run twice, repeatedly for ``patience`` seconds. Raises DatabaseError."""
    began, pause = clock.monotonic(), PAUSES[0]
    while True:
        try:
            return statement()
        except ConnectionLost as error:
            if error.denied or clock.monotonic() - began > patience:
                raise
        clock.sleep(pause)
        pause = min(2 * pause, PAUSES[1])


def retry_read(statement: Callable[[], T], clock: Clock, patience: float = PATIENCE, context: str = "") -> T:
    """The same for reading. Raises LogAway."""
    try:
        return retry(statement, clock, patience)
    except DatabaseError as error:
        raise unavailable(error, context) from error


def retry_once(statement: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a statement, again if the connection was lost. Raises JournalRefused, or LogAway."""
    try:
        try:
            return statement(*args, **kwargs)
        except ConnectionLost:
            return statement(*args, **kwargs)
    except ConnectionLost as error:
        raise unavailable(error) from error
    except DatabaseError as error:
        raise JournalRefused(str(error)) from error
