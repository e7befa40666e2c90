"""The commit driver that the options and the journal call for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.journal.contract import OwnedJournal
from penstock.journal.errors import LogFull
from penstock.server.admin.figures import BrokerMeasures
from penstock.server.engine.commits import SMALL, SMALL_UNSYNCED, CommitDriver, GroupCommit, InlineCommit
from penstock.server.engine.engine import Engine
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions

#: The loop writes larger unsynced commits itself up to this number of peers.
FEW_PEERS = 2


def commit_driver(
    options: BrokerOptions,
    engine: Engine,
    journal: OwnedJournal,
    measures: BrokerMeasures,
    runtime: Callable[[], Runtime],
    fail: Callable[[Exception], None],
) -> CommitDriver:
    """Start a driver. ``runtime`` returns the runtime, which is made of the driver; ``fail`` is called in the loop."""
    if options.ephemeral:
        return InlineCommit(engine, measures.committed)
    loop = asyncio.get_running_loop()

    def report_commit() -> None:
        loop.call_soon_threadsafe(runtime().committed)

    def report_failure(error: Exception) -> None:
        loop.call_soon_threadsafe(fail, error)

    def report_full(error: LogFull | None) -> None:
        loop.call_soon_threadsafe(runtime().health.note_full, error)

    def most_at_once() -> int:
        """The bytes of a commit that the loop may write itself, without a long wait, or any for a database.

        Without a sync it copies to the page cache. With more peers the thread is faster even so: the loop reads from
        other peers meanwhile, and the next commit is larger.
        """
        if journal.lease is not None:
            return 0
        synced = options.journal.durability != "os"
        return SMALL if synced or len(runtime().sessions) > FEW_PEERS else SMALL_UNSYNCED

    interval = options.journal.interval_ms / 1000 if options.journal.durability == "interval" else None
    driver = GroupCommit(
        engine,
        report_commit,
        report_failure,
        on_full=report_full,
        sync_every=interval,
        measure=measures.committed,
        at_once=most_at_once,
    )
    driver.start()
    return driver
