"""A broker in the test's own process: real sessions on recording transports, and a log that can be held."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from penstock.core.policy import Policy
from penstock.core.queue import Queue
from penstock.core.recovery.table import Table
from penstock.journal.errors import LogFailed
from penstock.journal.format.block import Batch
from penstock.server.engine.commits import GroupCommit
from penstock.server.engine.engine import Engine
from penstock.server.logs import Logger
from penstock.server.network.access import Peer
from penstock.server.network.runtime import Runtime
from penstock.server.network.session import Session
from penstock.server.options.broker_options import AccessRule, BrokerOptions, Limits
from penstock.server.protocols.kokaq.listener import KokaqListener
from penstock.server.protocols.kokaq.session import KokaqSession
from penstock.server.protocols.phpmq.listener import PhpmqListener
from penstock.server.protocols.phpmq.session import PhpmqSession
from penstock.server.protocols.sspq.listener import SspqListener
from penstock.server.protocols.sspq.session import SspqSession
from support.journals import MemoryLog

SessionT = TypeVar("SessionT", bound=Session[Any])


class GatedLog(MemoryLog):
    """A log whose writes can be held, and can fail."""

    def __init__(self) -> None:
        super().__init__(extent_bytes=50_000)
        self._open = threading.Event()
        self._open.set()
        self.broken = False

    def hold(self) -> None:
        """Hold all writes."""
        self._open.clear()

    def go_on(self) -> None:
        """Release held writes."""
        self._open.set()

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        """See Logger."""
        self._open.wait(30)
        if self.broken:
            raise LogFailed("the disk is broken")
        super().append(batch, expected_position, epoch, roll=roll)


class Wire(asyncio.Transport):
    """A transport that only records writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        #: Whether the peer reads, and how many bytes it has not read.
        self.takes = True
        self.untaken = 0
        self.reading = True
        self.closed = False
        self.aborted = False

    @property
    def sent(self) -> bytes:
        """Everything that was written."""
        return b"".join(self.writes)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.writes.append(bytes(data))
        if not self.takes:
            self.untaken += len(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class InProcess:
    """The running broker."""

    def __init__(self, limits: Limits, access: Sequence[AccessRule] = ()) -> None:
        self.journal = GatedLog()
        self.words = io.StringIO()
        self.failures: list[Exception] = []
        loop = asyncio.get_running_loop()
        engine = Engine(self.journal, Table(), 1)
        self.commits = GroupCommit(
            engine,
            lambda: cast(None, loop.call_soon_threadsafe(self.runtime.committed)),
            lambda error: cast(None, loop.call_soon_threadsafe(self.failures.append, error)),
        )
        log = Logger(self.words, level="debug", as_json=True)
        self.runtime = Runtime(BrokerOptions(limits=limits, access=list(access)), engine, self.commits, log)
        self.runtime.fail = self.failures.append
        self.runtime.broker.create_namespace("default", 1)
        self.commits.start()

    def queue(self, name: str, **policy: Any) -> Queue:
        """Make a queue."""
        return self.runtime.broker.create_queue("default", name, self.runtime.now(), Policy(**policy))

    def phpmq(self, address: str = "192.0.2.7") -> tuple[PhpmqSession, Wire]:
        return self._meet(PhpmqSession(self.runtime, PhpmqListener(address="127.0.0.1:0")), address)

    def sspq(self, queue: str = "default/sspq") -> tuple[SspqSession, Wire]:
        return self._meet(SspqSession(self.runtime, SspqListener(address="127.0.0.1:0", queue=queue)))

    def kokaq(self, address: str = "192.0.2.7", *, create: bool = False) -> tuple[KokaqSession, Wire]:
        listener = KokaqListener(address="127.0.0.1:0", create_queues=create)
        return self._meet(KokaqSession(self.runtime, listener), address)

    def _meet(self, session: SessionT, address: str = "192.0.2.7") -> tuple[SessionT, Wire]:
        wire = Wire()
        session.peer = Peer(address, port=4711)
        assert self.runtime.peers.arrive(session.protocol, session.peer)
        session.connection_made(wire)
        return session, wire

    async def settle(self) -> None:
        """Wait until all requests are done, as far as the disk permits."""
        self.runtime.touched()
        for _ in range(1000):
            await asyncio.sleep(0.002)
            held = not self.journal._open.is_set()
            done = self.runtime.broker.committed == self.runtime.broker.log.next_position
            if held or (done and not self.runtime.backlog.busy):
                break
        for _ in range(5):
            await asyncio.sleep(0.002)

    def events(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        lines = [json.loads(line) for line in self.words.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


@asynccontextmanager
async def running(*access: AccessRule, **limits: Any) -> AsyncIterator[InProcess]:
    """Run a broker for the duration of a test."""
    broker = InProcess(Limits(**limits), access)
    try:
        yield broker
    finally:
        broker.journal.go_on()
        broker.runtime.stop()
        broker.runtime.backlog.join()
        if not broker.failures:
            broker.commits.close(broker.runtime.now())
