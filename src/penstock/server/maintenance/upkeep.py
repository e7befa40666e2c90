"""Keeping the journal small and its start quick: checkpoints, retention, compaction, and room on the disk.

``retention`` moves the floor below which settled history goes; ``compaction`` gives the space back. ``Upkeep`` puts
both together: ``schedule`` runs it beside the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.recovery.table import Table
from penstock.journal.contract import OwnedJournal
from penstock.journal.errors import LogFull
from penstock.server.engine.engine import Engine, recover, table_of
from penstock.server.limits.admission import MIN_FREE, Admission
from penstock.server.maintenance.compaction import Compaction, Step
from penstock.server.maintenance.retention import Retention
from penstock.server.registry.readers import Pin


class RemovalPlan(NamedTuple):
    """How space is given back, step by step."""

    table: Table
    steps: Sequence[Step] = ()
    #: Pins that lapsed, each with the reason.
    lapsed: Sequence[tuple[Pin, str]] = ()
    #: Why no checkpoint could be written; None if one was.
    unwritten: LogFull | None = None
    #: The room on the disk that is missing to give more back.
    missing: int = 0


class Upkeep:
    """The upkeep of an engine's journal."""

    def __init__(
        self,
        engine: Engine,
        journal: OwnedJournal,
        retention: Retention | None = None,
        *,
        min_free: int = MIN_FREE,
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.log = journal.log
        self.checkpoints = journal.checkpoints
        self.space = journal.space
        self.retention = retention or Retention()
        self.admission = Admission(engine, journal.space, min_free)
        self.compaction = Compaction(engine, journal)

    def fill_reserve(self) -> None:
        """Reserve room on the disk, if there is enough. May run in another thread."""
        newest = self.checkpoints.positions()[-1:]
        state = sum(self.checkpoints.size(position) for position in newest)
        self.space.fill_reserve(self.admission.min_free, state)

    def checkpoint(self, now: int, *, clean: bool = False) -> Table:
        """Write a checkpoint of the state at the end of the synced log, and return that state.

        The state comes from the log alone, so this may run in another thread. Raises OSError, or LogFull without room.
        """
        table = self._state(now)
        self._write(table, clean=clean)
        return table

    def _state(self, now: int) -> Table:
        """The state at the end of the synced log."""
        table = recover(self.log, table_of(self.checkpoints.newest_good()), self.log.synced)
        table.meta.forget_requests(now)
        return table

    def _write(self, table: Table, *, clean: bool = False) -> None:
        self.checkpoints.write(table.meta.position, msgspec.json.encode(table.meta), table.columns, clean=clean)

    def plan(self, now: int, pins: Iterable[Pin] = ()) -> RemovalPlan:
        """Move the floor as far as pins permit, write a checkpoint, and plan what can go. May run in another thread.

        Without room for a checkpoint the existing ones must do: giving back space then makes room.
        """
        floor = self.retention.floor(self.log, now)
        floor, lapsed = self.retention.pinned_floor(self.log, floor, pins, now)
        self.log.set_floor(floor)
        table = self._state(now)
        unwritten = None
        try:
            self._write(table)
        except LogFull as error:
            unwritten = error
        self.compaction.release_kept(table)
        before, missing = self.compaction.victims(table)
        return RemovalPlan(table, self.compaction.steps(table, before), lapsed, unwritten, missing)
