"""An ephemeral broker forgets settled messages: its memory holds waiting messages and a bounded history."""

from __future__ import annotations

import asyncio
import io

import pytest

from penstock.core.policy import SECOND
from penstock.journal import OwnerOptions, open_journal
from penstock.server.engine.commits import InlineCommit
from penstock.server.engine.engine import Engine
from penstock.server.logs import Logger
from penstock.server.maintenance import schedule
from penstock.server.maintenance.retention import Retention
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.process.opening import open_engine

NOW = 1_750_000_000 * SECOND
HISTORY = 20_000


def publish_and_settle_all_but_one(engine: Engine) -> int:
    """Many messages, each with a commit of its own. Returns the one that is left, among the first."""
    broker = engine.broker
    broker.create_namespace("default", NOW)
    queue, peer = broker.create_queue("default", "q", NOW), broker.connect(1, b"test")
    positions = []
    for _ in range(500):
        positions.append(broker.publish(peer, queue, [b"x" * 100], NOW).first)
        engine.commit(NOW)
    kept = positions.pop(25)
    for position in positions:
        broker.delete_message(peer, queue, position, NOW)
        engine.commit(NOW)
    return kept


def test_settled_messages_leave_the_journal_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if one of the first messages is never consumed: it is carried forward."""
    monkeypatch.setattr(schedule, "INTERVAL", 0.001)

    async def live() -> None:
        journal = open_journal("memory:", OwnerOptions(extent_bytes=4_000, reserve=4096)).own()
        opened = open_engine(journal, NOW, Retention(bytes=HISTORY), cache_bytes=0)
        engine = opened.engine
        runtime = Runtime(BrokerOptions(), engine, InlineCommit(engine), Logger(io.StringIO()))
        maintenance = schedule.Maintenance(runtime, opened.upkeep)
        kept = publish_and_settle_all_but_one(engine)
        assert journal.memory_bytes > 5 * HISTORY
        maintenance.start()
        while journal.memory_bytes > 2 * HISTORY:
            runtime.touched()
            await asyncio.sleep(0.001)
        await maintenance.stop()
        await maintenance.finish()
        runtime.stop()
        assert engine.log.start > kept
        engine.backlog = None  # no event loop needs to be kept free
        assert engine.payloads([kept]) == [b"x" * 100]
        journal.close()

    asyncio.run(asyncio.wait_for(live(), 60))
