"""Opening a journal: recovery of its state, before anyone may connect."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.core.recovery.table import Table
from penstock.journal.contract import Checkpoint, OwnedJournal
from penstock.journal.errors import TOO_OLD, LogFailed
from penstock.server.engine.cache import DEFAULT_BYTES
from penstock.server.engine.engine import Engine, recover, table_of
from penstock.server.limits.admission import MIN_FREE
from penstock.server.maintenance.retention import Retention
from penstock.server.maintenance.upkeep import Upkeep


class Opened(NamedTuple):
    """A running engine, and what the start repaired, for the operator."""

    engine: Engine
    upkeep: Upkeep
    report: list[str]


def open_engine(
    journal: OwnedJournal,
    now: int,
    retention: Retention | None = None,
    *,
    cache_bytes: int = DEFAULT_BYTES,
    min_free: int = MIN_FREE,
    followed: Table | None = None,
) -> Opened:
    """Recover the state from the newest checkpoint and the log after it, or from the state of a standby (``followed``).

    Raises JournalRefused, with advice, if the journal is damaged: then it is unchanged and closed.
    """
    try:
        skipped: list[str] = []
        if followed is None or not journal.check_reach(followed.meta.position):
            followed = table_of(_newest(journal, skipped))
        table = recover(journal.log, followed, lease=journal.lease)
        journal.begin()
        engine = Engine(journal.log, table, now, cache_bytes=cache_bytes)
    except BaseException:
        journal.close()
        raise
    report = [*map(str, journal.report), *skipped, *_give_up(engine, table, journal.given_up, now)]
    report += _set_aside(engine, table, now)
    return Opened(engine, Upkeep(engine, journal, retention, min_free=min_free), report)


def _give_up(engine: Engine, table: Table, ranges: tuple[tuple[int, int], ...], now: int) -> list[str]:
    """Drop the messages in ranges that an operator has given up in a repair.

    Other unreadable messages are kept: they are set aside once they are asked for.
    """
    if not ranges:
        return []
    places, lost = table.places(), 0
    gone = np.zeros(len(table), np.bool_)
    for low, high in ranges:
        gone |= (places >= low) & (places < high)
    rows = np.flatnonzero(gone)
    for number in np.unique(table.columns["queue"][rows]).tolist():
        positions = table.columns["position"][rows][table.columns["queue"][rows] == number].tolist()
        lost += engine.broker.drop_damaged(engine.broker.queues[number], positions, now)
    return [f"{lost} live messages were given up by a repair, and are dropped"] if lost else []


def _set_aside(engine: Engine, table: Table, now: int) -> list[str]:
    """Set aside messages that were carried forward to copies which damage has cut off.

    They still count, and come back if the copies do.
    """
    rows = np.flatnonzero(table.places() < engine.log.start)
    if not len(rows):  # the usual case; numpy would import much for the rest, during a take-over
        return []
    count = 0
    for number in np.unique(table.columns["queue"][rows]).tolist():
        positions = table.columns["position"][rows][table.columns["queue"][rows] == number].tolist()
        reasons = {position: each.reason for position, each in engine.damage(positions).items()}
        count += engine.broker.set_aside(engine.broker.queues[number], reasons, now)
    return [f"{count} live messages cannot be read, and are set aside"] if count else []


def _newest(journal: OwnedJournal, report: list[str]) -> Checkpoint | None:
    """The newest readable checkpoint, if the log continues from there."""
    try:
        checkpoint = journal.checkpoints.newest_good()
    except OSError as error:
        raise LogFailed(f"a checkpoint cannot be read: {error}. Repair the disk, and start again") from error
    report += journal.checkpoints.report
    if checkpoint is not None and not journal.check_reach(checkpoint.position):
        report.append(f"the checkpoint at {checkpoint.position} is skipped: {TOO_OLD}")
        checkpoint = None
    if checkpoint is None and journal.expects_checkpoint:
        report.append("there is no usable checkpoint: the state was recovered from the journal alone")
    return checkpoint
