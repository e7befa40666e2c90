"""The meaning of a server's error, by its SQLSTATE, which every server and every pooler sends.

    FULL      nothing was done: the server ran out of a resource that may become free again
    REFUSED   nothing was done, and no retry helps: the tables or the server do not suit a journal
    DENIED    the server turns us away, until an administrator changes a right, a password or a setting
    AWAY      it did not work this time

Only errors listed as REFUSED may end a broker. Unknown errors are AWAY: the statement is retried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto
from threading import Lock

from penstock.journal.postgresql.database import ConnectionLost


class Meaning(Enum):
    """See the module's docstring."""

    FULL = auto()
    REFUSED = auto()
    DENIED = auto()
    AWAY = auto()


#: By SQLSTATE, or by its class, the first two characters. The SQLSTATE takes precedence.
_MEANINGS = {
    "0A": Meaning.REFUSED,  # not supported: another product than PostgreSQL
    "21": Meaning.REFUSED,  # a subquery with too many rows: the tables contradict themselves
    "22": Meaning.REFUSED,  # a value that does not fit its column
    "23": Meaning.REFUSED,  # a row that contradicts another
    "28": Meaning.DENIED,  # the role or its password
    "3D": Meaning.DENIED,  # the database does not exist: it may be under restoration
    "3F": Meaning.REFUSED,  # the schema does not exist
    "42": Meaning.REFUSED,  # a table or column does not exist, or has another type
    "42501": Meaning.DENIED,  # a right is missing
    "42710": Meaning.AWAY,  # another session made the same a moment earlier, as with the next three
    "42P05": Meaning.AWAY,
    "42P06": Meaning.AWAY,
    "42P07": Meaning.AWAY,
    "53": Meaning.FULL,  # disk, memory, connections
    "54": Meaning.REFUSED,  # a limit of the program: a statement too long or too deep
    "P0": Meaning.DENIED,  # an operator's trigger says no
}

#: Reasons for which a server refuses connections only for a while. libpq reports them as text, without SQLSTATE.
_LATER = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "accepting connections")
#: Seconds between two tries while the server turns us away: the first pause, and the longest. Wrong passwords may lock
#: an account, and each try is a line in the server's log.
PAUSES = (0.25, 4.0)


def meaning_of(state: str) -> Meaning:
    """The meaning of an SQLSTATE."""
    return _MEANINGS.get(state) or _MEANINGS.get(state[:2]) or Meaning.AWAY


def turns_away(text: str) -> bool:
    """Whether the error text of a failed connection says that a server answered and turned us away."""
    return "FATAL:" in text and not any(each in text for each in _LATER)


class Backoff:
    """Delays new connections to a server that has turned us away. All connections to one journal share this."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._pause = 0.0
        self._until = float("-inf")
        self._reason = ""

    def note(self, reason: str) -> None:
        """Record that the server has turned us away. The pauses grow until it has not done so for a while."""
        with self._lock:
            now = self._clock()
            if now < self._until:  # another connection reported it a moment ago
                return
            again = now < self._until + PAUSES[1]
            self._pause = min(2 * self._pause, PAUSES[1]) if again else PAUSES[0]
            self._until = now + self._pause
            self._reason = reason

    def check(self) -> None:
        """Raise the server's last refusal if it is too early to connect again."""
        if self._clock() < self._until:
            raise ConnectionLost(self._reason, denied=True)
