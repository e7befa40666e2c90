"""Opening a data folder: what a start does before anybody may connect."""

from __future__ import annotations

from typing import NamedTuple

from penstock.journal.checkpoints import Checkpoint, Checkpoints
from penstock.journal.disk import Disk
from penstock.journal.errors import LogFailed
from penstock.journal.files import FileLog, FileLogOptions
from penstock.journal.folder import load_folder
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
) -> Opened:
    """Read the newest checkpoint and the log after it, and go on from there. Makes the folder's files if it is new.

    Raises JournalRefused, with what to do, when the folder is in use, damaged, or newer than this Penstock.
    """
    try:
        checkpoint, report = _newest_checkpoint(disk)
    except OSError as error:
        raise LogFailed(f"{disk.where} can not be read: {error}. Mend the disk and start again") from error
    log = FileLog(disk, options, from_position=checkpoint.position if checkpoint else None)
    try:
        report += map(str, log.report)
        engine = Engine(log, recover(log, checkpoint), now, cache_bytes=cache_bytes)
    except BaseException:
        log.close()
        raise
    return Opened(engine, Upkeep(engine, log, Checkpoints(disk, log.identity), retention), report)


def _newest_checkpoint(disk: Disk) -> tuple[Checkpoint | None, list[str]]:
    folder = load_folder(disk)
    if folder is None:
        return None, []
    found = Checkpoints(disk, folder.identity)
    return found.newest_good(), found.report
