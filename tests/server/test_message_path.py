"""The length of a message's path: calls and modules of the package are counted, so that they do not creep up.

Time and bytecodes are not compared, because they vary more between versions of Python than of Penstock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from penstock.core.recovery.table import Table
from penstock.journal.files.log import FileLog
from penstock.server.engine.commits import InlineCommit
from penstock.server.engine.engine import Engine
from penstock.server.logs import Logger
from penstock.server.network.access import Peer
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions
from penstock.server.protocols.kokaq.listener import KokaqListener
from penstock.server.protocols.kokaq.session import KokaqSession
from penstock.server.protocols.phpmq.listener import PhpmqListener
from penstock.server.protocols.phpmq.session import PhpmqSession
from support.effort import counted_calls
from support.inprocess import Wire
from support.raw import PUSH, acknowledge, consume, kokaq, publish
from support.simdisk import SimDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Calls and modules of a single PHPMQ message, from its publication to its journaled acknowledgement.
MOST_CALLS = 400
MOST_MODULES = 42
#: Calls for each of 50 concurrent Kokaq pushes.
MOST_CALLS_OF_PUSH = 82


@contextmanager
def running() -> Iterator[Runtime]:
    """A broker on a file log that the loop itself writes."""
    log = FileLog(SimDisk())
    engine = Engine(log, Table(), 1)
    with patch("penstock.server.network.runtime.usable_cpus", lambda: 1.0):  # busy polling depends on timing
        runtime = Runtime(BrokerOptions(), engine, InlineCommit(engine), Logger())
    runtime.broker.create_namespace("default", 1)
    runtime.broker.create_queue("default", "q", runtime.now())
    runtime.rounds.stop()
    try:
        yield runtime
    finally:
        runtime.stop()
        log.close()


def connect(session: PhpmqSession | KokaqSession) -> Wire:
    wire = Wire()
    session.peer = Peer("192.0.2.7", port=4711)
    assert session.runtime.peers.arrive(session.protocol, session.peer)
    session.connection_made(wire)
    return wire


async def settled(runtime: Runtime) -> None:
    """Wait until everything is committed."""
    runtime.touched()
    async with asyncio.timeout(30):
        while runtime.broker.log.staged or runtime.broker.committed < runtime.broker.log.next_position:
            await asyncio.sleep(0)


async def calls_of_a_lone_message() -> Counter[str]:
    with running() as runtime:
        consumer, publisher = (PhpmqSession(runtime, PhpmqListener(address="127.0.0.1:0")) for _ in range(2))
        wire = connect(consumer)
        connect(publisher)
        consumer.data_received(consume("q", 1))
        for last in (False, True):
            await settled(runtime)
            with counted_calls() as calls:
                publisher.data_received(publish("q", b"x" * 100))
                while not wire.writes:
                    await asyncio.sleep(0)
                (position,) = consumer.connection.out
                (message_id,) = runtime.ids.texts(consumer.connection.out[position].queue, [position])
                consumer.data_received(acknowledge("q", message_id))
                acknowledged = runtime.broker.log.next_position
                while runtime.broker.committed < acknowledged:
                    await asyncio.sleep(0.001)
                for _ in range(5):  # the turn in which the commit begins
                    await asyncio.sleep(0)
            wire.writes.clear()
            if last:
                return calls
    raise AssertionError


async def calls_of_pushes(peers: int) -> Counter[str]:
    with running() as runtime:
        sessions = [KokaqSession(runtime, KokaqListener(address="127.0.0.1:0")) for _ in range(peers)]
        wires = [connect(session) for session in sessions]
        push = kokaq(PUSH, "default/q", b"x" * 100)
        for last in (False, True):
            await settled(runtime)
            with counted_calls() as calls:
                for session in sessions:
                    session.data_received(push)
                while not all(wire.writes for wire in wires):
                    await asyncio.sleep(0)
            for wire in wires:
                wire.writes.clear()
            if last:
                return calls
    raise AssertionError


def test_a_lone_message() -> None:
    calls = asyncio.run(calls_of_a_lone_message())
    assert calls.total() <= MOST_CALLS, calls
    assert len({function.partition(":")[0] for function in calls}) <= MOST_MODULES


def test_pushes_that_wait_for_their_answers() -> None:
    calls = asyncio.run(calls_of_pushes(50))
    assert calls.total() <= 50 * MOST_CALLS_OF_PUSH, calls
