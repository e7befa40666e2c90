"""Free space where no bound is known.

In memory ``limits.state_bytes`` is the bound. A database does not report its free space; when it is full, appends raise
LogFull and are retried.
"""

from __future__ import annotations

from typing_extensions import override

from penstock.journal.contract import UNBOUNDED, Space


class UnboundedSpace(Space):
    """There is always room, and nothing can be reserved."""

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
