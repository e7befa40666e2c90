"""The state of a journal that another broker writes, worked out while that one serves: taking over is quick then."""

from __future__ import annotations

import time

from penstock.core.recovery.table import Table
from penstock.journal.contract import Standby
from penstock.journal.errors import Trimmed
from penstock.journal.format.block import Block
from penstock.server.engine.engine import table_of

#: Applying blocks copies the whole table, so they are gathered first: for GATHER_SECONDS, for GATHER_PART times as long
#: as the last application took, and up to GATHER_EVENTS events.
GATHER_SECONDS = 1.0
GATHER_PART = 10
GATHER_EVENTS = 200_000


class FollowedState:
    """The newest checkpoint, and the blocks behind it as they come. One thread at a time uses it."""

    def __init__(self, standby: Standby) -> None:
        self._standby = standby
        self._table: Table | None = None
        self._gathered: list[Block] = []
        self._events = 0
        #: When blocks are to be applied, on the monotonic clock.
        self._due = 0.0

    def catch_up(self, now: int) -> None:
        """Follow to the present end. Raises LogError; then the next call starts over."""
        table, self._table = self._table, None  # a failure may leave a half-applied table, so it is dropped
        try:
            if table is None:
                table = table_of(self._standby.checkpoint())
                self._gathered, self._events = [], 0
            for block in self._standby.catch_up():
                self._gathered.append(block)
                self._events += block.end - block.first
                if self._events >= GATHER_EVENTS:
                    self._apply(table)
        except Trimmed:
            return
        if self._gathered and time.monotonic() >= self._due:
            self._apply(table)
            table.meta.forget_requests(now)
        self._table = table

    def take(self) -> Table | None:
        """Hand over the state as far as it was followed; None if it was not."""
        table, self._table = self._table, None
        if table is not None:
            self._apply(table)
        return table

    def _apply(self, table: Table) -> None:
        began = time.monotonic()
        table.apply(self._gathered)
        self._gathered, self._events = [], 0
        took = time.monotonic() - began
        self._due = began + max(GATHER_SECONDS, GATHER_PART * took)
