"""Room where no bound is known: see ``contract.Space``.

In memory that is what ``limits.state_bytes`` leaves. A database does not tell; a full one refuses commits: an append
that finds no room raises LogFull, and is tried again.
"""

from __future__ import annotations

from penstock.journal.contract import UNBOUNDED


class UnboundedSpace:
    """There is always room, and nothing can be set aside."""

    free = UNBOUNDED

    def look(self) -> int:
        """See Space."""
        return UNBOUNDED

    def has_room(self, size: int) -> bool:
        """See Space."""
        return True

    def fill_reserve(self, min_free: int, state: int) -> None:
        """See Space."""
