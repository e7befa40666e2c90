"""What an error of the server means, by its SQLSTATE. Every server sends that, and every pooler in between.

    FULL      nothing was done: the server ran out of something that others may give back
    REFUSED   nothing was done, and nothing ever will be: the tables or the server are not what a journal needs
    DENIED    the server turns us away, until somebody changes a right, a password or a setting
    AWAY      it did not work this time

Only what is listed as REFUSED may end a broker. An error that nobody has heard of is AWAY: it is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto
from threading import Lock

from penstock.journal.postgresql.database import ConnectionLost


class Meaning(Enum):
    """See above."""

    FULL = auto()
    REFUSED = auto()
    DENIED = auto()
    AWAY = auto()


#: SQLSTATEs, or the two digits of a class; the longest one that an SQLSTATE begins with counts.
_MEANINGS = {
    "0A": Meaning.REFUSED,  # not supported: another product than PostgreSQL
    "21": Meaning.REFUSED,  # a subquery with too many rows: the tables contradict themselves
    "22": Meaning.REFUSED,  # a value that does not fit its column
    "23": Meaning.REFUSED,  # a row that contradicts another
    "28": Meaning.DENIED,  # the role or its password
    "3D": Meaning.DENIED,  # the database does not exist: it may be under restoration
    "3F": Meaning.REFUSED,  # the schema does not exist
    "42": Meaning.REFUSED,  # a table or column does not exist, or is another one
    "42501": Meaning.DENIED,  # a right is missing
    "42710": Meaning.AWAY,  # somebody made the same a moment earlier, as with the next three
    "42P05": Meaning.AWAY,
    "42P06": Meaning.AWAY,
    "42P07": Meaning.AWAY,
    "53": Meaning.FULL,  # disk, memory, connections
    "54": Meaning.REFUSED,  # a limit of the program: a statement too long or too deep
    "P0": Meaning.DENIED,  # an operator's trigger says no
}

#: Why a server takes no connection that takes one later by itself. libpq has the reason as text alone, no SQLSTATE.
_LATER = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "accepting connections")
#: Seconds between two tries while the server turns us away: at least, and at most. An account may be locked after so
#: many wrong passwords, and each try is a line in the server's log.
PAUSES = (0.25, 4.0)


def meaning_of(state: str) -> Meaning:
    """Of an error's SQLSTATE."""
    return _MEANINGS.get(state) or _MEANINGS.get(state[:2]) or Meaning.AWAY


def turns_away(text: str) -> bool:
    """Whether the text of a connection that failed says that a server answered, and does not want us."""
    return "FATAL:" in text and not any(each in text for each in _LATER)


class Backoff:
    """When a server that has turned us away is asked again. All connections to one journal share this."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._pause = 0.0
        self._until = float("-inf")
        self._reason = ""

    def note(self, reason: str) -> None:
        """The server has turned us away. It is given longer each time, until it has not for a while."""
        with self._lock:
            now = self._clock()
            if now < self._until:  # another connection has said so a moment ago
                return
            again = now < self._until + PAUSES[1]
            self._pause = min(2 * self._pause, PAUSES[1]) if again else PAUSES[0]
            self._until = now + self._pause
            self._reason = reason

    def check(self) -> None:
        """Raise what the server said last, if it is too early to ask again."""
        if self._clock() < self._until:
            raise ConnectionLost(self._reason, denied=True)
