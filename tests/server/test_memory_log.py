"""An ephemeral broker forgets what is settled: its memory is what waits, not what ever was."""

from __future__ import annotations

import asyncio
import io

import pytest

from penstock.core.recovery.table import Table
from penstock.journal.memory import MemoryLog
from penstock.server.engine.commits import InlineCommit
from penstock.server.engine.engine import Engine
from penstock.server.maintenance import schedule as chores
from penstock.server.process.logs import Logger
from penstock.server.process.options import BrokerOptions
from penstock.server.runtime import Runtime


def publish_and_settle_all_but_one(engine: Engine) -> int:
    """Fifty messages, each with a commit of its own; the one that is left is returned."""
    broker = engine.broker
    broker.create_namespace("default", 1)
    queue, peer = broker.create_queue("default", "q", 1), broker.connect(1, b"test")
    positions = []
    for _ in range(50):
        positions.append(broker.publish(peer, queue, [b"x" * 100], 1).first)
        engine.commit(1)
    kept = positions.pop(25)
    for position in positions:
        broker.delete_message(peer, queue, position, 1)
    engine.commit(1)
    return kept


def test_settled_messages_leave_the_log_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "INTERVAL", 0.001)

    async def live() -> None:
        engine = Engine(MemoryLog(), Table(), 1)
        runtime = Runtime(BrokerOptions(), engine, InlineCommit(engine, lambda: None), Logger(io.StringIO()))
        kept = publish_and_settle_all_but_one(engine)
        tidy = chores.MemoryChores(runtime)
        tidy.start()
        while engine.log.start == 1:
            await asyncio.sleep(0.001)
        await tidy.stop()
        runtime.stop()
        assert engine.broker.lowest_position() == kept
        assert engine.log.start <= kept
        assert engine.payloads([kept]) == [b"x" * 100]

    asyncio.run(asyncio.wait_for(live(), 60))
