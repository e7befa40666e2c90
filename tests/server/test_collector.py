"""Cyclic garbage is collected rarely, so a peer's objects must not form cycles."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from weakref import ref

import pytest

from penstock.server.system.collector import THRESHOLDS
from penstock.wire.kokaq import Opcode
from support import raw
from support.inprocess import InProcess, running

#: A peer's requests: it publishes, and leaves with an unsettled message.
TALKS = {
    "phpmq": raw.publish("default/x", b"x") * 3 + raw.consume("default/x", 10),
    "kokaq": raw.kokaq(Opcode.PUSH, "default/x", b"x") * 3 + raw.kokaq(Opcode.ACQUIRE_PEEK_LOCK, "default/x"),
    "sspq": raw.send(b"x") * 3 + raw.sspq(raw.RECEIVE),
}


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def _visit(broker: InProcess, protocol: str) -> ref[object]:
    """Connect a peer, talk, and disconnect. Only the returned weak reference remains."""
    session, wire = getattr(broker, protocol)()
    session.data_received(TALKS[protocol])
    await broker.settle()
    assert wire.sent
    session.connection_lost(None)
    await broker.settle()
    return ref(session)


@pytest.mark.parametrize("protocol", TALKS)
def test_a_peer_that_is_gone_leaves_no_session_behind(protocol: str, no_collection: None) -> None:
    async def live() -> None:
        async with running() as broker:
            broker.queue("x")
            gone = await _visit(broker, protocol)
            assert gone() is None

    asyncio.run(live())


def test_a_broker_collects_rarely() -> None:
    script = "from penstock.server.system.collector import collect_rarely as f; import gc; f(); "
    script += "print(gc.get_freeze_count() > 1000, gc.get_threshold())"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == f"True {THRESHOLDS}\n"
