"""Runs a journal's upkeep in one go, without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from penstock.server.maintenance.compaction import Step
from penstock.server.maintenance.upkeep import RemovalPlan, Upkeep
from penstock.server.registry.readers import Pin


def carry(upkeep: Upkeep, plan: RemovalPlan, step: Step, now: int) -> Iterator[None]:
    """Carry the live messages of a step forward, piece by piece. Commit after each."""
    for piece in upkeep.compaction.pieces(plan.table, step):
        upkeep.compaction.carry_piece(upkeep.compaction.read_piece(piece), now)
        yield


def retain(upkeep: Upkeep, now: int, commit: Callable[[int], None] | None = None, pins: Iterable[Pin] = ()) -> int:
    """Checkpoint, and delete extents beyond retention. Returns their number.

    Carried messages are committed by ``commit``, or by the engine.
    """
    commit = commit or upkeep.engine.commit
    went = 0
    plan = upkeep.plan(now, pins)
    for step in plan.steps:
        if not upkeep.space.has_room(step.size):
            break
        for _ in carry(upkeep, plan, step, now):
            commit(now)
        extents = len(upkeep.log.extents())
        upkeep.compaction.trim(step.before)
        upkeep.engine.advance()
        went += extents - len(upkeep.log.extents())
    upkeep.compaction.forget_places(plan.table)
    return went
