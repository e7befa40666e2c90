"""The state of a journal that another broker writes, worked out while that one serves: taking over is quick then."""

from __future__ import annotations

from penstock.core.recovery.table import Table
from penstock.journal.contract import Standby
from penstock.journal.errors import Trimmed
from penstock.server.engine.engine import table_of


class FollowedState:
    """The newest checkpoint, and the blocks behind it as they come. One thread at a time uses it."""

    def __init__(self, standby: Standby) -> None:
        self._standby = standby
        self._table: Table | None = None

    def take(self) -> Table | None:
        """Hand over the state as far as it was followed; None if it was not."""
        table, self._table = self._table, None
        return table

    def catch_up(self, now: int) -> None:
        """Follow to the present end. Raises LogError; then the next time begins anew."""
        table = self.take()  # half a step is of no use
        try:
            if table is None:
                table = table_of(self._standby.checkpoint())
            table.apply(self._standby.catch_up())
        except Trimmed:
            return
        table.forget_requests(now)
        self._table = table
