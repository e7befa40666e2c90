"""Room in a database: see ``contract.Space``. How much there is, a client can't ask; a full one refuses commits."""

from __future__ import annotations

from penstock.journal.contract import UNBOUNDED


class DatabaseSpace:
    """No bound is known. An append that finds none raises LogFull, and is tried again."""

    free = UNBOUNDED

    def look(self) -> int:
        """See Space."""
        return UNBOUNDED

    def has_room(self, size: int) -> bool:
        """See Space."""
        return True

    def fill_reserve(self, min_free: int, state: int) -> None:
        """See Space. Nothing can be set aside there."""
