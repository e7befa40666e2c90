"""The running broker in this process, with a faulty disk and faulty sessions."""

from __future__ import annotations

import asyncio
import io
import json
import resource
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from penstock.core.recovery.table import Table
from penstock.journal.format.block import Batch
from penstock.server.engine.commits import GroupCommit
from penstock.server.engine.engine import Engine
from penstock.server.logs import Logger
from penstock.server.network.listeners import open_listeners
from penstock.server.network.runtime import Runtime
from penstock.server.options.broker_options import BrokerOptions, Limits
from penstock.server.protocols.kokaq.listener import KokaqListener
from penstock.server.protocols.phpmq.listener import PhpmqListener
from penstock.server.protocols.phpmq.session import PhpmqSession
from penstock.server.protocols.sspq.listener import SspqListener
from support.journals import MemoryLog
from support.raw import consume, publish, send

NOW = 1_700_000_000_000_000


class StallingDisk(MemoryLog):
    """A log whose writes wait until the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()

    def append(self, batch: Batch, expected_position: int, epoch: int, *, roll: bool = False) -> None:
        assert self.go_on.wait(30)
        super().append(batch, expected_position, epoch, roll=roll)


class Running:
    """A broker, its listeners and its log."""

    def __init__(self, limits: Limits) -> None:
        self.options = BrokerOptions(
            limits=limits,
            phpmq=[PhpmqListener(address="127.0.0.1:0")],
            sspq=[SspqListener(address="127.0.0.1:0")],
            kokaq=[KokaqListener(address="127.0.0.1:0")],
        )
        self.disk = StallingDisk()
        self.stream = io.StringIO()
        self.failures: list[Exception] = []
        self.faults: list[dict[str, Any]] = []

    def events(self, event: str) -> list[dict[str, Any]]:
        lines = map(json.loads, self.stream.getvalue().splitlines())
        return [line for line in lines if line["event"] == event]

    async def connect(self, protocol: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = next(listener.address for listener in self.listeners if listener.protocol == protocol)
        host, _, port = address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Runtime]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.faults.append(context))
        engine = Engine(self.disk, Table(), NOW)

        def notify() -> None:
            loop.call_soon_threadsafe(runtime.committed)

        commits = GroupCommit(engine, notify, self.failures.append)
        runtime = Runtime(self.options, engine, commits, Logger(self.stream))
        runtime.fail = self.failures.append
        runtime.broker.create_namespace("default", NOW)
        commits.start()
        self.listeners = await open_listeners(runtime)
        try:
            yield runtime
        finally:
            for listener in self.listeners:
                await listener.close()
            for session in list(runtime.sessions.values()):
                session.abort()
            await until(lambda: not runtime.sessions)
            runtime.stop()
            self.disk.go_on.set()
            commits.close(NOW)


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.005)


async def hang_up(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("size", [0, 1000], ids=["empty payloads", "payloads"])
def test_publishers_wait_for_a_stalled_disk(size: int) -> None:
    """With any amount to send; every message that was read is there at the end."""

    async def main() -> None:
        running = Running(Limits(memory_bytes=4_000_000))
        async with running.open() as runtime:
            running.disk.go_on.clear()
            peers = [await running.connect("sspq") for _ in range(4)]
            flood = send(bytes(size)) * 1000
            sent = 0
            for _ in range(100):
                for _, writer in peers:
                    if writer.transport.get_write_buffer_size() < 100_000:
                        writer.write(flood)
                        sent += 1000
                await asyncio.sleep(0.005)
            assert runtime.memory.congested
            most = 1_000_000 + 4 * 256_000 * (96 + 8 + size) // (8 + size)
            assert 1_000_000 < runtime.engine.unwritten <= most
            assert len(running.events("the disk is slower than the publishers: reading is paused")) == 1
            running.disk.go_on.set()
            (queue,) = runtime.broker.queues.values()
            await until(lambda: len(queue.ready) == sent)
            assert not runtime.memory.congested
            await hang_up(*(writer for _, writer in peers))

    asyncio.run(main())


def test_consumers_are_served_while_publishers_wait() -> None:
    async def main() -> None:
        running = Running(Limits(memory_bytes=400_000))
        async with running.open() as runtime:
            reader, writer = await running.connect("phpmq")
            writer.write(publish("q", b"first"))
            await until(lambda: runtime.broker.queues)
            await until(lambda: not runtime.engine.unwritten)
            running.disk.go_on.clear()
            _, flooding = await running.connect("sspq")
            writer.write(consume("q", 1))
            await until(lambda: runtime.broker.queue("default", "q").out)  # type: ignore[union-attr]
            flooding.write(send(bytes(1000)) * 300)
            await until(lambda: runtime.memory.congested)
            assert b"first" in await asyncio.wait_for(reader.readuntil(b"first"), 5)
            running.disk.go_on.set()
            await until(lambda: not runtime.memory.congested)
            await hang_up(writer, flooding)

    asyncio.run(main())


@pytest.mark.parametrize("step", ["handle", "encode_deliveries", "_all_handled", "facts"])
def test_a_fault_in_a_session_ends_that_one_only(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Its messages go back, and the other sessions continue."""
    faulty: list[PhpmqSession] = []
    original = getattr(PhpmqSession, step)

    def fault(session: PhpmqSession, *arguments: Any, **named: Any) -> Any:
        if session in faulty:
            raise RuntimeError("built in")
        return original(session, *arguments, **named)

    async def main() -> None:
        running = Running(Limits())
        async with running.open() as runtime:
            bad_reader, bad = await running.connect("phpmq")
            await until(lambda: runtime.sessions)
            faulty.extend(runtime.sessions.values())  # type: ignore[arg-type]
            monkeypatch.setattr(PhpmqSession, step, fault)
            reader, good = await running.connect("phpmq")
            bad.write(publish("q", b"one") + consume("q", 5) + b"garbage")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await asyncio.wait_for(bad_reader.readexactly(1000), 5)
            await until(lambda: len(runtime.sessions) == 1)
            good.write(publish("q", b"two") + consume("q", 5))
            await asyncio.wait_for(reader.readuntil(b"two"), 5)
            await hang_up(bad, good)
            await until(lambda: not runtime.sessions)
            assert not runtime.peers.by_origin
            assert not runtime.broker.connections
        assert not running.failures

    asyncio.run(main())


@pytest.mark.parametrize(
    ("soft", "hard", "most", "asked"),
    [
        (1024, 4096, 3996, (4096, 4096)),
        (1024, 1_000_000, 10_000, (10_100, 1_000_000)),
        (1024, resource.RLIM_INFINITY, 10_000, (10_100, resource.RLIM_INFINITY)),
        (65_536, 65_536, 10_000, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10_000, None),
        (256, 256, 156, None),
    ],
)
def test_connections_leave_file_descriptors_for_the_journal(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int, asked: tuple[int, int] | None
) -> None:
    """Without any left, the journal would see a failing disk, and the broker would end."""
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))

    async def main() -> None:
        async with Running(Limits()).open() as runtime:
            assert runtime.peers.most == most

    asyncio.run(main())
    assert set_to == ([asked] if asked else [])
