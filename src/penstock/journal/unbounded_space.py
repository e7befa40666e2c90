"""Room where no bound is known: see ``contract.Space``.

In memory that is what ``limits.state_bytes`` leaves. A database does not tell; a full one refuses commits: an append
that finds no room raises LogFull, and is tried again.
"""

from __future__ import annotations

from typing_extensions import override

from penstock.journal.contract import UNBOUNDED, Space


class UnboundedSpace(Space):
    """There is always room, and nothing can be set aside."""

    free = UNBOUNDED

    @override
    def look(self) -> int:
        return UNBOUNDED

    @override
    def has_room(self, size: int) -> bool:
        return True

    @override
    def fill_reserve(self, min_free: int, state: int) -> None:
        pass
