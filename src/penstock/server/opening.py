"""Opening a data folder: what a start does before anybody may connect."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.core.table import Table
from penstock.journal.checkpoints import Checkpoint, Checkpoints
from penstock.journal.disk import Disk
from penstock.journal.errors import LogFailed
from penstock.journal.files import FileLog, FileLogOptions
from penstock.server.admission import MIN_FREE
from penstock.server.cache import DEFAULT_BYTES
from penstock.server.engine import Engine, recover
from penstock.server.upkeep import Retention, Upkeep


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
    log = FileLog(disk, options)
    try:
        checkpoints = Checkpoints(disk, log.identity)
        checkpoint = _newest(checkpoints, log)
        table = recover(log, checkpoint)
        engine = Engine(log, table, now, cache_bytes=cache_bytes)
    except BaseException:
        log.close()
        raise
    report = [*map(str, log.report), *checkpoints.report, *_give_up_lost(engine, table, log.start, now)]
    upkeep = Upkeep(engine, log, Checkpoints(disk, log.identity, log.space), retention, min_free=min_free)
    return Opened(engine, upkeep, report)


def _give_up_lost(engine: Engine, table: Table, start: int, now: int) -> list[str]:
    """Messages whose payloads should have been carried forward, but the copies are gone: no start can bring them back.

    Only damage does that: a block that was on disk, and was cut off as if it had been torn.
    """
    rows = np.flatnonzero(table.places() < start)
    lost = 0
    for number in np.unique(table.columns["queue"][rows]).tolist():
        positions = table.columns["position"][rows][table.columns["queue"][rows] == number].tolist()
        lost += engine.broker.drop_damaged(engine.broker.queues[number], positions, now)
    return [f"{lost} live messages were lost with a damaged part of the journal, and are given up"] if lost else []


def _newest(checkpoints: Checkpoints, log: FileLog) -> Checkpoint | None:
    """The newest checkpoint that can be read, once it is certain that the log goes on from there."""
    try:
        checkpoint = checkpoints.newest_good()
    except OSError as error:
        raise LogFailed(f"a checkpoint can not be read: {error}. Mend the disk and start again") from error
    if checkpoint is not None:
        log.check_reach(checkpoint.position)
    return checkpoint
