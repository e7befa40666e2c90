"""Opening a data folder: what a start does before anybody may connect."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.core.recovery.table import Table
from penstock.journal.errors import LogFailed
from penstock.journal.files.checkpoints import Checkpoint, Checkpoints
from penstock.journal.files.disk import Disk
from penstock.journal.files.log import FileLog, FileLogOptions
from penstock.journal.log import FIRST_POSITION
from penstock.journal.repair.survey import TOO_OLD
from penstock.server.engine.cache import DEFAULT_BYTES
from penstock.server.engine.engine import Engine, recover
from penstock.server.limits.admission import MIN_FREE
from penstock.server.maintenance.upkeep import Retention, Upkeep


class Opened(NamedTuple):
    """A running engine, and what the operator should know about the start."""

    engine: Engine
    upkeep: Upkeep
    report: list[str]


def open_folder(
    disk: Disk,
    now: int,
    options: FileLogOptions | None = None,
    retention: Retention | None = None,
    *,
    cache_bytes: int = DEFAULT_BYTES,
    min_free: int = MIN_FREE,
) -> Opened:
    """Read the newest checkpoint and the log after it, and go on from there. Makes the folder's files if it is new.

    Raises JournalRefused, with what to do, when the folder is in use, damaged, or newer than this Penstock.
    """
    log = FileLog(disk, options, look_first=True)
    try:
        checkpoints = Checkpoints(disk, log.identity)
        checkpoint = _newest(checkpoints, log)
        table = recover(log, checkpoint)
        log.begin()
        engine = Engine(log, table, now, cache_bytes=cache_bytes)
    except BaseException:
        log.close()
        raise
    report = [*map(str, log.report), *checkpoints.report, *_give_up(engine, table, log.given_up, now)]
    report += _set_aside(engine, table, log, now)
    upkeep = Upkeep(engine, log, Checkpoints(disk, log.identity, log.space), retention, min_free=min_free)
    return Opened(engine, upkeep, report)


def _give_up(engine: Engine, table: Table, ranges: tuple[tuple[int, int], ...], now: int) -> list[str]:
    """Drop the messages whose payloads lay where an operator has given up what was there, by a repair.

    Others that can't be read are not given up: they are set aside when somebody asks for them.
    """
    places, lost = table.places(), 0
    gone = np.zeros(len(table), np.bool_)
    for low, high in ranges:
        gone |= (places >= low) & (places < high)
    rows = np.flatnonzero(gone)
    for number in np.unique(table.columns["queue"][rows]).tolist():
        positions = table.columns["position"][rows][table.columns["queue"][rows] == number].tolist()
        lost += engine.broker.drop_damaged(engine.broker.queues[number], positions, now)
    return [f"{lost} live messages were given up by a repair, and are dropped"] if lost else []


def _set_aside(engine: Engine, table: Table, log: FileLog, now: int) -> list[str]:
    """Set messages aside that lie nowhere: they were carried forward, and the copies cut off as if they were torn.

    Only damage does that. They stay in the books, and come back if the journal does.
    """
    rows = np.flatnonzero(table.places() < log.start)
    count = 0
    for number in np.unique(table.columns["queue"][rows]).tolist():
        positions = table.columns["position"][rows][table.columns["queue"][rows] == number].tolist()
        reasons = {position: each.reason for position, each in engine.damage(positions).items()}
        count += engine.broker.set_aside(engine.broker.queues[number], reasons, now)
    return [f"{count} live messages can not be read, and are set aside"] if count else []


def _newest(checkpoints: Checkpoints, log: FileLog) -> Checkpoint | None:
    """The newest checkpoint that can be read, once it is certain that the log goes on from there."""
    try:
        checkpoint = checkpoints.newest_good()
    except OSError as error:
        raise LogFailed(f"a checkpoint can not be read: {error}. Mend the disk and start again") from error
    if checkpoint is not None and not log.check_reach(checkpoint.position):
        checkpoints.report.append(f"the checkpoint at {checkpoint.position} is passed over: {TOO_OLD}")
        checkpoint = None
    if checkpoint is None and _should_have_one(log):
        checkpoints.report.append("there is no checkpoint of use: the state was worked out from the journal alone")
    return checkpoint


def _should_have_one(log: FileLog) -> bool:
    """One is written when a segment is finished, and at a clean stop; before anything is trimmed at the latest."""
    segments = log.segments()
    return log.start > FIRST_POSITION or len(segments) > 1 or any(segment.clean for segment in segments)
